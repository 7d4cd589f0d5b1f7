"""Turns of many conversations at once, tokens in, tokens out.

:class:`BatchDecoder` is for models of the Qwen2 family on any device; on a GPU, vLLM may do the same beside a
training (:class:`VllmDecoder`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


PORTION = 2048  # tokens read at once: more would need more memory, and leave the cache of a CPU
BESIDE = 64  # slots whose attention is computed at once, as wide as the longest of them


class BatchDecoder:
    """Reads and writes tokens for a batch of rows, each as long as it is, with a key-value cache.

    transformers' own ``generate`` pads rows to one length and steps all of them until the longest is done;
    and it starts every turn from an empty cache. Here no row pays for another, in five ways:

    - A row lies in a slot of the cache for the whole conversation: what was read or written once stays.
    - The slots of the rows that still write are always the first ones: those that have ended are swapped
      behind them. A step is then a slice of the cache, which copies nothing.
    - What is read is packed, the tokens of all rows in one line, for all that looks at single tokens; only
      attention needs rows side by side.
    - Before each turn the slots are sorted, the longest rows first: attention, which is computed for some
      slots at a time, is as wide for them as the longest of them.
    - A first text that several rows have, as the episodes of one task do, is read once.

    Args:
        model: a causal language model of the Qwen2 family; an adapter may be on it.
        rows: conversations at once.

    Attributes:
        room: tokens that a conversation may have, at most.
    """

    def __init__(self, model: Any, rows: int):
        import torch

        model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.model, self.trunk = model, model.model
        config = model.config
        self.room = config.max_position_embeddings
        heads, key_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.rows = torch.arange(rows, device=model.device)  # of each slot, which row lies there
        self.lengths = torch.zeros_like(self.rows)  # of each slot, tokens read
        empty = torch.zeros(rows, key_heads, 0, self.width, dtype=model.dtype, device=model.device)
        self.cache = [(empty, empty)] * config.num_hidden_layers  # of each layer, keys and values

    def write(
        self,
        unread: Sequence[list[int]],
        temperatures: Sequence[float],
        most: int,
        end: int,
        generator: "torch.Generator",
    ) -> list[tuple[list[int], list[float]]]:
        """Read ``unread`` (token ids, a list a row, none of them empty), then write one turn of each row.

        The last token of each turn is left unread: give it with what comes after it.

        Args:
            temperatures: one a row.

        Returns:
            Of each row the turn, up to and with ``end`` or ``most`` tokens long, and its log-probabilities at
            the row's temperature (at 0: at temperature 1).
        """
        import torch

        device, n = self.model.device, len(unread)
        counts = torch.tensor([len(text) for text in unread], device=device)
        to_come = self.lengths + counts[self.rows]
        self._arrange(to_come.argsort(descending=True, stable=True), int(to_come.max()) + most)
        texts = [unread[row] for row in self.rows.tolist()]

        # A first text that several rows have is read once.
        is_first, different = not self.lengths.any(), texts
        if is_first:
            numbers = {text: i for i, text in enumerate(dict.fromkeys(map(tuple, texts)))}
            source = torch.tensor([numbers[tuple(text)] for text in texts], device=device)
            different = list(numbers)

        # Some slots are read at a time: as many as, padded to the longest, have PORTION tokens; or one that
        # is longer still.
        first, parts = 0, []
        while first < len(different):
            longest, slots = len(different[first]), 1
            for text in different[first + 1 :]:
                longest = max(longest, len(text))
                if longest * (slots + 1) > PORTION:
                    break
                slots += 1
            some = different[first : first + slots]
            ids = torch.tensor([token for text in some for token in text], device=device)
            sizes = torch.tensor([len(text) for text in some], device=device)
            parts.append(self._read(ids, sizes, first))
            first += slots
        logits = torch.cat(parts)
        if is_first:
            logits, self.lengths[:] = logits[source], self.lengths[source]
            for part in (part for pair in self.cache for part in pair):
                part[:] = part[source]

        # Each row writes its turn, a token at a time.
        temperatures = torch.tensor(temperatures, device=device)
        turns = torch.full((n, most), end, device=device)
        logprobs = torch.zeros(n, most, device=device)
        lengths = torch.zeros(n, dtype=torch.long, device=device)
        for place in range(most):
            rows = self.rows[: len(logits)]
            # For all rows, also those that have ended: what a row draws does not depend on the others.
            chance = torch.rand(n, generator=generator).to(device)[rows]  # from the CPU: a GPU draws alike
            heat = temperatures[rows]
            scores = (logits.float() / torch.where(heat > 0, heat, 1.0)[:, None]).log_softmax(-1)
            token = scores.argmax(-1)
            if (heat > 0).any():
                below = scores.exp().cumsum(-1)
                drawn = torch.searchsorted(below, chance[:, None] * below[:, -1:])[:, 0]
                token = torch.where(heat > 0, drawn.clamp(max=scores.shape[-1] - 1), token)
            turns[rows, place], logprobs[rows, place] = token, scores.gather(-1, token[:, None])[:, 0]
            lengths[rows] += 1
            # The first slots that end and the last ones that go on change places. Of each slot that goes on
            # now, ``came_from`` is where it lay before.
            going = token != end
            n_going = int(going.sum())
            came_from = torch.arange(n_going, device=device)
            gaps = (~going[:n_going]).nonzero()[:, 0]
            if len(gaps):
                came_from[gaps] = behind = n_going + going[n_going:].nonzero()[:, 0]
                to, of = torch.cat([gaps, behind]), torch.cat([behind, gaps])
                for part in (self.rows, self.lengths, *(part for pair in self.cache for part in pair)):
                    part[to] = part[of]
            if not n_going or place + 1 == most:
                break
            logits = self._read(token[came_from], torch.ones_like(came_from))
        each = zip(turns.tolist(), logprobs.tolist(), lengths.tolist(), strict=True)
        return [(turn[:length], values[:length]) for turn, values, length in each]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone, in ascending order."""
        import torch

        chosen = self.rows.argsort()[torch.tensor(rows, dtype=torch.long, device=self.rows.device)]
        if len(chosen) < len(self.rows):
            self._arrange(chosen, 0)
            self.rows = torch.arange(len(chosen), device=chosen.device)

    def _read(self, ids: "torch.Tensor", counts: "torch.Tensor", first: int = 0) -> "torch.Tensor":
        """Read ``counts[i]`` more tokens, at least one, in the slots from ``first`` on.

        Args:
            ids: (tokens,) those of all slots, one slot after the other.
            counts: (slots,).

        Returns:
            (slots, vocabulary) logits after the last token of each slot.
        """
        import torch

        slots = slice(first, first + len(counts))
        row = torch.arange(len(counts), device=ids.device).repeat_interleave(counts)
        ends = counts.cumsum(0)
        places = torch.arange(len(ids), device=ids.device) - (ends - counts)[row]
        before = self.lengths[slots]
        positions = before[row] + places
        # The slots whose attention is computed at once, and (slots, 1, new tokens, all tokens) what the new
        # tokens see: themselves and what their slot read before them. A slot that reads less than the longest
        # has places at its end that hold no token; nobody looks there.
        new = torch.arange(int(counts.max()), device=counts.device)
        parts = []
        for i in range(0, len(counts), BESIDE):
            some = slice(i, i + BESIDE)
            read = torch.arange(int((before + counts)[some].max()), device=counts.device)
            parts.append((some, read <= (before[some, None] + new)[:, None, :, None]))
        x = self.trunk.embed_tokens(ids)[None]
        rotation = self.trunk.rotary_emb(x, positions[None])
        for layer, pair in zip(self.trunk.layers, self.cache, strict=True):
            cache = [part[slots] for part in pair]
            x = x + self._attend(layer, cache, x, (row, places, positions), rotation, parts)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        before += counts  # a view of self.lengths
        return self.model.lm_head(self.trunk.norm(x[0, ends - 1]))

    def _attend(self, layer, cache, x, where, rotation, parts):
        """Self-attention of one layer over all that its slots have read."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention
        from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

        row, places, positions = where
        attention, h = layer.self_attn, layer.input_layernorm(x)
        query, key, value = (
            project(h).unflatten(2, (-1, self.width)).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        query, key = apply_rotary_pos_emb(query, key, *rotation)
        keys, values = cache  # views: what is written here is in the cache
        keys[row, :, positions] = key[0].transpose(0, 1)
        values[row, :, positions] = value[0].transpose(0, 1)
        queries = query.new_zeros(len(keys), parts[0][1].shape[2], *query.shape[1::2])
        queries[row, places] = query[0].transpose(0, 1)
        # Query heads that share a key head stand side by side, as if they were further tokens: torch's
        # ``enable_gqa``, with a mask, takes a GPU to the kernel that writes all scores down.
        shared, results = queries.shape[2] // keys.shape[1], []
        for some, sees in parts:
            pair = (part[some, :, : sees.shape[3]] for part in cache)
            side = queries[some].transpose(1, 2).unflatten(1, (-1, shared)).flatten(2, 3)
            seen = scaled_dot_product_attention(side, *pair, attn_mask=sees.repeat(1, 1, shared, 1))
            results.append(seen.unflatten(2, (shared, -1)).flatten(1, 2))
        return attention.o_proj(torch.cat(results).transpose(1, 2)[row, places].flatten(1))[None]

    def _arrange(self, slots: "torch.Tensor", total: int) -> None:
        """Keep these slots, in this order, with room for ``total`` tokens or as many as there was."""
        self.rows, self.lengths = self.rows[slots], self.lengths[slots]
        room = max(total, self.cache[0][0].shape[2])
        for i, pair in enumerate(self.cache):  # one layer at a time: the old and the new may be large
            wider = [part.new_zeros(len(slots), part.shape[1], room, part.shape[3]) for part in pair]
            for part, old in zip(wider, pair, strict=True):
                part[:, :, : old.shape[2]] = old[slots]
            self.cache[i] = tuple(wider)


class VllmDecoder:
    """Does what :class:`BatchDecoder` does by vLLM, which TRL starts and gives the weights before each step.

    A turn's request holds the whole conversation. What of it was read before is in vLLM's prefix cache: to
    send it again costs little.

    Args:
        engine: a ``vllm.LLM``, as TRL starts it: it must tell log-probabilities at the temperature sampled at
            (``logprobs_mode="processed_logprobs"``).
        rows: conversations at once.
    """

    def __init__(self, engine: Any, rows: int):
        self.engine, self.room = engine, engine.llm_engine.model_config.max_model_len
        self.texts: list[list[int]] = [[] for _ in range(rows)]  # of each row, the tokens up to its last turn

    def write(self, unread, temperatures, most, end, generator):
        """As :meth:`BatchDecoder.write`; vLLM's chance is seeded by ``generator``, turn by turn."""
        import torch
        from vllm import SamplingParams

        self.texts = [text + list(ids) for text, ids in zip(self.texts, unread, strict=True)]
        seeds = torch.randint(2**31, (len(self.texts),), generator=generator).tolist()
        fixed = {"max_tokens": most, "stop_token_ids": [end], "logprobs": 0}
        sampling = [
            SamplingParams(temperature=temperature, seed=seed, **fixed)
            for temperature, seed in zip(temperatures, seeds, strict=True)
        ]
        prompts = [{"prompt_token_ids": text} for text in self.texts]
        outputs = self.engine.generate(prompts, sampling_params=sampling, use_tqdm=False)
        turns = []
        for i, output in enumerate(outputs):
            ids, values = list(output.outputs[0].token_ids), output.outputs[0].logprobs
            turns.append((ids, [of[token].logprob for token, of in zip(ids, values, strict=True)]))
            self.texts[i] = self.texts[i] + ids[:-1]  # the last token is given again with what comes after it
        return turns

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone, in ascending order."""
        self.texts = [self.texts[row] for row in rows]
