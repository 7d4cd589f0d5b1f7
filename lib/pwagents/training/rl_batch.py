"""One step's episodes: play them, pay them, sum them up, make tensors of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pwagents.evaluation.metrics import grade
from pwagents.schema import Task
from pwagents.training.advantages import loss_mask
from pwagents.training.rollout import Rollout, StepRewards, count_asks

if TYPE_CHECKING:
    import torch

# (model, tasks, seed) -> one rollout a task, in their order; a task may come several times
Play = Callable[[Any, Sequence[Task], int], list[Rollout]]
# model -> what to log of it, such as accuracy on held-out tasks
Evaluate = Callable[[Any], dict[str, float]]


@dataclass(frozen=True)
class Played:
    """The episodes of one step, what each of their steps earned, and the means of what that consists of."""

    rollouts: list[Rollout]
    rewards: list[list[float]]
    parts: dict[str, float]
    seconds: float


def play_batch(model: Any, tasks: Sequence[Task], play: Play, rewards: StepRewards, seed: int) -> Played:
    """Play one episode of each task.

    Args:
        rewards: may have a method ``many([(states, trajectory), ...])``, which pays all episodes at once,
            and ``parts(trajectory, its step rewards)``, which tells what an episode's reward consists of by
            name.

    Raises:
        ValueError: a rollout or its rewards contradict themselves; the message names the task.
    """
    start = time.perf_counter()
    rollouts = play(model, tasks, seed)
    if len(rollouts) != len(tasks):
        raise ValueError(f"play() gave {len(rollouts)} rollouts for {len(tasks)} tasks; expected one each")
    earned = _pay(rollouts, rewards)
    for rollout, steps in zip(rollouts, earned, strict=True):
        _check(rollout, steps)
    return Played(rollouts, earned, _mean_parts(rollouts, earned, rewards), time.perf_counter() - start)


def _pay(rollouts: Sequence[Rollout], rewards: StepRewards) -> list[list[float]]:
    """R_t of each step of each episode; all at once where ``rewards`` can do that."""
    episodes = [(rollout.states, rollout.trajectory) for rollout in rollouts]
    if hasattr(rewards, "many"):
        return rewards.many(episodes)
    return [rewards(*episode) for episode in episodes]


def _mean_parts(
    rollouts: Sequence[Rollout], earned: Sequence[Sequence[float]], rewards: StepRewards
) -> dict[str, float]:
    """Means of what episodes' rewards consist of, where ``rewards`` can tell."""
    if not hasattr(rewards, "parts"):
        return {}
    parts = [rewards.parts(r.trajectory, steps) for r, steps in zip(rollouts, earned, strict=True)]
    return {f"reward_{name}": float(np.mean([part[name] for part in parts])) for name in parts[0]}


def _check(rollout: Rollout, rewards: Sequence[float]) -> None:
    where, n = f"the rollout of task {rollout.trajectory.task_id}", len(rollout.completion_ids)
    for name in ("mask", "logprobs", "turns"):
        if len(getattr(rollout, name)) != n:
            raise ValueError(f"{where} has {n} completion tokens, but {len(getattr(rollout, name))} {name}")
    steps = len(rollout.trajectory.steps)
    if len(rewards) != steps:
        raise ValueError(f"{where} has {steps} steps, but {len(rewards)} rewards")
    sampled = {turn for m, turn in zip(rollout.mask, rollout.turns, strict=True) if m}
    missing = [t for t in range(steps) if t not in sampled]
    if not steps or missing or not rollout.prompt_ids:
        raise ValueError(f"{where}: every episode needs a prompt and a step, every step a sampled token")
    if not np.isfinite(rewards).all():
        raise ValueError(f"{where} was paid {rewards}; expected finite numbers")


def summarize(played: Played) -> dict[str, float]:
    """Means over the episodes, for the log.

    ``reward`` of an episode, its spread ``reward_std``, its parts ``reward_<name>``; the metrics of
    :func:`grade`, steps as ``turns``; ``asks``, valid calls of ``respond``; ``tokens``, those sampled;
    ``rollout_seconds`` of all together.
    """
    grades = [grade(rollout.trajectory) for rollout in played.rollouts]
    returns = [sum(steps) for steps in played.rewards]
    means = {
        name: float(np.mean([getattr(g, name) for g in grades]))
        for name in ("function_accuracy", "step_accuracy", "result_official", "result_final")
    }
    asks = [count_asks(rollout.trajectory) for rollout in played.rollouts]
    return {
        "reward": float(np.mean(returns)),
        "reward_std": float(np.std(returns)),
        **played.parts,
        **means,
        "turns": float(np.mean([len(rollout.trajectory.steps) for rollout in played.rollouts])),
        "asks": float(np.mean(asks)),
        "tokens": float(np.mean([sum(rollout.mask) for rollout in played.rollouts])),
        "rollout_seconds": played.seconds,
    }


class Tokens(NamedTuple):
    """Whole episodes as tensors, padded on the right.

    Attributes:
        ids: (episodes, tokens), prompt and completion.
        scored: (episodes, tokens), true for tokens to learn from.
        old: (scored tokens,) log-probabilities at which they were sampled, episode after episode.
    """

    ids: "torch.Tensor"
    scored: "torch.Tensor"
    old: "torch.Tensor"


def pad_rollouts(rollouts: Sequence[Rollout], device: Any) -> Tokens:
    """The rollouts as tensors. What pads them is never seen: no token looks to its right."""
    import torch

    width = max(len(r.prompt_ids) + len(r.completion_ids) for r in rollouts)
    ids = torch.zeros(len(rollouts), width, dtype=torch.long)
    scored = torch.zeros(len(rollouts), width, dtype=torch.bool)
    old: list[float] = []
    for i, rollout in enumerate(rollouts):
        start, learned = len(rollout.prompt_ids), loss_mask(rollout)
        end = start + len(learned)
        ids[i, :end] = torch.tensor([*rollout.prompt_ids, *rollout.completion_ids])
        scored[i, start:end] = torch.tensor(learned, dtype=torch.bool)
        old += [p for p, m in zip(rollout.logprobs, learned, strict=True) if m]
    return Tokens(ids.to(device), scored.to(device), torch.tensor(old).to(device))
