"""Notebook 03's episodes: which tasks are played, in which shop and by whom, and the record of each."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pandas as pd

from pwagents.agents.interec import InteRecAgent, play_interec
from pwagents.agents.methods import AGENTS, PUMA_BY_FILE
from pwagents.data import load_benchmark
from pwagents.data.splits import sample_tasks
from pwagents.files import file_hash
from pwagents.notebook import Run
from pwagents.schema import Behavior, Benchmark, Protocol, Task, Trajectory
from pwagents.settings import BenchmarkNotebook, plain
from pwagents.shop.environment import DETAILS_FUNCTION, Environment, Shop, Track, UserSimulator
from pwagents.store import Episode, episodes
from pwagents_old.benchmark.method_players import Cell, MethodRoles
from pwagents_old.project import code_hash, project_path

# The code that decides an episode of a prompting method.
_PROMPTED = ("agents", "web", "embedding", "schema", "seeds", "users", "llm", "words")
_PROMPTED += ("benchmark/study", "benchmark/method_players")
_code_hash = cache(code_hash)


class Study:
    """Plays methods on the test tasks of a benchmark. Episodes that are stored already are not played again.

    Attributes:
        tasks: the test tasks, or a sample of them.
        sample: those of them that the prompting methods play.
        shop: where they are played.
        roles: by whom.
        facts: what decides every episode, for the keys of records.
    """

    def __init__(self, benchmark: Benchmark, settings: BenchmarkNotebook, run: Run):
        self.benchmark, self.settings, self.folder = benchmark, settings, run.output_dir / "runs"
        self.tasks = sample_tasks(benchmark.tasks["test"], settings.play.max_tasks, settings.seed)
        self.sample = sample_tasks(self.tasks, settings.play.method_tasks, settings.seed)
        self.shop = Shop.open(benchmark, settings.shop, settings.seed, run.cache, settings.data)
        self.roles = MethodRoles(settings, benchmark, self.sample, self.shop.embedder, run)
        self.facts = {"data": benchmark.content_hash, "shop": plain(settings.shop), "seed": settings.seed}

    @classmethod
    def load(cls, settings: BenchmarkNotebook, run: Run) -> "Study":
        """Load the benchmark of some settings, and make its study."""
        benchmark, _ = load_benchmark(settings.data, settings.seed)
        return cls(benchmark, settings, run)

    def __str__(self) -> str:
        """Say what is played, and what the recommenders know, in a line each."""
        users = {task.user_id for task in self.tasks}
        dates = [f"{pd.to_datetime(date, unit='ms'):%Y-%m-%d}" for date in self.shop.recommenders.dates]
        by_file = f"{PUMA_BY_FILE}: left out, as there is no play.functions_file (notebook 04 writes one)"
        if self.roles.functions:
            by_file = f"{PUMA_BY_FILE}: functions of {self.settings.play.functions_file}"
        return (
            f"{len(self.tasks):,} test tasks of {len(users):,} users\n"
            f"{len(dates)} recommender(s), knowing what lies before {', '.join(dates)}\n"
            f"{by_file}"
        )

    def environment(
        self,
        task: Task,
        track: Track = "single_turn",
        *,
        user: UserSimulator | None = None,
        protocol: Protocol = "leak_free",
        history: Sequence[Behavior] | None = None,
    ) -> Environment:
        """Begin an episode; multi-turn, ``user`` answers, by default the settings'.

        Args:
            history: what the agent may know of the user's past, if it differs from the protocol's.
        """
        if track == "multi_turn" and user is None:
            user = self.roles.user(protocol=protocol)
        return Environment(self.shop, task, track, protocol, user, history=history)

    def history(self, task: Task, protocol: Protocol = "leak_free") -> tuple[Behavior, ...]:
        """Return the past behaviours that an agent may see."""
        return self.benchmark.history(task, "test", protocol)

    def params(self, *code: str, **others: Any) -> dict[str, Any]:
        """Return what decides an episode, for the key of its record.

        Args:
            code: rooms of the library that it runs through (:func:`pwagents_old.project.code_hash`).
        """
        return self.facts | {"code": _code_hash(*code)} | others

    def run(
        self,
        tasks: Sequence[Task],
        solve: Callable,
        file: str,
        memory: dict | None = None,
        *,
        params: dict[str, Any],
        **fields: Any,
    ) -> list[Episode]:
        """Play what a file of the study lacks; ``params`` are the facts of :func:`pwagents.store.episodes`."""
        return episodes(
            self.folder / file,
            tasks,
            solve,
            params,
            workers=self.settings.players.workers,
            stored_only=self.settings.stored_runs_only,
            memory=memory,
            **fields,
        )

    def play_all(self, track: Track) -> dict[Cell, dict[str, list[Episode]]]:
        """Play every prompting method of the track on the sample, in every cell."""
        return {
            cell: {method: self.play(method, track, cell=cell) for method in self.roles.methods(track)}
            for cell in self.roles.cells
        }

    def play(
        self, method: str, track: Track, seed: int | None = None, cell: Cell | None = None
    ) -> list[Episode]:
        """Play a method of :data:`TRACKS` on the sample, in its order.

        Args:
            seed: of the method and of the user who answers; the run's where none is given.
            cell: the first of the study's where none is given.

        Raises:
            InfrastructureError: some episode could not be played. All others are stored.
        """
        roles, cell = self.roles, cell or self.roles.cells[0]
        setup, protocol = roles.setup(track, seed, cell, method), cell.protocol
        user = roles.user(seed, protocol) if track == "multi_turn" else None
        memory: dict[str, Any] | None = None
        if AGENTS[method] is InteRecAgent:
            # Its memory goes from task to task, so it makes an agent for each.
            memory, trained = {}, {task.user_id for task in self.benchmark.tasks["train"]}

            def solve(task: Task, profile: dict[str, Any]) -> tuple[Trajectory, dict[str, Any]]:
                environment = Environment(self.shop, task, track, protocol, user)
                first = None
                if protocol == "published" and task.user_id in trained:
                    # What its files call history: all before the first train task.
                    begin = self.benchmark.first_task(task.user_id, "train")
                    first = self.benchmark.before(task.user_id, begin)
                return play_interec(setup, environment, profile, first)
        else:
            agent = AGENTS[method](setup)
            details = DETAILS_FUNCTION in getattr(agent, "functions", ())

            def solve(task: Task) -> Trajectory:
                return Environment(self.shop, task, track, protocol, user, details).play(agent)

        facts = {"track": track, "run_seed": setup.seed, "protocol": protocol, "items": cell.items}
        facts |= self.shop.facts(protocol)
        if setup.identify:
            facts["functions"] = file_hash(project_path(self.settings.play.functions_file))
        facts |= self.settings.players.facts("user") | {"prompts": roles.prompts.origin}
        fields = {"method": method, "model": cell.policy, "params": self.params(*_PROMPTED, **facts)}
        records = self.run(self.sample, solve, f"03_methods_{track}.jsonl", memory, **fields)
        return records
