"""Policies and other agents on Orion's test tasks: one stored record an episode.

A policy's episodes are computed many at once by :mod:`pwagents.orion.play`, a batch when its first missing
episode is asked for; all other agents play one by one. What is stored is one record an episode either way, so
that a run may be killed and taken up again.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pwagents.code import hash_of
from pwagents.errors import NotEvaluableError
from pwagents.llm.local_model import LocalModel
from pwagents.orion.play import CODE, play_rollouts
from pwagents.orion.study import Study
from pwagents.rl.rollout import StartEpisode
from pwagents.schema import Task, Trajectory
from pwagents.seeds import derive_seed
from pwagents.settings import Decoding, plain
from pwagents.shop.environment import Agent
from pwagents.store import Episode, episodes

POLICY = "model"  # in the folder of a run of reinforcement learning: the trained policy


class OrionRuns:
    """Plays the test tasks of a study into ``runs/orion.jsonl``; several notebooks share this file.

    Args:
        tasks: which are played; none: the study's test tasks.
        start: how episodes begin, where it is not as the study has it.
        variant: JSON values that say so, for keys.
        file: of the episodes, in the output folder.
    """

    def __init__(
        self,
        study: Study,
        tasks: Sequence[Task] | None = None,
        start: StartEpisode | None = None,
        variant: Mapping[str, Any] | None = None,
        file: str = "runs/orion.jsonl",
    ):
        self.study, self.tasks = study, study.test_tasks if tasks is None else tasks
        self.start, self.variant = start or study.start, dict(variant or {})
        self.store = study.output_dir / file

    def policy(self, method: str, folder: Path, sampled: bool = False) -> list[Episode]:
        """Let the model in ``folder`` play each task once.

        Args:
            method: the row's name in tables.
            folder: of a model, or of a run of reinforcement learning, which holds one.
            sampled: at the temperatures of the settings, not greedily.

        Raises:
            DataError, InfrastructureError: see :func:`pwagents.store.episodes`.
        """
        decoding = self.study.settings.decoding
        decoding, model = decoding if sampled else decoding.greedy, LocalModel(policy_folder(folder))
        solve = _in_batches(self.tasks, self.start, decoding, self.study.seed, model)
        facts = {name: value for name, value in plain(decoding).items() if name != "workers"}
        # Which tasks stand beside each other decides what is sampled.
        ids = hash_of([task.task_id for task in self.tasks])
        return self._play(method, solve, {"decoding": facts, "tasks": ids}, model=model.name, here=True)

    def agent(
        self,
        method: str,
        agent_of: Callable[[Task], Agent],
        facts: Mapping[str, Any],
        code: Sequence[str] = (),
    ) -> list[Episode]:
        """Let another agent play each task once.

        Args:
            agent_of: task -> who plays it. Only an oracle looks at the task.
            facts: JSON values that, with ``method``, say all that decides what the agent does.
            code: modules that decide it, beside those of the episode.
        """

        def solve(task: Task) -> Trajectory:
            return self.start(task).play(agent_of(task))

        return self._play(method, solve, facts, code, workers=self.study.settings.players.workers)

    def _play(
        self,
        method: str,
        solve: Callable[[Task], Trajectory],
        facts: Mapping[str, Any],
        code: Sequence[str] = (),
        **options: Any,
    ) -> list[Episode]:
        modules = (*CODE, "orion.experiment", "orion.variations", *code)
        params = {**self.study.facts, "variant": self.variant, **facts, "code": modules}
        options |= {"method": method, "stored_only": self.study.settings.stored_runs_only}
        options["served"] = self.study.model.served
        return episodes(self.store, self.tasks, solve, params, **options)


def policy_folder(folder: Path) -> Path:
    """Return the model's folder: itself, or that in a run of reinforcement learning."""
    return folder / POLICY if (folder / POLICY).exists() else folder


def _in_batches(
    tasks: Sequence[Task], start: StartEpisode, decoding: Decoding, seed: int, model: LocalModel
) -> Callable[[Task], Trajectory]:
    """Make what plays a task with others, a batch when the first of it is asked for.

    Batches do not depend on what is stored already, so that chance does not either. Where a task cannot be
    scored, a NotEvaluableError is raised. Where an endpoint fails, the next task plays the batch again.
    """
    size = decoding.batch_size
    numbers = {task.task_id: i // size for i, task in enumerate(tasks)}  # of their batches

    def play(together: Sequence[Task], chance: int) -> dict[str, Trajectory]:
        """Play tasks together; when one of them cannot be scored, halves of them, until it stands alone."""
        loaded, half = model.loaded, len(together) // 2
        try:
            rollouts = play_rollouts(loaded.model, loaded.tokenizer, together, start, decoding, chance)
        except NotEvaluableError:
            return play(together[:half], chance) | play(together[half:], chance) if half else {}
        return {rollout.trajectory.task_id: rollout.trajectory for rollout in rollouts}

    @lru_cache(maxsize=1)
    def play_batch(number: int) -> dict[str, Trajectory]:
        """Play those that stand beside each other, whichever of them are stored."""
        return play(tasks[number * size :][:size], derive_seed(seed, "evaluation", str(number)))

    def solve(task: Task) -> Trajectory:
        played = play_batch(numbers[task.task_id])
        if task.task_id not in played:
            start(task)  # which may say why
            raise NotEvaluableError(f"task {task.task_id}: a model behind a role refuses to answer")
        return played[task.task_id]

    return solve
