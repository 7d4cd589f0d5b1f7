"""Many episodes at once: a batched decoder with a key-value cache, and rollouts played with it.

All episodes of a batch take their turns together: the model writes one turn of each, the environments answer,
the answers are read in one go, and so on. What was computed once stays in the cache; rows have lengths of
their own, so nothing is padded on the left or read twice. For models of the Qwen2 family. On a GPU vLLM is
faster; :mod:`pwagents.training.trl_environment` is the way there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pwagents.agents.orion import answer_message, orion_messages, read_turn
from pwagents.llm.chat import Message, Reply
from pwagents.schema import Task
from pwagents.seeds import derive_seed
from pwagents.training.rollout import Rollout, StartEpisode
from pwagents.web.episode import BeliefState, Episode

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Decoding:
    """How turns are sampled.

    Args:
        temperature: 0 takes the most likely token.
        turn_tokens: of one turn, at most; a longer one is cut off and its step lost.
        episode_tokens: an episode that is longer ends after its turn.
        shown: products of a result that the policy is told about.
        batch_size: episodes at once.
    """

    temperature: float = 1.0
    turn_tokens: int = 64
    episode_tokens: int = 1024
    shown: int = 10
    batch_size: int = 64


def play_rollouts(
    model: Any, tokenizer: Any, tasks: Sequence[Task], start: StartEpisode, decoding: Decoding, seed: int = 0
) -> list[Rollout]:
    """Play one episode of each task (a task may be given several times) with ``model`` as the policy.

    Which tokens are sampled depends on ``seed``, the tasks and their order, and the batch size.
    """
    import torch

    was_training = model.training
    model.eval()
    rollouts = []
    with torch.inference_mode():
        for i in range(0, len(tasks), decoding.batch_size):
            episodes = [start(task) for task in tasks[i : i + decoding.batch_size]]
            generator = torch.Generator().manual_seed(derive_seed(seed, "rollouts", str(i)))
            rollouts += _play_batch(model, tokenizer, episodes, decoding, generator)
    model.train(was_training)
    return rollouts


def _play_batch(
    model: Any, tokenizer: Any, episodes: list[Episode], decoding: Decoding, generator: "torch.Generator"
) -> list[Rollout]:
    records = [_Record.of(episode, tokenizer, decoding.shown) for episode in episodes]
    decoder = BatchDecoder(model, len(records))
    unread = [record.prompt_ids for record in records]
    active = list(range(len(records)))
    while active:
        turns, logprobs = decoder.write(
            unread, decoding.temperature, decoding.turn_tokens, tokenizer.eos_token_id, generator
        )
        going_on, unread = [], []
        for row, i in enumerate(active):
            answer = records[i].take_turn(turns[row], logprobs[row], tokenizer, decoding)
            if answer is not None:
                going_on.append(row)
                unread.append([turns[row][-1], *answer])
        decoder.keep(going_on)
        active = [active[row] for row in going_on]
    return [record.rollout() for record in records]


@dataclass
class _Record:
    """One episode under way, with all its tokens."""

    episode: Episode
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    states: list[BeliefState] = field(default_factory=list)

    @classmethod
    def of(cls, episode: Episode, tokenizer: Any, shown: int) -> "_Record":
        messages = orion_messages(episode.state, shown)
        return cls(episode, tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"])

    def take_turn(
        self, ids: list[int], logprobs: list[float], tokenizer: Any, decoding: Decoding
    ) -> list[int] | None:
        """Carry out a turn; the tokens of its answer, None when the episode is over."""
        step = len(self.states)
        self.states.append(self.episode.state)
        ended = ids[-1] == tokenizer.eos_token_id
        text = tokenizer.decode(ids[: len(ids) - ended], skip_special_tokens=False)
        self._add(ids, logprobs, 1, step)
        state = self.episode.advance(read_turn(Reply(text=text, finish_reason="stop" if ended else "length")))
        if self.episode.done or len(self.completion_ids) >= decoding.episode_tokens:
            return None
        answer = answer_message(step, state.session[-1], decoding.shown)
        answer_ids = answer_tokens(tokenizer, answer)
        if not ended:
            answer_ids = [tokenizer.eos_token_id, *answer_ids]
        self._add(answer_ids, [0.0] * len(answer_ids), 0, step)
        return answer_ids

    def rollout(self) -> Rollout:
        return Rollout(
            prompt_ids=self.prompt_ids,
            completion_ids=self.completion_ids,
            mask=self.mask,
            logprobs=self.logprobs,
            turns=self.turns,
            states=tuple(self.states),
            trajectory=self.episode.trajectory,
        )

    def _add(self, ids: list[int], logprobs: list[float], sampled: int, step: int) -> None:
        self.completion_ids += ids
        self.logprobs += logprobs
        self.mask += [sampled] * len(ids)
        self.turns += [step] * len(ids)


def answer_tokens(tokenizer: Any, answer: Message) -> list[int]:
    """The tokens between the end of a turn and the beginning of the next one.

    They are cut out of a conversation with another turn in this one's place, so that the turn itself is
    never tokenised again.
    """
    before: list[Message] = [{"role": "user", "content": "."}, {"role": "assistant", "content": "."}]
    known = tokenizer.apply_chat_template(before)["input_ids"]
    whole = tokenizer.apply_chat_template([*before, answer], add_generation_prompt=True)["input_ids"]
    end = len(known) - known[::-1].index(tokenizer.eos_token_id)
    return whole[end:]


class BatchDecoder:
    """Reads and writes tokens for a batch of rows, each as long as it is.

    Args:
        model: a causal language model of the Qwen2 family.
        rows: conversations at once.
    """

    def __init__(self, model: Any, rows: int):
        import torch

        self.model, self.trunk = model, model.model
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.lengths = torch.zeros(rows, dtype=torch.long, device=model.device)
        empty = torch.zeros(rows, self.kv_heads, 0, self.width, dtype=model.dtype, device=model.device)
        self.cache = [(empty, empty) for _ in range(config.num_hidden_layers)]  # (rows, heads, tokens, width)

    def write(
        self,
        unread: Sequence[list[int]],
        temperature: float,
        most: int,
        end: int,
        generator: "torch.Generator",
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Read ``unread`` (token ids, a list a row), then write one turn of each row.

        The last token of each turn is left unread: give it with what comes after it.

        Returns:
            The turns, each up to and with ``end`` or ``most`` tokens long, and their log-probabilities at
            ``temperature`` (at 0: at temperature 1).
        """
        import torch

        device = self.model.device
        counts = torch.tensor([len(ids) for ids in unread], device=device)
        ids = torch.zeros(len(unread), int(counts.max()), dtype=torch.long, device=device)
        for row, tokens in enumerate(unread):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        logits = self.read(ids, counts)
        going = torch.ones(len(unread), dtype=torch.bool, device=device)
        written, logprobs, alive = [], [], []
        for _ in range(most):
            token, logprob = _draw(logits, temperature, generator)
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
        rows = range(len(unread))
        return [tokens[i][: lengths[i]] for i in rows], [values[i][: lengths[i]] for i in rows]

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
            self.cache = [(keys[chosen], values[chosen]) for keys, values in self.cache]

    def _attend(self, layer, cache, x, where, rotation, sees):
        """Self-attention of one layer over all that its rows have read."""
        from torch.nn.functional import scaled_dot_product_attention
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
        seen = scaled_dot_product_attention(
            query,
            keys[:, :, :total],
            values[:, :, :total],
            attn_mask=sees,
            enable_gqa=self.heads != self.kv_heads,
        )
        return attention.o_proj(seen.transpose(1, 2).flatten(2))

    def _grow(self, total: int) -> None:
        """Make room for ``total`` tokens a row."""
        import torch.nn.functional as functional

        more = total - self.cache[0][0].shape[2]
        if more > 0:
            more = -(-more // 64) * 64
            self.cache = [
                tuple(functional.pad(part, (0, 0, 0, more)) for part in pair) for pair in self.cache
            ]


def _draw(
    logits: "torch.Tensor", temperature: float, generator: "torch.Generator"
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """A token of each row, and its log-probability. Chance comes from the CPU, so that a GPU draws alike."""
    import torch

    logprobs = (logits.float() / (temperature or 1.0)).log_softmax(-1)
    if temperature == 0:
        token = logprobs.argmax(-1)
    else:
        chance = torch.rand(len(logits), 1, generator=generator).to(logits.device)
        below = logprobs.exp().cumsum(-1)
        token = torch.searchsorted(below, chance * below[:, -1:])[:, 0].clamp(max=logits.shape[-1] - 1)
    return token, logprobs.gather(-1, token[:, None])[:, 0]
