"""One step's episodes: play them, pay them, sum them up.

A :class:`Rollout` is what one played episode is to a trainer: tokens in, tokens out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pwagents.schema import Task, Trajectory
from pwagents.shop.environment import BeliefState, Environment
from pwagents.shop.score import grade

# task -> an environment in which it has begun
StartEpisode = Callable[[Task], Environment]
Episode = tuple[Sequence[BeliefState], Trajectory]  # the belief states before its steps, and these


class Game(Protocol):
    """What a policy is trained on. It crosses into other processes where several GPUs train.

    Attributes:
        tasks: to train on.
    """

    tasks: Sequence[Task]

    def play(self, model: Any, tokenizer: Any, tasks: Sequence[Task], seed: int) -> "list[Rollout]":
        """Play one episode of each task, in their order; a task may come several times in a row.

        Chance must come from the seed alone.
        """

    def rewards(self, episodes: Sequence[Episode]) -> dict[str, list[list[float]]]:
        """Return the parts of the reward by name, each R_t of each step of each episode; they add up.

        ``task`` is what success is paid: above 0 where an episode succeeded.
        """

    def evaluate(self, model: Any, tokenizer: Any) -> dict[str, float]:
        """Return what to log of a policy on held-out tasks."""


@dataclass
class Rollout:
    """One episode as the policy's tokens: what was sampled is never decoded and tokenised again.

    The lists from the second to ``turns`` have one entry a completion token. The completion is the whole
    conversation after the prompt: the policy's turns (up to and with the token that ends each) and what came
    back in between. It grows as the episode is played.

    Attributes:
        prompt_ids: rules, task and P_ctx,0.
        completion_ids: the rest.
        mask: 1 for tokens that the policy sampled, 0 for what came back (tool, profile and user text).
        logprobs: of the sampled tokens at the sampling temperature; 0.0 elsewhere.
        turns: the number of the step that a token belongs to; an answer belongs to the step it answers.
        states: the belief state before each step.
        trajectory: the steps; None until the episode is over.
        temperature: at which the policy's turns were sampled.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    states: list[BeliefState] = field(default_factory=list)
    trajectory: Trajectory | None = None
    temperature: float = 1.0

    def __len__(self) -> int:
        """Count the tokens so far, prompt and completion."""
        return len(self.prompt_ids) + len(self.completion_ids)

    def add(self, ids: list[int], logprobs: list[float] | None = None) -> None:
        """Take down tokens of the step under way: sampled, with log-probabilities, or what came back."""
        self.completion_ids += ids
        self.mask += [int(logprobs is not None)] * len(ids)
        self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs
        self.turns += [len(self.states) - 1] * len(ids)


def loss_mask(rollout: Rollout) -> list[int]:
    """Return 1 for completion tokens to learn from: sampled by the policy, at a step up to and with ``stop``.

    Who plays may let the policy write on after that; no environment answers it then, so nothing of it is
    right or wrong.
    """
    steps = rollout.trajectory.steps
    stops = (t for t, step in enumerate(steps) if step.action.name == "stop" and not step.error)
    last = next(stops, len(steps) - 1)
    return [int(m and turn <= last) for m, turn in zip(rollout.mask, rollout.turns, strict=True)]


def count_asks(trajectory: Trajectory) -> int:
    """Count how often the agent asked the user something: valid calls of ``respond``."""
    return sum(step.is_talk for step in trajectory.steps)


@dataclass(frozen=True)
class Played:
    """The episodes of one step, and what they earned.

    Attributes:
        rewards: of each episode, R_t of each step.
        parts: name of a part of the reward -> what each episode earned of it.
    """

    rollouts: list[Rollout]
    rewards: list[list[float]]
    parts: dict[str, list[float]]

    def __getitem__(self, rows: slice) -> "Played":
        """Return some of the episodes."""
        parts = {name: values[rows] for name, values in self.parts.items()}
        return Played(self.rollouts[rows], self.rewards[rows], parts)


def play_batch(game: Game, model: Any, tokenizer: Any, tasks: Sequence[Task], seed: int) -> Played:
    """Play one episode of each task, and pay them.

    Raises:
        ValueError: a rollout or its rewards contradict themselves; the message names the task.
    """
    rollouts = game.play(model, tokenizer, tasks, seed)
    if len(rollouts) != len(tasks):
        raise ValueError(f"play() gave {len(rollouts)} rollouts for {len(tasks)} tasks; expected one each")
    paid = game.rewards([(rollout.states, rollout.trajectory) for rollout in rollouts])
    parts = {name: [sum(steps) for steps in episodes] for name, episodes in paid.items()}
    earned = []
    for rollout, *of_parts in zip(rollouts, *paid.values(), strict=True):
        own = [sum(of_step) for of_step in zip(*of_parts, strict=True)]
        earned.append(own)

        # Whoever plays and pays, a wrong length would teach other tokens than those that earned.
        where, n = f"the rollout of task {rollout.trajectory.task_id}", len(rollout.completion_ids)
        for name in ("mask", "logprobs", "turns"):
            if (others := len(getattr(rollout, name))) != n:
                raise ValueError(f"{where} has {n} completion tokens, but {others} {name}")
        steps = len(rollout.trajectory.steps)
        if len(own) != steps:
            raise ValueError(f"{where} has {steps} steps, but {len(own)} rewards")
        sampled = {turn for m, turn in zip(rollout.mask, rollout.turns, strict=True) if m}
        if not steps or not sampled.issuperset(range(steps)) or not rollout.prompt_ids:
            raise ValueError(f"{where}: every episode needs a prompt and a step, every step a sampled token")
        if not np.isfinite(own).all():
            raise ValueError(f"{where} has the rewards {own}; expected finite numbers")
    return Played(rollouts, earned, parts)


def summarize(played: Played) -> dict[str, float]:
    """Return means over the episodes, for the log.

    ``reward`` of an episode, its spread ``reward_std``, its parts ``reward_<name>``; the metrics of
    :func:`grade`, steps as ``turns``; ``asks``, valid calls of ``respond``; ``tokens``, those sampled.
    """
    trajectories = [rollout.trajectory for rollout in played.rollouts]
    returns, grades = [sum(steps) for steps in played.rewards], list(map(grade, trajectories))
    columns = {f"reward_{name}": values for name, values in played.parts.items()}
    for name in ("function_accuracy", "step_accuracy", "result_official", "result_final"):
        columns[name] = [getattr(each, name) for each in grades]
    columns["turns"] = [len(trajectory.steps) for trajectory in trajectories]
    columns["asks"] = list(map(count_asks, trajectories))
    columns["tokens"] = [sum(rollout.mask) for rollout in played.rollouts]
    means = {name: float(np.mean(values)) for name, values in columns.items()}
    return {"reward": float(np.mean(returns)), "reward_std": float(np.std(returns))} | means
