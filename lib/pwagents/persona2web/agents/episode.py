"""One episode on the local web: what an agent is given, the budget it keeps, and what came of it."""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import Queue
from typing import Any

from pwagents.embedding import Embedder
from pwagents.persona2web.agents.recall import (
    Memory,
    Recall,
    RetrievalSettings,
    profile_preferences,
    recall_of,
)
from pwagents.persona2web.browser.driver import Driver, Visit
from pwagents.persona2web.site.web import LocalWeb, succeeded
from pwagents.persona2web.world.domains import domains
from pwagents.persona2web.world.history import History
from pwagents.persona2web.world.types import (
    Architecture,
    Level,
    Scheme,
    Step,
    Truth,
    WebTask,
    WebTrajectory,
)
from pwagents.seeds import derive_seed
from pwagents.settings import plain
from pwagents.store import StoredEpisode, episodes

# The modules that decide an episode, the world it is played in among them; for keys.
_WORLD = ("domains", "history", "queries", "types")
_WEB = ("pages", "serve", "web")
_BROWSER = ("chromium", "driver", "page")
_AGENTS = ("chat", "episode", "navigator", "offline", "recall")
CODE = ("schema", "seeds", "embedding", "portable", "words", "shop.search")
CODE += tuple(f"llm.{name}" for name in ("chat", "fence", "parts", "replies"))
CODE += tuple(f"persona2web.world.{name}" for name in _WORLD)
CODE += tuple(f"persona2web.site.{name}" for name in _WEB)
CODE += tuple(f"persona2web.browser.{name}" for name in _BROWSER)
CODE += tuple(f"persona2web.agents.{name}" for name in _AGENTS)

MOST_QUERIES = 5  # before execution


@dataclass(frozen=True)
class Brief:
    """What an agent is given with a task.

    Args:
        text: the query at one level.
        recall: the user's history; agents without access do not call it.
        ask: a user who answers questions, in the variant that allows them.
    """

    text: str
    recall: Recall
    ask: Callable[[str], str] | None = None


@dataclass
class Played:
    """What an agent did: the parts of a :class:`WebTrajectory` that are its own."""

    steps: list[Step] = field(default_factory=list)
    answer: str = ""
    rewritten: str = ""

    def left(self, architecture: Architecture, scheme: Scheme) -> int:
        """Return the steps that are left of :func:`most_steps`; a question to the user is one."""
        queries = 0
        if scheme == "pre_execution":  # looks before the first page, as many as are allowed, are no steps
            before = itertools.takewhile(lambda step: step.kind != "web", self.steps)
            queries = min(sum(step.kind == "memory" for step in before), MOST_QUERIES)
        return most_steps(architecture, scheme, queries) - (len(self.steps) - queries)


Agent = Callable[[Brief, Visit], Played]


def most_steps(architecture: Architecture, scheme: Scheme, queries: int = 0) -> int:
    """Return the steps an agent may take, as the settings published with the paper have them.

    On demand, a look into the history is a step; before execution it is none, but Browser-Use (indexed) has
    one step less for each. (A comment in its settings counts these from 25, the setting itself from 20.)
    """
    if scheme == "pre_execution":
        return 20 - (queries if architecture == "indexed" else 0)
    return 25 if scheme == "on_demand" or architecture == "indexed" else 20


def run_episode(
    task: WebTask,
    level: Level,
    agent: Agent,
    brief: Brief,
    web: LocalWeb,
    driver: Driver,
    architecture: Architecture,
    scheme: Scheme,
    faults: float = 0.0,
    seed: int = 0,
) -> WebTrajectory:
    """Play one episode in a session of its own; success is read from the session, in process.

    Args:
        driver: used by nobody else meanwhile.
        faults: share of requests that fail or come too late, drawn by ``seed`` and the task.
    """
    session = web.begin(task.now, faults=faults, seed=derive_seed(seed, "faults", task.task_id))
    try:
        driver.begin(session)
        played = agent(brief, Visit(driver, architecture))
        # Intended is the stated part of the goal, on any site of the domain.
        hosts, goal = domains()[task.goal.domain].hosts, task.goal
        stated = [goal.model_copy(update={"host": host, "masked": {}}) for host in hosts]
        return WebTrajectory(
            task_id=task.task_id,
            level=level,
            scheme=scheme,
            architecture=architecture,
            rewritten=played.rewritten,
            steps=tuple(played.steps),
            answer=played.answer,
            requests=tuple(session.log),
            site_fault=driver.site_fault,
            reached=succeeded(session, goal, web.sites[goal.host], played.answer),
            intended=any(succeeded(session, each, web.sites[each.host], played.answer) for each in stated),
        )
    finally:
        web.end(session)


# --- all tasks under one condition -------------------------------------------------------------------------


class WebEpisode(StoredEpisode):
    """One episode on the local web, as it is stored; ``query`` is the task's text, for readers."""

    query: str = ""
    trajectory: WebTrajectory | None = None

    @classmethod
    def details(cls, task: WebTask, trajectory: WebTrajectory | None) -> dict[str, Any]:
        return {"query": task.texts[trajectory.level] if trajectory else "", "trajectory": trajectory}


@dataclass(frozen=True)
class Condition:
    """What an agent plays under; all of it is in the key of an episode.

    Args:
        driver: "html" or "chromium", as the drivers that play have it.
        faults: share of requests that fail or come too late.
        sample: which of several repeated runs.
        edition: what tables call the web (0: today's). The key holds what its sites are.
    """

    architecture: Architecture
    scheme: Scheme
    level: Level = 2
    memory: Memory = "implicit"
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    driver: str = "html"
    faults: float = 0.0
    sample: int = 0
    edition: int = 0


@dataclass(frozen=True)
class World:
    """Histories, tasks and the web they belong to.

    Args:
        data: a hash or name of all of it, for the keys of episodes.
        ask: a user who may be asked, by task, in the variant that allows questions; a named function, for
            the keys of episodes.
    """

    histories: Mapping[str, History]
    tasks: Sequence[WebTask]
    web: LocalWeb
    embedder: Embedder
    data: str
    ask: Callable[[WebTask], Callable[[str], str]] | None = None

    @cached_property
    def key(self) -> dict[str, Any]:
        """What decides an episode beside its task, agent and condition, for its key."""
        digest = hashlib.sha256()
        for host in sorted(self.web.sites):
            digest.update(self.web.sites[host].model_dump_json().encode())
        asked = f"{self.ask.__module__}.{self.ask.__qualname__}" if self.ask else ""
        return {"data": self.data, "web": digest.hexdigest()[:16], "code": CODE, "asked": asked}

    def truth(self, memory: Memory) -> Truth:
        """The records that support each preference: of the history or, in its place, the profile."""
        known = [p for history in self.histories.values() for p in history.preferences]
        return Truth.of(profile_preferences(known) if memory == "explicit" else known)


def run_condition(
    world: World,
    condition: Condition,
    agent_of: Callable[[WebTask], Agent],
    drivers: Sequence[Driver],
    store: Path,
    *,
    method: str,
    model: str = "none",
    params: Mapping[str, Any] = {},
    stored_runs_only: bool = False,
    served: Callable[[], dict[str, Any]] = dict,
) -> list[WebEpisode]:
    """Play all tasks of ``world`` under one condition; what is stored is not played again.

    Args:
        agent_of: the agent for a task; only oracles look at more than the user.
        drivers: one for each episode at a time; they are not closed here.
        params: what else decides how the agent plays, for the keys of episodes. An agent from outside the
            project is known by ``method``, ``model`` and these alone.

    Raises:
        ValueError: a driver is not the condition's.
        DataError, RuntimeError: see :func:`pwagents.store.episodes`, also for ``served``.
    """
    for driver in () if stored_runs_only else drivers:
        if driver.kind != condition.driver:
            raise ValueError(f"the condition's driver is {condition.driver}, but {driver.kind} is to play")
    free: Queue[Driver] = Queue()
    for driver in drivers:
        free.put(driver)
    recalls = {
        user: recall_of(history, condition.memory, condition.retrieval, world.embedder)
        for user, history in world.histories.items()
    }

    def solve(task: WebTask) -> WebTrajectory:
        brief = Brief(
            text=task.texts[condition.level],
            recall=recalls[task.user_id],
            ask=world.ask(task) if world.ask else None,
        )
        driver = free.get()
        try:
            return run_episode(
                task,
                condition.level,
                agent_of(task),
                brief,
                world.web,
                driver,
                condition.architecture,
                condition.scheme,
                condition.faults,
                condition.sample,
            )
        finally:
            free.put(driver)

    return episodes(
        store,
        world.tasks,
        solve,
        {**params, **world.key, **plain(condition)},
        method=method,
        model=model,
        workers=len(drivers),
        stored_only=stored_runs_only,
        record=WebEpisode,
        served=served,
    )
