"""Policies and other agents on Orion's test tasks: one stored record an episode.

A policy's episodes are computed many at once by :mod:`pwagents_old.orion.play`, a batch when its first missing
episode is asked for; all other agents play one by one. What is stored is one record an episode either way, so
that a run may be killed and taken up again.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.errors import NotEvaluableError
from pwagents.progress import progress
from pwagents.schema import FUNCTION_OF, Task, Trajectory
from pwagents.seeds import derive_seed
from pwagents.settings import plain
from pwagents.shop.environment import Agent
from pwagents.store import Episode, episodes
from pwagents.results.episodes import records_frame
from pwagents.llm.local_model import LocalModel
from pwagents_old.orion.agent import belief_states
from pwagents_old.orion.play import play_rollouts
from pwagents_old.orion.reward import Rewards
from pwagents_old.orion.settings import Decoding
from pwagents_old.orion.study import Study
from pwagents_old.project import code_hash
from pwagents_old.rl.rollout import StartEpisode, count_asks

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
        """Episodes of the model in ``folder``, one a task.

        Args:
            method: the row's name in tables.
            folder: of a model, or of a run of reinforcement learning, which holds one.
            sampled: at the temperatures of the settings, not greedily.

        Raises:
            DataError, InfrastructureError: see :func:`episodes`.
        """
        decoding = self.study.settings.decoding
        decoding, model = decoding if sampled else decoding.greedy, LocalModel(self.folder(folder))
        solve = _in_batches(self.tasks, self.start, decoding, self.study.seed, model)
        facts = {name: value for name, value in plain(decoding).items() if name != "workers"}
        # Which tasks stand beside each other decides what is sampled.
        ids = hashlib.sha256(" ".join(task.task_id for task in self.tasks).encode()).hexdigest()[:16]
        params = {"decoding": facts, "decoder": code_hash("lm"), "tasks": ids}
        return self._run(method, solve, model.name, params, workers=1, here=True)

    def agent(
        self, method: str, agent_of: Callable[[Task], Agent], facts: Mapping[str, Any]
    ) -> list[Episode]:
        """Episodes of another agent, one a task.

        Args:
            agent_of: task -> who plays it. Only an oracle looks at the task.
            facts: JSON values that, with ``method``, say all that decides what the agent does.
        """

        def solve(task: Task) -> Trajectory:
            episode, act = self.start(task), agent_of(task)
            while episode.end is None:
                episode.step(act(episode.state))
            return episode.trajectory

        return self._run(method, solve, "none", facts, self.study.settings.players.workers)

    def frame(self, *records: Sequence[Episode]) -> pd.DataFrame:
        """:func:`records_frame` of one or several runs, with three columns more.

        ``asks`` is how often each episode asked the user, ``query`` its last search, and ``return`` what
        training pays for: success, alignment by the study's judge, and questions.
        """
        all_records = [record for run in records for record in run]
        tasks = {task.task_id: task for task in self.tasks}
        scored = [record for record in all_records if record.trajectory]
        pairs = [
            (belief_states(self.start(tasks[r.task_id]).state, r.trajectory)[:-1], r.trajectory)
            for r in progress(scored, "belief states")
        ]
        parts = Rewards(self.study.judge, self.study.settings.earned)(pairs).values()
        earned = zip(scored, zip(*parts, strict=True), strict=True)
        returns = {id(record): sum(map(sum, own)) for record, own in earned}
        return records_frame(all_records).assign(
            asks=[float(count_asks(r.trajectory)) if r.trajectory else float("nan") for r in all_records],
            query=[last_query(r.trajectory) for r in all_records],
            **{"return": [returns.get(id(r), float("nan")) for r in all_records]},
        )

    @staticmethod
    def folder(folder: Path) -> Path:
        """The model's folder: itself, or that in a run of reinforcement learning."""
        return folder / POLICY if (folder / POLICY).exists() else folder

    def _run(
        self,
        method: str,
        solve: Callable[[Task], Trajectory],
        model: str,
        facts: Mapping[str, Any],
        workers: int,
        here: bool = False,
    ) -> list[Episode]:
        params = {**self.study.facts, "variant": self.variant, **facts}
        options = {"method": method, "model": model, "workers": workers, "here": here}
        options |= {"stored_only": self.study.settings.stored_runs_only}
        records = episodes(self.store, self.tasks, solve, params, **options)
        return records


def last_query(trajectory: Trajectory | None) -> str:
    """The query of an episode's last well-formed search; empty where there is none."""
    steps = reversed(trajectory.steps if trajectory else ())
    searches = (step for step in steps if step.action.name == FUNCTION_OF["search"] and not step.error)
    return next((step.action.arguments["query"] for step in searches), "")


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
