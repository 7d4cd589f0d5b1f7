"""A batched decoder with a key-value cache, for models of the Qwen2 family.

What was computed once stays in the cache; rows have lengths of their own, so nothing is padded on the left or
read twice.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class BatchDecoder:
    """Reads and writes tokens for a batch of rows, each as long as it is.

    Args:
        model: a causal language model of the Qwen2 family; an adapter may be on it.
        rows: conversations at once.
    """

    def __init__(self, model: Any, rows: int):
        import torch

        model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.model, self.trunk = model, model.model
        config = model.config
        heads, key_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.lengths = torch.zeros(rows, dtype=torch.long, device=model.device)
        empty = torch.zeros(rows, key_heads, 0, self.width, dtype=model.dtype, device=model.device)
        self.cache = [(empty, empty) for _ in range(config.num_hidden_layers)]  # (rows, heads, tokens, width)

    def write(
        self,
        unread: Sequence[list[int]],
        temperatures: Sequence[float],
        most: int,
        end: int,
        generator: "torch.Generator",
    ) -> list[tuple[list[int], list[float]]]:
        """Read ``unread`` (token ids, a list a row), then write one turn of each row.

        The last token of each turn is left unread: give it with what comes after it.

        Args:
            temperatures: one a row.

        Returns:
            Of each row the turn, up to and with ``end`` or ``most`` tokens long, and its log-probabilities at
            the row's temperature (at 0: at temperature 1).
        """
        import torch

        device = self.model.device
        counts = torch.tensor([len(ids) for ids in unread])
        ids = torch.zeros(len(unread), int(counts.max()), dtype=torch.long)
        for row, tokens in enumerate(unread):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        logits = self.read(ids.to(device), counts.to(device))
        temperatures = torch.tensor(temperatures, device=device)
        going = torch.ones(len(unread), dtype=torch.bool, device=device)
        written, logprobs, alive = [], [], []
        for _ in range(most):
            token, logprob = _draw(logits, temperatures, generator)
            written.append(token)
            logprobs.append(logprob)
            alive.append(going)
            going = going & (token != end)
            if not going.any():
                break
            if len(written) < most:
                logits = self.read(token[:, None], going.long())
        lengths = torch.stack(alive).sum(0).tolist()
        tokens, values = torch.stack(written, 1).tolist(), torch.stack(logprobs, 1).tolist()
        return [(t[:n], v[:n]) for t, v, n in zip(tokens, values, lengths, strict=True)]

    def read(self, ids: "torch.Tensor", counts: "torch.Tensor") -> "torch.Tensor":
        """Read the first ``counts[i]`` ids of each row i, which may be none.

        Args:
            ids: (rows, most ids of a row).
            counts: (rows,).

        Returns:
            (rows, vocabulary) logits after the last id of each row.
        """
        import torch

        rows = torch.arange(len(ids), device=ids.device)
        positions = self.lengths[:, None] + torch.arange(ids.shape[1], device=ids.device)
        total = int(positions.max()) + 1
        self._grow(total)
        sees = torch.arange(total, device=ids.device) <= positions[:, None, :, None]
        x = self.trunk.embed_tokens(ids)
        cos, sin = self.trunk.rotary_emb(x, positions)
        for layer, cache in zip(self.trunk.layers, self.cache, strict=True):
            x = x + self._attend(layer, cache, x, (rows, positions, total), (cos, sin), sees)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        self.lengths = self.lengths + counts
        last = x[rows, (counts - 1).clamp(min=0)]
        return self.model.lm_head(self.trunk.norm(last))

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some rows alone."""
        import torch

        chosen = torch.tensor(rows, dtype=torch.long, device=self.lengths.device)
        if len(chosen) < len(self.lengths):
            self.lengths = self.lengths[chosen]
            for i, pair in enumerate(self.cache):  # one layer at a time: the old and the new may be large
                self.cache[i] = tuple(part[chosen] for part in pair)

    def _attend(self, layer, cache, x, where, rotation, sees):
        """Self-attention of one layer over all that its rows have read."""
        from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

        rows, positions, total = where
        attention, h = layer.self_attn, layer.input_layernorm(x)
        shape = (*h.shape[:2], -1, self.width)
        query = attention.q_proj(h).view(shape).transpose(1, 2)
        key = attention.k_proj(h).view(shape).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, *rotation)
        keys, values = cache
        keys[rows[:, None], :, positions] = key.transpose(1, 2)
        values[rows[:, None], :, positions] = attention.v_proj(h).view(shape)
        seen = _look(query, keys[:, :, :total], values[:, :, :total], sees)
        return attention.o_proj(seen.transpose(1, 2).flatten(2))

    def _grow(self, total: int) -> None:
        """Make room for ``total`` tokens a row."""
        import torch.nn.functional as functional

        more = total - self.cache[0][0].shape[2]
        if more > 0:
            more = -(-more // 64) * 64
            for i, pair in enumerate(self.cache):  # one layer at a time, as above
                self.cache[i] = tuple(functional.pad(part, (0, 0, 0, more)) for part in pair)


def _look(
    query: "torch.Tensor", keys: "torch.Tensor", values: "torch.Tensor", sees: "torch.Tensor"
) -> "torch.Tensor":
    """Attention of (rows, heads, tokens, width), where several query heads may share a key head.

    Without torch's ``enable_gqa``: with a mask, that takes a GPU to the kernel that writes all scores down.
    """
    from torch.nn.functional import scaled_dot_product_attention

    shared = query.shape[1] // keys.shape[1]
    if shared > 1 and query.shape[2] == 1:  # the queries of one key head side by side, as if they were tokens
        query = query.unflatten(1, (keys.shape[1], shared)).squeeze(3)
        return scaled_dot_product_attention(query, keys, values, attn_mask=sees).flatten(1, 2).unsqueeze(2)
    if shared > 1:
        keys, values = (part.repeat_interleave(shared, 1) for part in (keys, values))
    return scaled_dot_product_attention(query, keys, values, attn_mask=sees)


def _draw(
    logits: "torch.Tensor", temperatures: "torch.Tensor", generator: "torch.Generator"
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """A token of each row, and its log-probability. Chance comes from the CPU, so that a GPU draws alike."""
    import torch

    sampled = temperatures > 0
    logprobs = (logits.float() / torch.where(sampled, temperatures, 1.0)[:, None]).log_softmax(-1)
    token = logprobs.argmax(-1)
    if sampled.any():
        chance = torch.rand(len(logits), 1, generator=generator).to(logits.device)
        below = logprobs.exp().cumsum(-1)
        drawn = torch.searchsorted(below, chance * below[:, -1:])[:, 0].clamp(max=logits.shape[-1] - 1)
        token = torch.where(sampled, drawn, token)
    return token, logprobs.gather(-1, token[:, None])[:, 0]
