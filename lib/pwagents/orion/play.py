"""Orion's episodes as tokens: examples for fine-tuning, and rollouts of a policy that plays.

Both are made here, so that the policy is told the same rules, functions and answers, token for token, when it
learns and when it plays.

All episodes of a batch take their turns together: the model writes one turn of each (by
:class:`~pwagents.lm.decode.BatchDecoder`, or by vLLM), the environments answer, the model reads the answers,
and so on.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.agents.offline import CODE as OFFLINE
from pwagents.agents.replies import read_turn
from pwagents.llm.chat import Message, Reply
from pwagents.llm.local_model import LocalModel
from pwagents.llm.make import CODE as MODELS
from pwagents.lm.decode import BatchDecoder, VllmDecoder
from pwagents.lm.tokens import Example, answer_tokens, prompt_tokens, tokenize_conversation
from pwagents.orion.agent import answer_message, orion_messages, orion_tools
from pwagents.rl.rollout import Rollout, StartEpisode
from pwagents.schema import Action, Task, Usage
from pwagents.seeds import derive_seed
from pwagents.settings import Decoding
from pwagents.shop.environment import BeliefState

# The modules that decide an episode, for keys. Data and instructions stand there by their content.
CODE = (
    *dict.fromkeys((*OFFLINE, *MODELS)),
    *(f"agents.{name}" for name in ("messages", "replies")),
    *(f"users.{name}" for name in ("rules", "llm")),
    *(f"llm.{name}" for name in ("prompts", "replies")),
    *(f"lm.{name}" for name in ("decode", "tokens")),
    *(f"profiles.{name}" for name in ("catalogue", "clusters", "global_micro", "llm", "offline", "types")),
    *(f"orion.{name}" for name in ("agent", "play", "study")),
    "profiles.update",
    "rl.rollout",
    "shop.score",
)

REVIEW_TEMPERATURE = 1.0  # of sampled review tasks (Orion, 5.1)

if TYPE_CHECKING:
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


def play_rollouts(
    model: Any, tokenizer: Any, tasks: Sequence[Task], start: StartEpisode, decoding: Decoding, seed: int = 0
) -> list[Rollout]:
    """Play one episode of each task (a task may be given several times) with ``model`` as the policy.

    ``model`` may also be the ``vllm.LLM`` that has the policy's weights. A model plays as it is: one that
    drops out in training has to be in its evaluation mode.

    Which tokens are sampled depends on ``seed``, the tasks and their order, and the batch size.
    """
    import torch

    rollouts, end = [], tokenizer.eos_token_id
    make_decoder = BatchDecoder if isinstance(model, torch.nn.Module) else VllmDecoder
    with torch.inference_mode(), ThreadPoolExecutor(decoding.workers) as threads:
        run = map if decoding.workers == 1 else threads.map
        for i in range(0, len(tasks), decoding.batch_size):
            # Rules, functions, task and P_ctx,0: what the first turn of an episode follows. A prompt that is
            # too long loses its middle: there stands what others wrote, behind the rules.
            episodes = [start(task) for task in tasks[i : i + decoding.batch_size]]
            decoder = make_decoder(model, len(episodes))
            generator = torch.Generator().manual_seed(derive_seed(seed, "rollouts", str(i)))
            most, begun = decoder.room - decoding.turn_tokens, []  # most: tokens before a turn
            for episode in episodes:
                ids = prompt_tokens(tokenizer, orion_messages(episode.state), orion_tools())
                ids = ids if len(ids) <= most else ids[: most // 2] + ids[len(ids) - (most - most // 2) :]
                is_sampled_review = episode.task.type == "review" and decoding.temperature
                heat = REVIEW_TEMPERATURE if is_sampled_review else decoding.temperature
                begun.append((episode, Rollout(ids, temperature=heat)))

            active, unread = begun, [rollout.prompt_ids for _, rollout in begun]
            while active:
                # Each policy writes a turn, which means an action.
                heat = [rollout.temperature for _, rollout in active]
                turns = decoder.write(unread, heat, decoding.turn_tokens, end, generator)
                actions = []
                for (episode, rollout), (ids, logprobs) in zip(active, turns, strict=True):
                    rollout.states.append(episode.state)
                    actions.append(_read(ids, len(rollout), tokenizer))
                    rollout.add(ids, logprobs)

                # The environments carry them out. Whose task has not ended and who has tokens left reads the
                # answer, after the end of a turn that was cut off. An episode whose answer leaves no room for
                # a turn ends there; the others go on.
                list(run(call, [episode.step for episode, _ in active], actions))
                rows = [
                    row
                    for row, (episode, rollout) in enumerate(active)
                    if episode.end is None and len(rollout.completion_ids) < decoding.episode_tokens
                ]
                states = [active[row][0].state for row in rows]
                last = [(len(state.session) - 1, state.session[-1], decoding.shown) for state in states]
                answers = answer_tokens(tokenizer, [answer_message(*each) for each in last])
                pairs = zip(rows, answers, strict=True)
                read = [(row, ids) for row, ids in pairs if len(active[row][1]) + len(ids) < most]
                decoder.keep([row for row, _ in read])
                unread, active = [], [active[row] for row, _ in read]
                for (_, rollout), (_, ids) in zip(active, read, strict=True):
                    written = rollout.completion_ids[-1]
                    answer = ids if written == end else [end, *ids]
                    rollout.add(answer)
                    unread.append([written, *answer])

            for episode, rollout in begun:
                ended = {} if episode.end else {"end": "tokens"}
                rollout.trajectory = episode.trajectory.model_copy(update=ended)
                rollouts.append(rollout)
    return rollouts


def next_actions(
    folder: Path, conversations: Sequence[Sequence[Message]], decoding: Decoding
) -> list[Action]:
    """What the model in ``folder`` does next in each of some conversations, greedily."""
    import torch

    loaded, actions = LocalModel(folder).loaded, []
    end, generator = loaded.tokenizer.eos_token_id, torch.Generator()
    with torch.inference_mode():
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
