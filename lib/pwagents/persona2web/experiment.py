"""Notebook 09's episodes: who plays which tasks under which conditions, kept by the project's runner; scores.

What is stored of an episode is its trajectory, with whether the session's state at the end was the goal;
scores are worked out from it whenever they are read. The key holds the code that played: what other code made
is played again. The offline agent reads records with a reader that was trained on users of the other group of
phrases, never on the user of the task.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.code import hash_of
from pwagents.embedding import Embedder
from pwagents.llm.make import Models
from pwagents.persona2web.agents.chat import ChatWebAgent
from pwagents.persona2web.agents.episode import Agent, Condition, WebEpisode, World, run_condition
from pwagents.persona2web.agents.offline import Guesser, OfflineAgent, Oracle
from pwagents.persona2web.agents.recall import (
    Reader,
    RetrievalSettings,
    record_text,
    train_readers,
)
from pwagents.persona2web.browser.chromium import ChromiumDriver
from pwagents.persona2web.browser.driver import Driver, HtmlDriver
from pwagents.persona2web.judge.meta import meta_evaluation
from pwagents.persona2web.judge.scores import scores_frame
from pwagents.persona2web.site.serve import serving
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import make_sites
from pwagents.persona2web.world.history import make_histories
from pwagents.persona2web.world.queries import answers_of, make_tasks
from pwagents.persona2web.world.types import Architecture, Level, Scheme, WebTask
from pwagents.settings import HistorySettings, WebNotebook, plain

OFFLINE, CHANCE, ORACLE = "offline agent", "guesses", "oracle"
ARCHITECTURES: tuple[Architecture, ...] = ("indexed", "occam")
SCHEMES: tuple[Scheme, ...] = ("none", "on_demand", "pre_execution")
WITH_HISTORY = SCHEMES[1:]
LEVELS: tuple[Level, ...] = (0, 1, 2)
FAULTS = 0.2  # of the requests of repeated runs fail or come too late
LATER = 1  # the edition of the web "three months later"


class Study:
    """Plays agents on the tasks of the notebook. Episodes that are stored already are not played again.

    Args:
        settings: the notebook's.
        cache: the folder of embeddings.
        store: the file of language models' replies; episodes are kept beside it.

    Attributes:
        world: histories, tasks and the web of today.
        agents: those that are measured: the offline agent, and the language model where one plays.
    """

    def __init__(self, settings: WebNotebook, cache: Path, store: Path):
        self.settings, self.folder = settings, store.parent
        self.embedder = Embedder(cache, settings.study.max_tokens, batch_size=64)
        self.world = self.world_of(settings.histories)
        self._models = Models(settings.players, store)
        policy = settings.players.policy
        self._model = None if policy == "offline" else self._models(policy)
        self.agents = (OFFLINE, *([self._model.name] if self._model else []))

    # --- worlds ---

    def world_of(self, histories: HistorySettings, edition: int = 0) -> World:
        """Histories made by other settings, or the web of another time; the same users and tasks."""
        settings, sites = self.settings, make_sites(self.settings.seed)
        made = make_histories(histories, settings.seed)
        decides = [plain(histories), plain(settings.queries), settings.study.max_tokens, settings.seed]
        return World(
            made,
            make_tasks(made, sites, settings.queries, settings.seed),
            LocalWeb(make_sites(settings.seed, edition).values()),
            self.embedder,
            data=hash_of(decides),
        )

    @property
    def asking(self) -> World:
        """The same world, with a user who may be asked."""
        return replace(self.world, ask=answers_of)

    def embed(self) -> int:
        """Embed all records in one go, so that no episode waits for the model; how many texts differ."""
        texts = {record_text(e) for history in self.world.histories.values() for e in history.events}
        if not self.settings.stored_runs_only:
            self.embedder.encode(sorted(texts), show_progress=True)
        return len(texts)

    @cached_property
    def readers(self) -> dict[str, Reader]:
        """By user, a reader that was trained on the users of the other group of phrases."""
        return train_readers(self.world.histories, self.embedder, self.settings.seed)

    # --- episodes ---

    def play(
        self, part: str, agents: Sequence[str], conditions: Sequence[Condition], world: World | None = None
    ) -> pd.DataFrame:
        """Return the scores of agents under conditions on all tasks, a row an episode (:func:`scores_frame`).

        Args:
            part: of the study; each keeps its episodes in a file of its own.

        Raises:
            InfrastructureError: some episode could not be played. All others are stored.
        """
        world = world or self.world
        frames = [
            scores_frame(self.episodes(part, agent, condition, world), world)
            for agent, condition in product(agents, conditions)
        ]
        return pd.concat(frames, ignore_index=True)

    def episodes(
        self, part: str, agent: str, condition: Condition, world: World | None = None
    ) -> list[WebEpisode]:
        """The episodes of one agent under one condition, in the order of the tasks."""
        world = world or self.world
        with self._drivers(world.web, condition.driver) as drivers:
            return self._episodes(part, agent, condition, world, drivers)

    def _episodes(
        self, part: str, agent: str, condition: Condition, world: World, drivers: Sequence[Driver]
    ) -> list[WebEpisode]:
        return run_condition(
            world,
            condition,
            self.agent(agent, condition, world),
            drivers,
            self.folder / f"09_{part}.jsonl",
            method=agent,
            model="none" if agent in (OFFLINE, CHANCE, ORACLE) else agent,
            params=self._params(agent),
            stored_runs_only=self.settings.stored_runs_only,
            served=self._models.served,
        )

    def _params(self, agent: str) -> dict[str, Any]:
        if agent == OFFLINE:  # it learned from the notebook's own world, whichever is played
            return {"readers": self.world.data}
        return {} if agent in (CHANCE, ORACLE) else self.settings.players.facts()

    def agent(self, name: str, condition: Condition, world: World) -> Callable[[WebTask], Agent]:
        """The agent for a task; only the oracle looks at more than the user."""
        architecture, scheme = condition.architecture, condition.scheme
        if name == OFFLINE:
            return lambda task: OfflineAgent(self.readers[task.user_id], architecture, scheme)
        if name == CHANCE:
            return lambda task: Guesser(architecture, self.settings.seed)
        if name == ORACLE:
            oracle = Oracle(world.truth(condition.memory), architecture, scheme)
            return lambda task: oracle.for_task(task, condition.level)
        chat = ChatWebAgent(self._model, architecture, scheme, sample=condition.sample)
        return lambda task: chat

    @contextmanager
    def _drivers(self, web: LocalWeb, kind: str) -> Iterator[list[Driver]]:
        """One driver for each episode at a time; none is opened where nothing is to be played."""
        n = self.settings.players.workers
        if kind == "html" or self.settings.stored_runs_only:
            yield [HtmlDriver(web) for _ in range(n)]
            return
        with serving(web) as port, ExitStack() as opened:
            yield [opened.enter_context(ChromiumDriver(port)) for _ in range(n)]

    # --- what tables are made of ---

    def level(self, level: Level) -> pd.DataFrame:
        """One level under all architectures and schemes; guesses before, the oracle after the agents.

        At level 2 also an agent to whom every question brings the latest records.
        """
        part = f"level_{level}"
        latest = self._conditions(WITH_HISTORY, [level], memory="recency") if level == 2 else []
        return pd.concat(
            [
                self.play(part, [CHANCE], self._conditions(["none"], [level])),
                self.play(part, [OFFLINE], [*self._conditions(["none"], [level]), *latest]),
                self.play(part, [OFFLINE], self._conditions(WITH_HISTORY, [level])),
                *[self.play(part, [name], self._conditions(SCHEMES, [level])) for name in self.agents[1:]],
                self.play(part, [ORACLE], self._conditions(["on_demand"], [level])),
            ],
            ignore_index=True,
        )

    def walks(self) -> dict[str, list[WebEpisode]]:
        """The offline agent's episodes with a history at level 2, by architecture and scheme."""
        return {
            f"{c.architecture}, {c.scheme.replace('_', '-')}": self.episodes("level_2", OFFLINE, c)
            for c in self._conditions(WITH_HISTORY)
        }

    def variants(self) -> pd.DataFrame:
        """Level 2 by a profile that says all outright, by words (BM25), and with questions to the user.

        Indexed DOM; the plain history is in :meth:`level`.
        """
        by_words = RetrievalSettings(retriever="bm25")
        changed = [self._condition("indexed", scheme, memory="explicit") for scheme in WITH_HISTORY]
        changed += [self._condition("indexed", scheme, retrieval=by_words) for scheme in WITH_HISTORY]
        asks = [self._condition("indexed", scheme) for scheme in SCHEMES]
        silent = self.play("variants", self.agents, changed)
        asking = self.play("variants", self.agents, asks, self.asking)
        return pd.concat([silent, asking], ignore_index=True)

    def repeated(self) -> pd.DataFrame:
        """Level 2 with a history, some runs each, in which pages fail at random; and the oracle.

        Indexed DOM.
        """
        runs = range(self.settings.study.runs)

        def fail(scheme: Scheme) -> list[Condition]:
            return [self._condition("indexed", scheme, faults=FAULTS, sample=i) for i in runs]

        parts = [(self.agents, fail(scheme)) for scheme in WITH_HISTORY] + [([ORACLE], fail("on_demand"))]
        return pd.concat([self.play("failing_pages", *each) for each in parts], ignore_index=True)

    def later(self) -> pd.DataFrame:
        """The same tasks at levels 0 and 2 on the web some months later, by the indexed DOM."""
        world = self.world_of(self.settings.histories, LATER)
        parts = []
        for agents, schemes in (
            ([CHANCE], SCHEMES[:1]),
            (self.agents, SCHEMES),
            ([ORACLE], WITH_HISTORY[:1]),
        ):
            for_each = product(schemes, (0, 2))
            conditions = [self._condition("indexed", *each, edition=LATER) for each in for_each]
            parts.append(self.play("later", agents, conditions, world))
        return pd.concat(parts, ignore_index=True)

    def dialled(self) -> pd.DataFrame:
        """The offline agent, pre-execution, in worlds that differ in one dial: columns ``dial, value``.

        The readers stay those of the notebook's own world.
        """
        frames, conditions = [], [self._condition("indexed", "pre_execution", driver="html")]
        for dial, values in plain(self.settings.study.dials).items():
            for value in values:
                world = self.world_of(self.settings.histories.changed(**{dial: value}))
                frame = self.play("dials", [OFFLINE], conditions, world)
                frames.append(frame.assign(dial=dial, value=value))
        return pd.concat(frames, ignore_index=True)

    def in_chromium(self) -> pd.DataFrame:
        """Some tasks in both drivers, by the agent at level 2 and by the oracle at all.

        ``same``: whether both drivers gave the same trajectory.
        """
        world = replace(self.world, tasks=self.world.tasks[: self.settings.study.chromium_tasks])
        frames = []
        with self._drivers(world.web, "html") as html, self._drivers(world.web, "chromium") as chromium:
            for agent, level in [(OFFLINE, 2), *((ORACLE, level) for level in LEVELS)]:
                runs = []
                for name, drivers in (("html", html), ("chromium", chromium)):
                    condition = self._condition("indexed", "on_demand", level, driver=name)
                    runs.append(self._episodes("chromium", agent, condition, world, drivers))
                same = [a.trajectory == b.trajectory for a, b in zip(*runs, strict=True)]
                frames += [scores_frame(records, world).assign(same=same) for records in runs]
        return pd.concat(frames, ignore_index=True)

    def meta_evaluation(self) -> pd.DataFrame:
        """How judges agree with the truth, see :mod:`pwagents.persona2web.judge.meta`."""
        judge, settings = self.settings.players.judge, self.settings
        return meta_evaluation(
            self.world,
            self.folder / "09_scripts.jsonl",
            None if judge == "offline" else self._models(judge),
            settings.study.judged_tasks,
            stored_runs_only=settings.stored_runs_only,
        )

    def _conditions(
        self, schemes: Sequence[Scheme], levels: Sequence[Level] = (2,), **more
    ) -> list[Condition]:
        """Both architectures under some schemes at some levels."""
        return [self._condition(*each, **more) for each in product(ARCHITECTURES, schemes, levels)]

    def _condition(self, architecture: Architecture, scheme: Scheme, level: Level = 2, **more) -> Condition:
        """Under the notebook's driver, where no other is given."""
        return Condition(architecture, scheme, level, **{"driver": self.settings.study.driver} | more)
