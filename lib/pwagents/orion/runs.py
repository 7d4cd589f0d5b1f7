"""Policies and other agents on Orion's test tasks: one stored record an episode, played in batches.

A policy's episodes are computed many at once by :mod:`pwagents.orion.play`, a batch when its first
missing episode is asked for; what is stored is the same as one by one. All other agents play one by one.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.errors import NotEvaluableError
from pwagents.evaluation.records import EpisodeRecord
from pwagents.evaluation.runner import records_frame, run_episodes
from pwagents.llm.local_model import Loaded, LocalModel, load
from pwagents.orion.play import Decoding, play_rollouts
from pwagents.orion.study import Study
from pwagents.project import code_hash
from pwagents.rl.rollout import StartEpisode, count_asks
from pwagents.schema import Task, Trajectory
from pwagents.seeds import derive_seed
from pwagents.web.episode import Agent

if TYPE_CHECKING:
    import pandas as pd

DECODER = (
    "lm/decode",
    "lm/tokens",
    "orion/play",
    "orion/play",
    "lm/decode",
)


@dataclass(frozen=True)
class OrionRuns:
    """Plays test tasks and stores what comes of it.

    Args:
        store: the file of episode records; several notebooks may share it.
        decoding: how policies' turns are sampled; the temperature is each run's own.
        tasks: other tasks than the study's test tasks.
        start, variant: how episodes begin, where it is not as the study has it, and JSON values that say so.
        stored_only: play nothing; what is missing is an error.
    """

    study: Study
    store: Path
    decoding: Decoding
    tasks: Sequence[Task] = ()
    start: StartEpisode | None = None
    variant: Mapping[str, Any] | None = None
    stored_only: bool = False

    def policy(
        self, method: str, folder: Path, temperature: float = 0.0, review_temperature: float | None = None
    ) -> list[EpisodeRecord]:
        """Episodes of the model in ``folder``, one a task; at temperature 0 it is greedy.

        Args:
            method: the row's name in tables.
            review_temperature: of review tasks; None: the same.
        """
        hot = {"temperature": temperature, "review_temperature": review_temperature}
        decoding = replace(self.decoding, **hot)
        batches = _Batches(self._tasks, self._start, decoding, self.study.seed, Path(folder))
        facts = {name: value for name, value in asdict(decoding).items() if name != "workers"}
        # Which tasks stand beside each other decides what is sampled.
        ids = hashlib.sha256(" ".join(task.task_id for task in self._tasks).encode()).hexdigest()[:16]
        params = {"decoding": facts, "decoder": code_hash(*DECODER), "tasks": ids}
        return self._run(method, batches.solve, LocalModel(folder).name, params, workers=1)

    def agent(
        self, method: str, agent_of: Callable[[Task], Agent], facts: Mapping[str, Any]
    ) -> list[EpisodeRecord]:
        """Episodes of another agent, one a task.

        Args:
            agent_of: task -> who plays it. Only an oracle looks at the task.
            facts: JSON values that, with ``method``, say all that decides what the agent does.
        """

        def solve(task: Task) -> Trajectory:
            episode, act = self._start(task), agent_of(task)
            while not episode.done:
                episode.advance(act(episode.state))
            return episode.trajectory

        return self._run(method, solve, "none", facts, self.study.roles.get("workers", 1))

    def _run(
        self,
        method: str,
        solve: Callable[[Task], Trajectory],
        model: str,
        facts: Mapping[str, Any],
        workers: int,
    ) -> list[EpisodeRecord]:
        return run_episodes(
            self._tasks,
            solve,
            self.store,
            method=method,
            model=model,
            params={**self.study.facts, "variant": dict(self.variant or {}), **facts},
            workers=workers,
            stored_runs_only=self.stored_only,
        )

    @property
    def _tasks(self) -> Sequence[Task]:
        return self.tasks or self.study.test_tasks

    @property
    def _start(self) -> StartEpisode:
        return self.start or self.study.start


def episodes_frame(records: Sequence[EpisodeRecord]) -> "pd.DataFrame":
    """:func:`records_frame` with ``asks``: how often each episode asked the user something."""
    asks = [count_asks(record.trajectory) if record.trajectory else float("nan") for record in records]
    return records_frame(records).assign(asks=asks).astype({"asks": float})


@dataclass(frozen=True)
class _Batches:
    """Plays tasks in batches that do not depend on what is stored already, so that chance does not either."""

    tasks: Sequence[Task]
    start: StartEpisode
    decoding: Decoding
    seed: int
    folder: Path

    def solve(self, task: Task) -> Trajectory:
        """The episode of one task; its batch is played when the first of it is asked for.

        Raises:
            NotEvaluableError: the task cannot be scored.
        """
        if task.task_id not in self._played:
            self._played.clear()
            self._played.update(self._batch_of(task))
        trajectory = self._played[task.task_id]
        if trajectory is None:
            self.start(task)  # which may say why
            raise NotEvaluableError(f"task {task.task_id}: a model behind a role refuses to answer")
        return trajectory

    def _batch_of(self, task: Task) -> dict[str, Trajectory | None]:
        """The episodes of a task and of those beside it; None for those that cannot be scored."""
        size = self.decoding.batch_size
        number = next(i for i, other in enumerate(self.tasks) if other.task_id == task.task_id) // size
        batch = self.tasks[number * size :][:size]
        played = self._play(batch, derive_seed(self.seed, "evaluation", str(number)))
        return {each.task_id: None for each in batch} | played

    def _play(self, tasks: Sequence[Task], seed: int) -> dict[str, Trajectory]:
        """Play tasks together; when one of them cannot be scored, halves of them, until it stands alone."""
        model, tokenizer = self._loaded.model, self._loaded.tokenizer
        try:
            rollouts = play_rollouts(model, tokenizer, tasks, self.start, self.decoding, seed)
        except NotEvaluableError:
            half = len(tasks) // 2
            return self._play(tasks[:half], seed) | self._play(tasks[half:], seed) if half else {}
        return {rollout.trajectory.task_id: rollout.trajectory for rollout in rollouts}

    @cached_property
    def _played(self) -> dict[str, Trajectory | None]:
        return {}

    @cached_property
    def _loaded(self) -> Loaded:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # of reading weights
        return load(self.folder, LocalModel(self.folder).name)
