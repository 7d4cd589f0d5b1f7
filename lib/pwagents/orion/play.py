"""Orion's episodes as tokens: examples for fine-tuning, and rollouts of a policy that plays.

Both are made here, so that the policy is told the same rules, functions and answers, token for token, when it
learns and when it plays.

All episodes of a batch take their turns together: the model writes one turn of each (by
:class:`~pwagents.lm.decode.BatchDecoder`, or by vLLM), the environments answer, the model reads the answers,
and so on.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.agents.replies import read_turn
from pwagents.llm.chat import Message, Reply
from pwagents.llm.local_model import LocalModel
from pwagents.lm.decode import BatchDecoder, VllmDecoder
from pwagents.lm.tokens import (
    Example,
    answer_tokens,
    prompt_tokens,
    tokenize_conversation,
)
from pwagents.orion.agent import answer_message, orion_messages, orion_tools
from pwagents.orion.settings import Decoding
from pwagents.rl.rollout import Rollout, StartEpisode
from pwagents.schema import Action, Task, Usage
from pwagents.seeds import derive_seed
from pwagents.web.environment import BeliefState, WebEnvironment

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase


def orion_example(tokenizer: "PreTrainedTokenizerBase", state: BeliefState, shown: int = 10) -> Example:
    """A whole episode to be learned from.

    Args:
        state: the belief state at its end.
        shown: products of a result that the policy is told about, at most.

    Raises:
        DataError: see :func:`tokenize_conversation`.
    """
    return tokenize_conversation(tokenizer, orion_messages(state, shown), orion_tools())


def orion_prompt(tokenizer: "PreTrainedTokenizerBase", state: BeliefState) -> list[int]:
    """Rules, functions, task and P_ctx,0: what the first turn of an episode follows."""
    return prompt_tokens(tokenizer, orion_messages(state), orion_tools())


def orion_answers(
    tokenizer: "PreTrainedTokenizerBase", states: Sequence[BeliefState], shown: int = 10
) -> list[list[int]]:
    """What came back at the last step of each episode, up to the beginning of the next turn.

    Args:
        states: after the step.
    """
    answers = [answer_message(len(state.session) - 1, state.session[-1], shown) for state in states]
    return answer_tokens(tokenizer, answers)


def play_rollouts(
    model: Any, tokenizer: Any, tasks: Sequence[Task], start: StartEpisode, decoding: Decoding, seed: int = 0
) -> list[Rollout]:
    """Play one episode of each task (a task may be given several times) with ``model`` as the policy.

    ``model`` may also be the ``vllm.LLM`` that has the policy's weights.

    Which tokens are sampled depends on ``seed``, the tasks and their order, and the batch size.
    """
    import torch

    rollouts = []
    with torch.inference_mode(), _at_rest(model):
        for i in range(0, len(tasks), decoding.batch_size):
            episodes = [start(task) for task in tasks[i : i + decoding.batch_size]]
            generator = torch.Generator().manual_seed(derive_seed(seed, "rollouts", str(i)))
            rollouts += _play_batch(model, tokenizer, episodes, decoding, generator)
    return rollouts


def next_actions(
    folder: Path, conversations: Sequence[Sequence[Message]], decoding: Decoding
) -> list[Action]:
    """What the model in ``folder`` does next in each of some conversations, greedily."""
    import torch

    loaded, actions = LocalModel(folder).loaded, []
    end, generator = loaded.tokenizer.eos_token_id, torch.Generator()
    with torch.inference_mode(), _at_rest(loaded.model):
        for i in range(0, len(conversations), decoding.batch_size):
            batch = conversations[i : i + decoding.batch_size]
            prompts = [prompt_tokens(loaded.tokenizer, messages, orion_tools()) for messages in batch]
            decoder, coldest = BatchDecoder(loaded.model, len(batch)), [0.0] * len(batch)
            turns = decoder.write(prompts, coldest, decoding.turn_tokens, end, generator)
            pairs = zip(prompts, turns, strict=True)
            actions += [_read(ids, len(prompt), loaded.tokenizer) for prompt, (ids, _) in pairs]
    return actions


def _read(ids: Sequence[int], read: int, tokenizer: Any) -> Action:
    """The action that the tokens of a turn mean, after so many tokens were read."""
    ended = ids[-1] == tokenizer.eos_token_id
    text = tokenizer.decode(ids[: len(ids) - ended], skip_special_tokens=False)
    usage = Usage(calls=1, prompt_tokens=read, completion_tokens=len(ids))
    return read_turn(Reply(text=text, finish_reason="stop" if ended else "length", usage=usage))


@contextmanager
def _at_rest(model: Any) -> Iterator[None]:
    """A model that is being trained does not drop out while it plays; vLLM never does."""
    if _is_vllm(model):
        yield
        return
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _is_vllm(model: Any) -> bool:
    import torch

    return not isinstance(model, torch.nn.Module)


def _play_batch(
    model: Any,
    tokenizer: Any,
    episodes: list[WebEnvironment],
    decoding: Decoding,
    generator: "torch.Generator",
) -> list[Rollout]:
    decoder = (VllmDecoder if _is_vllm(model) else BatchDecoder)(model, len(episodes))
    most = decoder.room - decoding.turn_tokens  # of a conversation before a turn
    records = [_Record(episode, _cut(orion_prompt(tokenizer, episode.state), most)) for episode in episodes]
    unread, active = [record.prompt_ids for record in records], records
    while active:
        temperatures = [decoding.temperature_of(record.episode.task.type) for record in active]
        written = decoder.write(unread, temperatures, decoding.turn_tokens, tokenizer.eos_token_id, generator)
        turns = [record.add_turn(*turn, tokenizer) for record, turn in zip(active, written, strict=True)]
        _advance(active, turns, decoding.workers)
        rows = [row for row, record in enumerate(active) if record.goes_on(decoding)]
        answers = orion_answers(tokenizer, [active[row].episode.state for row in rows], decoding.shown)
        # An episode whose answer leaves no room for a turn ends there; the others go on.
        read = [
            (row, ids) for row, ids in zip(rows, answers, strict=True) if active[row].length + len(ids) < most
        ]
        decoder.keep([row for row, _ in read])
        unread = [active[row].add_answer(ids, tokenizer) for row, ids in read]
        active = [active[row] for row, _ in read]
    return [record.rollout() for record in records]


def _cut(ids: list[int], most: int) -> list[int]:
    """A prompt without its middle where it is too long: there stands what others wrote, behind the rules."""
    return ids if len(ids) <= most else ids[: most // 2] + ids[len(ids) - (most - most // 2) :]


def _advance(records: "Sequence[_Record]", actions: Sequence[Action], workers: int) -> None:
    """Carry out the action of each episode."""
    with ThreadPoolExecutor(workers) as threads:
        each = map if workers == 1 else threads.map
        list(each(lambda record, action: record.episode.step(action), records, actions))


@dataclass
class _Record:
    """One episode under way, with all its tokens."""

    episode: WebEnvironment
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    states: list[BeliefState] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens so far."""
        return len(self.prompt_ids) + len(self.completion_ids)

    def add_turn(self, ids: list[int], logprobs: list[float], tokenizer: Any) -> Action:
        """Take down a turn; the action that it means."""
        self.states.append(self.episode.state)
        read = self.length
        self._add(ids, logprobs, 1)
        return _read(ids, read, tokenizer)

    def goes_on(self, decoding: Decoding) -> bool:
        """Whether the policy has another turn."""
        return not self.episode.done and len(self.completion_ids) < decoding.episode_tokens

    def add_answer(self, ids: list[int], tokenizer: Any) -> list[int]:
        """Take down an answer, after the end of a turn that was cut off; what the policy has not read yet."""
        last = self.completion_ids[-1]
        answer = ids if last == tokenizer.eos_token_id else [tokenizer.eos_token_id, *ids]
        self._add(answer, [0.0] * len(answer), 0)
        return [last, *answer]

    def rollout(self) -> Rollout:
        trajectory = self.episode.trajectory
        if not self.episode.done:
            trajectory = trajectory.model_copy(update={"end": "tokens"})
        return Rollout(
            prompt_ids=self.prompt_ids,
            completion_ids=self.completion_ids,
            mask=self.mask,
            logprobs=self.logprobs,
            turns=self.turns,
            states=tuple(self.states),
            trajectory=trajectory,
        )

    def _add(self, ids: list[int], logprobs: list[float], sampled: int) -> None:
        """Tokens of the step under way."""
        self.completion_ids += ids
        self.logprobs += logprobs
        self.mask += [sampled] * len(ids)
        self.turns += [len(self.states) - 1] * len(ids)
