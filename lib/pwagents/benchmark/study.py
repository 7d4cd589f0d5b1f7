"""Notebook 03's episodes: which tasks are played, in which shop and by whom, and the record of each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pwagents.agents.chat_agent import Setup
from pwagents.agents.interec import InteRecAgent, play_task
from pwagents.agents.memory import Memory, Strategy, embed_behaviors
from pwagents.agents.methods import METHODS, PUMA_BY_FILE, PumaByFile
from pwagents.agents.plain import FunctionClassifier, PlainAgent
from pwagents.benchmark.adversarial import adversarial_cases
from pwagents.benchmark.analyses_03 import PROTOCOLS, Runs, frame_of, merge_equal
from pwagents.benchmark.players import MethodRoles, read_functions
from pwagents.benchmark.references import product_references, review_references
from pwagents.benchmark.settings import BenchmarkNotebook
from pwagents.cache import hash_of
from pwagents.data.settings import DataSettings
from pwagents.embedding import Embedder
from pwagents.evaluation.breakdowns import by_task, sample_tasks
from pwagents.evaluation.episodes import EpisodeRecord, require_played, run_episodes
from pwagents.evaluation.metrics import GRADER
from pwagents.evaluation.paper import PERSONALWAB
from pwagents.notebook.run import Run
from pwagents.project import code_hash, file_hash
from pwagents.schema import Behavior, Benchmark, Protocol, Task, Trajectory
from pwagents.settings import plain
from pwagents.web.environment import Agent, Track, UserSimulator, WebEnvironment, run_episode
from pwagents.web.functions import DETAILS_FUNCTION, Shop
from pwagents.web.official_prompts import official_prompts
from pwagents.web.recommender import RecommendersByTime
from pwagents.web.search import build_search_engine
from pwagents.web.settings import ShopSettings

NO_MEMORY = "Plain, no memory"
# The plain agent with each memory (PersonalWAB, 5.1 and 6), as tables call it.
PLAIN: dict[str, Strategy] = {
    NO_MEMORY: "none",
    "Plain, random memory": "random",
    "Plain, last memory": "last",
    "Plain, relevant memory": "relevant",
    "Plain, task-specific memory": "task_specific",
}
# The prompting methods of each track, in the order of the papers' tables: single-turn those of PersonalWAB's
# Table 3, multi-turn those of its Table 4 and of Orion's Table 1.
_AGENTS = METHODS | {PUMA_BY_FILE: PumaByFile}
TRACKS: dict[Track, tuple[str, ...]] = {
    "single_turn": tuple(name for name in PERSONALWAB if "single_turn" in _AGENTS[name].rules),
    "multi_turn": tuple(dict.fromkeys([*PERSONALWAB, *METHODS])),
}
# The code that decides an episode of the plain agent, and of a prompting method.
_PLAYED = ("agents", "web", "embedding", "schema", "seeds", "benchmark/study")
_PROMPTED = (*_PLAYED, "users", "llm", "words")


class Shops:
    """A shop for each task: search engine and catalogue are shared, recommenders differ.

    Leak-free, a user gets the latest recommender that knows nothing from their first test task on. As
    published, everybody gets the recommender published with PersonalWAB, where its files are there: it was
    trained on the benchmark itself.

    Attributes:
        recommenders: by date, trained on strangers and on the benchmark's train periods.
        published: the shop with the published recommender; None where there is none.
    """

    def __init__(
        self, benchmark: Benchmark, settings: ShopSettings, data: DataSettings, seed: int, cache_dir: Path
    ):
        self.settings = settings
        self.engine = build_search_engine(benchmark.products, settings.search_engine, cache_dir)
        self.embedder = Embedder(cache_dir, max_tokens=512)  # as long as the published scorer reads a review
        self.recommenders = RecommendersByTime.fit(
            benchmark, settings.recommender, seed, settings.rec_dates, cache_dir
        )
        all_knowing = self.recommenders.at(float("inf"))
        latest = Shop(benchmark, self.engine, all_knowing, self.embedder, settings.observation)
        self._of_user = {
            user: replace(latest, recommender=self.recommenders.at(benchmark.first_task(user)))
            for user in {task.user_id for task in benchmark.tasks["test"]}
        }
        from pwagents.web.published import find_published, load_published  # loads torch

        files = find_published(data.folder) if data.source == "personalwab" else None
        self.published, self._hashes = None, []
        if files is not None:
            self.published = replace(latest, recommender=load_published(*files, products=benchmark.products))
            self._hashes = [file_hash(file) for file in files]

    def of(self, task: Task, protocol: Protocol = "leak_free") -> Shop:
        """Return the shop that the task's user visits."""
        return (protocol == "published" and self.published) or self._of_user[task.user_id]

    def recommender_name(self, protocol: Protocol) -> str:
        """Return what tables say of the recommender."""
        if protocol == "leak_free":
            return f"SASRec trained here, {self.settings.recommender.loss} loss"
        return "the published checkpoint" if self.published else "as leak-free (no published checkpoint)"

    def params(self, protocol: Protocol) -> dict[str, Any]:
        """Return what tells runs with a published recommender from others, for the keys of records."""
        return {"published": self._hashes} if self.published and protocol == "published" else {}


class Cell(NamedTuple):
    """One way in which the prompting methods are played.

    Args:
        policy: the name of their model.
        items: that a memory recalls at most; 0 for as many as the paper has.
    """

    policy: str
    protocol: Protocol
    items: int = 0


class Study:
    """Plays methods on the test tasks of a benchmark. Episodes that are stored already are not played again.

    Attributes:
        cells: in which the prompting methods are played; the first is meant where none is named.
        tasks: the test tasks, or a sample of them.
        sample: those of them that the prompting methods play.
        facts: what decides every episode, for the keys of records.
    """

    def __init__(self, benchmark: Benchmark, settings: BenchmarkNotebook, run: Run):
        self.benchmark, self.settings, self.folder = benchmark, settings, run.output_dir / "runs"
        self.prompts = official_prompts(settings.play.official_repo)
        self.tasks = sample_tasks(benchmark.tasks["test"], settings.play.max_tasks, settings.seed)
        self.sample = sample_tasks(self.tasks, settings.play.method_tasks, settings.seed)
        self.shops = Shops(benchmark, settings.shop, settings.data, settings.seed, run.cache_dir)
        # Apart from the one that scores reviews: behaviours are many, and embedded in batches.
        self.memory_embedder = Embedder(run.cache_dir, settings.shop.max_tokens, batch_size=64)
        self.classifier = FunctionClassifier(benchmark.tasks["train"])
        self.roles = MethodRoles(settings.players, benchmark, self.classifier, run.store, self.prompts.texts)
        items = {"leak_free": (0,), "published": settings.play.published_items}
        self.cells = [
            Cell(policy, protocol, most)
            for policy in self.roles.policies
            for protocol in settings.play.protocols
            for most in items[protocol]
        ]
        self.functions = read_functions(settings.play.functions_file, self.sample)
        self._user = cache(self.roles.make_user)  # it remembers what it read of the tasks
        self.facts = {"data": benchmark.content_hash, "shop": plain(settings.shop), "seed": settings.seed}
        self._code = {"plain": code_hash(*_PLAYED), "prompted": code_hash(*_PROMPTED)}

    def __str__(self) -> str:
        """Say what is played, and what the recommenders know, in a line each."""
        users = {task.user_id for task in self.tasks}
        dates = [f"{pd.to_datetime(date, unit='ms'):%Y-%m-%d}" for date in self.shops.recommenders.dates]
        by_file = f"{PUMA_BY_FILE}: left out, as there is no play.functions_file (notebook 04 writes one)"
        if self.functions:
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
    ) -> WebEnvironment:
        """Make an environment for one episode; multi-turn, ``user`` answers, by default the settings'."""
        if track == "multi_turn" and user is None:
            user = self.user(protocol=protocol)
        return WebEnvironment(self.shops.of(task, protocol), track, user)

    def history(self, task: Task, protocol: Protocol = "leak_free") -> tuple[Behavior, ...]:
        """Return the past behaviours that an agent may see."""
        return self.benchmark.history(task, "test", protocol)

    def user(self, seed: int | None = None, protocol: Protocol = "leak_free") -> UserSimulator | None:
        """Return who answers the agent, under the run's seed where none is given.

        As published, nothing is done where a language model in this role gives away what it must not.
        """
        seed = self.settings.seed if seed is None else seed
        return self._user(seed, protocol == "published")

    def methods(self, track: Track) -> tuple[str, ...]:
        """Return the prompting methods that can be played in a track."""
        return tuple(name for name in TRACKS[track] if name != PUMA_BY_FILE or self.functions)

    def describe(self, cell: Cell) -> list[str]:
        """Return what tells a cell from the others, in words; nothing where there is one alone."""
        items = f"{cell.items} items" if cell.items else "the paper's items"
        items = items if cell.protocol == "published" else ""
        words = cell.policy, PROTOCOLS[cell.protocol], items
        differs = [len(set(values)) > 1 for values in zip(*self.cells, strict=True)]
        return [word for word, is_telling in zip(words, differs, strict=True) if word and is_telling]

    def flat(self, played: Mapping[Cell, Runs]) -> dict[str, Sequence[EpisodeRecord]]:
        """Return the runs of all cells as rows: the method, and what tells its cell from others."""
        return {
            ", ".join([method, *self.describe(cell)]): records
            for cell, runs in played.items()
            for method, records in runs.items()
        }

    def agent(self, method: str, setup: Setup, profile: dict[str, Any] | None = None) -> Agent:
        """Make the agent of a method; ``profile`` is what InteRecAgent remembers."""
        return InteRecAgent(setup, profile) if method == "InteRecAgent" else _AGENTS[method](setup)

    def setup(
        self, track: Track, seed: int | None = None, cell: Cell | None = None, method: str = ""
    ) -> Setup:
        """Return what the prompting methods are made from, or one of them."""
        cell = cell or self.cells[0]
        return Setup(
            self.roles.policies[cell.policy],
            self.benchmark.products,
            track,
            # Published agents compare whole records, as long as MiniLM reads.
            embedder=self.shops.embedder if self.prompts.texts else self.memory_embedder,
            length=cell.items or None,
            identify=self.functions.__getitem__ if method == PUMA_BY_FILE and self.functions else None,
            prompts=self.prompts.texts,
            seed=self.settings.seed if seed is None else seed,
        )

    def play_plain(self, protocol: Protocol) -> dict[str, list[EpisodeRecord]]:
        """Play the plain agent with each memory of :data:`PLAIN` on all tasks, single-turn."""
        settings, length, runs = self.settings, self.settings.play.memory_length, {}
        if not settings.stored_runs_only:
            # In one go, so that no episode waits for the model.
            embed_behaviors(self.benchmark, self.memory_embedder, [task.instruction for task in self.tasks])
        for name, strategy in PLAIN.items():
            memory = Memory(strategy, self.benchmark.products, self.memory_embedder, length, settings.seed)
            agent = PlainAgent(self.classifier, memory)

            def solve(task: Task, agent: PlainAgent = agent) -> Trajectory:
                environment = self.environment(task, protocol=protocol)
                return run_episode(environment, task, self.history(task, protocol), agent)

            params = {"track": "single_turn", "protocol": protocol, "memory_length": length}
            runs[name] = run_episodes(
                self.tasks,
                solve,
                self.folder / "03_single_turn.jsonl",
                method=name,
                model="none",
                params=self.facts | {"code": self._code["plain"]} | params | self.shops.params(protocol),
                workers=settings.players.workers,
                stored_runs_only=settings.stored_runs_only,
            )
        return runs

    def play_all(self, track: Track) -> dict[Cell, dict[str, list[EpisodeRecord]]]:
        """Play every prompting method of the track on the sample, in every cell."""
        return {
            cell: {method: self.play(method, track, cell=cell) for method in self.methods(track)}
            for cell in self.cells
        }

    def play(
        self, method: str, track: Track, seed: int | None = None, cell: Cell | None = None
    ) -> list[EpisodeRecord]:
        """Play a method of :data:`TRACKS` on the sample, in its order.

        Args:
            seed: of the method and of the user who answers; the run's where none is given.
            cell: the first of the study's where none is given.

        Raises:
            InfrastructureError: some episode could not be played. All others are stored.
        """
        cell, players = cell or self.cells[0], self.settings.players
        setup, protocol = self.setup(track, seed, cell, method), cell.protocol
        user = self.user(seed, protocol) if track == "multi_turn" else None
        memory: dict[str, Any] | None = None
        if _AGENTS[method] is InteRecAgent:
            # Its memory goes from task to task, so it makes an agent for each.
            memory, trained = {}, {task.user_id for task in self.benchmark.tasks["train"]}

            def solve(task: Task, profile: dict[str, Any]) -> tuple[Trajectory, dict[str, Any]]:
                environment = WebEnvironment(self.shops.of(task, protocol), track, user)
                first = None
                if protocol == "published" and task.user_id in trained:
                    # What its files call history: all before the first train task.
                    begin = self.benchmark.first_task(task.user_id, "train")
                    first = self.benchmark.before(task.user_id, begin)
                return play_task(setup, environment, task, self.history(task, protocol), profile, first)
        else:
            agent = self.agent(method, setup)
            details = DETAILS_FUNCTION in getattr(agent, "allowed", ())

            def solve(task: Task) -> Trajectory:
                environment = WebEnvironment(self.shops.of(task, protocol), track, user, details)
                return run_episode(environment, task, self.history(task, protocol), agent)

        params = {"code": self._code["prompted"], "track": track, "run_seed": setup.seed}
        params |= {"protocol": protocol, "items": cell.items} | self.shops.params(protocol)
        params |= {"functions": hash_of(self.functions)} if setup.identify else {}
        params |= players.facts("user") | {"prompts": self.prompts.origin}
        records = run_episodes(
            self.sample,
            solve,
            self.folder / f"03_methods_{track}.jsonl",
            method=method,
            model=cell.policy,
            params=self.facts | params,
            workers=players.workers,
            stored_runs_only=self.settings.stored_runs_only,
            memory=memory,
        )
        require_played(records)
        return records

    def rows(self, played: Mapping[Cell, Runs]) -> tuple[Runs, str]:
        """The runs that tables show, and a note on them: what the offline policy plays alike is one row."""
        runs = self.flat(played)
        return merge_equal(runs) if self.roles.offline else (runs, "")

    def by_task(
        self, played: Mapping[Cell, Runs], metrics: Mapping[str, str]
    ) -> tuple[pd.DataFrame, pd.DataFrame, str]:
        """The table of prompting methods by task: means, cells with intervals, and what stands below it.

        Args:
            metrics: our name of a metric -> its heading, as of :mod:`pwagents.benchmark.analyses_03`.
        """
        rows, same = self.rows(played)
        return *by_task(frame_of(rows), metrics), f"{self.note()} {same}".strip()

    def over_seeds(self, methods: Sequence[str]) -> pd.DataFrame:
        """Multi-turn episodes of some methods under each of ``noise_seeds`` seeds, each with its ``seed``."""
        first = self.settings.seed
        frames = []
        for seed in range(first, first + self.settings.play.noise_seeds):
            runs = {method: self.play(method, "multi_turn", seed) for method in methods}
            frames.append(frame_of(runs).assign(seed=seed))
        return pd.concat(frames)

    def plain_note(self, protocol: Protocol, references: pd.DataFrame) -> str:
        """What stands below a table of the plain agent and its :meth:`references`."""
        covered = references.loc[references["type"] == "review", "method"].value_counts()
        note = (
            f"Means, 95% intervals clustered by user. Source {self.settings.data.source}, "
            f"{len(self.tasks):,} test tasks, no language model. 'Same product' covers the "
            f"{covered.get('same product', 0):,} of {covered.get('oracle', 0):,} review tasks whose product "
            "somebody else reviewed. A dash: the row has no such value. "
            f"Recommender: {self.shops.recommender_name(protocol)}. Grader: {GRADER}."
        )
        if protocol == "leak_free":
            return note
        unfair = "a recommender that saw the future may pass the oracle"
        return f"{note} References are those of the leak-free protocol; {unfair}."

    def note(self) -> str:
        """What stands below a table of prompting methods."""
        protocols = self.settings.play.protocols
        note = (
            f"{len(self.sample):,} test tasks, source {self.settings.data.source}, "
            f"{' and '.join(PROTOCOLS[protocol] for protocol in protocols)}. "
            f"Policy: {', '.join(self.roles.policies)}; {self.prompts.origin}. Grader: {GRADER}. Means, 95% "
            "intervals clustered by user."
        )
        if "published" in protocols:
            note += f" Recommender as published: {self.shops.recommender_name('published')}."
        return note

    def estimate(self) -> pd.DataFrame:
        """:meth:`pwagents.benchmark.players.MethodRoles.estimate` of all that the notebook plays."""
        # The noise floor plays two methods under each seed; under the first they were played already.
        n, cells = len(self.sample), len(self.cells) // len(self.roles.policies)
        single, multi = (cells * len(self.methods(track)) for track in ("single_turn", "multi_turn"))
        multi += 2 * (self.settings.play.noise_seeds - 1)
        hidden = len(METHODS) * len(adversarial_cases())
        return self.roles.estimate(single * n, multi * n, hidden)

    def references(self) -> pd.DataFrame:
        """What random, popular, repeated and perfect answers reach, one row a task and kind of answer."""
        products = product_references(self.benchmark, self.shops.engine, self.tasks, self.settings.seed)
        reviews = review_references(self.benchmark, self.shops.embedder, self.tasks, self.settings.seed)
        return pd.concat([products, reviews], ignore_index=True)
