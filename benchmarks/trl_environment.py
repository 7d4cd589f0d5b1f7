"""Orion's episodes as a TRL environment: the way to GRPO with TRL's own generation, on a GPU with vLLM.

    class Trainer(EpisodeLoop, GRPOTrainer): ...

    Trainer(
        model,
        environment_factory=lambda: OrionEnvironment(tasks, setting.start, rewards, tokenizer),
        train_dataset=Dataset.from_list(prompt_rows(tasks.values())),
        processing_class=with_response_template(tokenizer),
        args=GRPOConfig(max_tool_calling_iterations=MAX_STEPS, ...),
    )

The environment drives a :class:`WebEnvironment` and answers in the words of :mod:`pwagents.orion.agent`, so a
greedy model plays the same episodes here as with :mod:`pwagents.orion.play`. :class:`EpisodeLoop` puts
right what TRL (1.16) does otherwise: it lets the model go on after the end, does not tell an environment what
the model thought, and carries out all calls of a turn. Two things remain: a turn without a readable call ends
the episode, where elsewhere the policy is told of its mistake; and a call of a function that does not exist,
or whose arguments are no object, is answered by TRL and is no step.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pwagents.adapters.core import ENDED
from pwagents.adapters.trl_environment import tool_method
from pwagents.agents.replies import read_turn
from pwagents.llm.chat import Message, Reply, ToolCall
from pwagents.lm.small import CHAT_TEMPLATE, END
from pwagents.lm.tokens import without_control_tokens
from pwagents.orion.agent import FUNCTIONS, RULES, answer_message, opening
from pwagents.rl.rollout import StartEpisode, StepRewards
from pwagents.schema import Action, Task, Trajectory
from pwagents.web.environment import BeliefState, WebEnvironment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


# How TRL finds a thought and a call in what the small model writes, as in transformers' response templates.
_RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": END, "content": "text"},
    },
}


def prompt_rows(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """The rows of a data set for TRL: the rules, room for what ``reset`` tells, and which task it is."""
    prompt = [{"role": "system", "content": RULES}, {"role": "user", "content": ""}]
    return [{"prompt": prompt, "task_id": task.task_id} for task in tasks]


def with_response_template(tokenizer: "PreTrainedTokenizerBase") -> "PreTrainedTokenizerBase":
    """The tokenizer, from now on with what TRL needs to read the small model; of Qwen's TRL knows it."""
    if tokenizer.chat_template == CHAT_TEMPLATE:
        tokenizer.response_template = _RESPONSE_TEMPLATE
    return tokenizer


class OrionEnvironment:
    """One episode after another, for TRL's ``environment_factory``.

    The functions that Orion may call are its methods, with the signatures and docstrings of
    :class:`WebFunctions`.

    Args:
        tasks: task_id -> task; a data set's rows name the task.
        start: begins the episode of a task.
        rewards: R_t of each step; the episode's reward is their sum.
        tokenizer: the policy's; its control tokens are broken up where foreign text holds them.
        shown: products of a result that the policy is told about.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        start: StartEpisode,
        rewards: StepRewards,
        tokenizer: "PreTrainedTokenizerBase",
        shown: int = 10,
    ):
        self._tasks, self._start, self._rewards = tasks, start, rewards
        self._tokenizer, self._shown = tokenizer, shown

    def reset(self, task_id: str, **_: Any) -> str:
        """Begin an episode; the task and P_ctx,0, which TRL appends to the prompt."""
        self.episode: WebEnvironment = self._start(self._tasks[task_id])
        self.states: list[BeliefState] = []  # before each step
        self.turns = 0  # that the episode took
        self._messages: list[Message] | None = None
        self._answered: tuple[Message, str] | None = None
        self._failure: Exception | None = None
        return self._told(opening(self.episode.state))

    def get_reward(self) -> float:
        """The sum of the step rewards.

        Raises:
            Exception: what failed while the episode was played by no fault of the policy's (an endpoint, the
                disk); TRL shows it to the policy as an answer.
        """
        if self._failure is not None:
            raise self._failure
        return float(sum(self._rewards(self.states, self.trajectory)))

    @property
    def trajectory(self) -> Trajectory:
        return self.episode.trajectory

    def _follow(self, messages: list[Message]) -> None:
        """Read turns whole from now on: when a turn is carried out, it is the last of ``messages``."""
        self._messages = messages

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        """Carry out a call; the answer as the policy is told it."""
        if self.episode.done:
            return ENDED
        if self._messages is None:
            return self._act(Action(name=name, arguments=arguments))
        turn = self._messages[-1]
        if self._answered is None or self._answered[0] is not turn:  # else: one more call in the same turn
            self._answered = turn, self._act(read_turn(_reply(turn)))
        return self._answered[1]

    def _act(self, action: Action) -> str:
        before = self.episode.state
        try:
            step = self.episode.step(action)
        except Exception as error:
            self._failure = error
            raise
        self.states.append(before)
        written = [message for message in self._messages or () if message["role"] == "assistant"]
        self.turns = len(written) or len(self.states)
        return self._told(answer_message(len(self.states) - 1, step, self._shown)["content"])

    def _told(self, text: str) -> str:
        return without_control_tokens(self._tokenizer, text)


for _name in FUNCTIONS:
    setattr(OrionEnvironment, _name, tool_method(_name))


class EpisodeLoop:
    """To stand before TRL's ``GRPOTrainer`` in a class: turns are read whole, nothing follows the end."""

    def _tool_call_loop(self, prompts, prompt_ids, completion_ids, completions, *rest):
        for environment, messages in zip(self.environments, completions, strict=True):
            environment._follow(messages)
        result = super()._tool_call_loop(prompts, prompt_ids, completion_ids, completions, *rest)
        masks, completions, completion_ids, logprobs = result[:4]
        for i, environment in enumerate(self.environments):
            _take_lost_turn(environment, completions[i])
            end = _end(masks[i], environment.turns) if environment.episode.done else None
            for tokens in (masks, completion_ids, logprobs):
                if tokens is not None:
                    tokens[i] = tokens[i][:end]
        return result


def _take_lost_turn(environment: OrionEnvironment, messages: list[Message]) -> None:
    """The turn without a call that ended an episode for TRL is a step of it, a lost one."""
    turn = messages[-1]
    if not environment.episode.done and turn["role"] == "assistant" and not turn.get("tool_calls"):
        environment._act(read_turn(_reply(turn)))


def _end(mask: list[int], turn: int) -> int | None:
    """How many tokens there are up to the end of a turn, counted from 1; ``mask`` is 1 for turns' tokens."""
    count = turns = 0
    for written, run in groupby(mask):
        count += len(list(run))
        turns += written
        if turns == turn:
            return count
    return None


def _reply(turn: Message) -> Reply:
    """A turn as TRL has read it."""
    thought = turn.get("reasoning_content")
    text = (f"<think>{thought}</think>" if thought is not None else "") + turn["content"]
    functions = [call["function"] for call in turn.get("tool_calls") or ()]
    calls = [
        ToolCall(id=f"call_{i}", name=f["name"], arguments=json.dumps(f["arguments"], ensure_ascii=False))
        for i, f in enumerate(functions)
    ]
    return Reply(text=text, tool_calls=tuple(calls))
