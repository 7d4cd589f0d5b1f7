"""Orion's episodes as what a policy is trained on by rewards (Orion, Algorithm 1)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from pwagents.data.splits import sample_tasks
from pwagents.errors import NotEvaluableError
from pwagents.orion.judge import judge_of
from pwagents.orion.play import play_rollouts
from pwagents.orion.reward import Rewards
from pwagents.orion.study import Study, make_study
from pwagents.profiles.contextual import Update
from pwagents.rl.rollout import Episode, Rollout, play_batch, summarize
from pwagents.schema import Task
from pwagents.settings import OrionSettings, RewardSettings
from pwagents.shop.environment import Environment, UserReply

R = TypeVar("R")


@dataclass(frozen=True)
class OrionGame:
    """A :class:`pwagents.rl.rollout.Game` of a study's train tasks.

    An episode goes on where a model behind a role refuses: the user then says "...", the profile stays.

    Args:
        settings: what the study is made of, in each process that trains.
        reward: what the training pays.
        log_tasks: tasks of validation users, drawn at random, that the evaluations of the log are on; 0: all.
        temperature: at which turns are sampled, but those of reviews and for ``greedy``.
    """

    settings: OrionSettings
    reward: RewardSettings
    log_tasks: int
    temperature: float
    greedy: bool = False

    @cached_property
    def study(self) -> Study:
        """Return the study, which each process makes for itself."""
        return make_study(self.settings)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "study"}

    @property
    def tasks(self) -> Sequence[Task]:
        """Return the tasks to train on."""
        return self.study.train_tasks

    def play(self, model: Any, tokenizer: Any, tasks: Sequence[Task], seed: int) -> list[Rollout]:
        """Play one episode of each task."""
        decoding = self.settings.decoding.changed(temperature=0.0 if self.greedy else self.temperature)
        return play_rollouts(model, tokenizer, tasks, self.start, decoding, seed)

    def rewards(self, episodes: Sequence[Episode]) -> dict[str, list[list[float]]]:
        """Pay episodes (:class:`pwagents.orion.reward.Rewards`)."""
        return Rewards(judge_of(self.study), self.reward)(episodes)

    def evaluate(self, model: Any, tokenizer: Any) -> dict[str, float]:
        """Play validation tasks greedily, and return the means of what the log tells of them.

        ``error`` is the standard error of ``return``, clustered by user; ``return_KIND`` those of each kind.
        """
        tested = sample_tasks(self.study.validation_tasks, self.log_tasks, self.study.seed)
        played = play_batch(replace(self, greedy=True), model, tokenizer, tested, seed=0)
        means, returns = summarize(played), np.array([sum(steps) for steps in played.rewards])
        measured, missed = {"return": returns.mean()}, Counter[str]()
        for task, value in zip(tested, returns - returns.mean(), strict=True):
            missed[task.user_id] += value
        n = len(missed)
        squares = sum(value**2 for value in missed.values()) * n / max(n - 1, 1)
        measured["error"] = squares**0.5 / len(tested)
        for kind in dict.fromkeys(task.type for task in tested):
            own = [task.type == kind for task in tested]
            measured[f"return_{kind}"] = returns[own].mean()
        return measured | {k: means[k] for k in ("result_final", "function_accuracy", "turns", "asks")}

    def start(self, task: Task) -> Environment:
        """Begin an episode."""
        episode = self.study.start(task)
        episode.user = episode.user and _answering(episode.user, lambda *_: UserReply("..."))
        episode.update = episode.update and _answering(episode.update, lambda profile, *_: Update(profile))
        return episode


def _answering(role: Callable[..., R], otherwise: Callable[..., R]) -> Callable[..., R]:
    """Return the role; what it refuses, ``otherwise`` answers."""

    def answer(*given: Any) -> R:
        try:
            return role(*given)
        except NotEvaluableError:
            return otherwise(*given)

    return answer
