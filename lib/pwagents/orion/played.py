"""What is kept of an episode of the role-play."""

from dataclasses import replace
from typing import Literal

from pwagents.evaluation.episodes import Keyed
from pwagents.profiles.types import ContextualProfile
from pwagents.schema import Benchmark, Split, Task, Trajectory
from pwagents.web.environment import BeliefState, Context

# Why a trajectory is not kept, in the order in which it is looked for; empty: it is kept.
Failure = Literal[
    "", "not evaluable", "malformed", "leak by the user", "leak by the teacher", "too long", "no success"
]


class Played(Keyed):
    """One episode of the role-play.

    Args:
        key: of the settings it was played with, the same for all episodes of a role-play.
        task_id, round: which task, and in which of the rounds over the tasks.
        failure: why it is not kept; empty where it is.
        observation: the environment's first words.
        bought: the ids of the interest that the instruction calls for.
        profiles: P_ctx,t before each step, and at the end.
        trajectory: the steps; None where the task cannot be evaluated.
    """

    task_id: str
    round: int
    failure: Failure
    observation: str = ""
    bought: tuple[str, ...] = ()
    profiles: tuple[ContextualProfile, ...] = ()
    trajectory: Trajectory | None = None

    def states(self, benchmark: Benchmark, task: Task, split: Split = "train") -> list[BeliefState]:
        """S_t before each step and at the end, as they were when it was played.

        Args:
            task: the one it was played on, of ``split``.

        Raises:
            ValueError: it was played on another task.
        """
        if task.task_id != self.task_id or self.trajectory is None:
            raise ValueError(f"an episode of task {self.task_id} has no belief states of task {task.task_id}")
        first = BeliefState(
            user_id=task.user_id,
            instruction=task.instruction,
            observation=self.observation,
            product=benchmark.products[task.target] if task.type == "review" else None,
            history=benchmark.history(task, split),
            context=Context(self.profiles[0], self.bought),
        )
        steps = self.trajectory.steps
        return [replace(first, session=steps[:i], profile=p) for i, p in enumerate(self.profiles)]
