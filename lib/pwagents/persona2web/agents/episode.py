"""An episode on the local web, and all tasks under one condition.

What is stored of an episode is its trajectory, with whether the session's state at the end was the goal. The
key holds the code that played: what other code made is played again.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import Queue
from typing import Any

from pwagents.persona2web.agents import recall
from pwagents.persona2web.agents.recall import Embeds, Memory, Recall, RetrievalSettings
from pwagents.persona2web.browser.chromium import ChromiumDriver
from pwagents.persona2web.browser.driver import Driver, HtmlDriver, Visit
from pwagents.persona2web.site.serve import serving
from pwagents.persona2web.site.web import LocalWeb, WebSession, succeeded
from pwagents.persona2web.world.domains import domains
from pwagents.persona2web.world.history import History
from pwagents.persona2web.world.types import Architecture, Level, Scheme, Step, Truth, WebTask, WebTrajectory
from pwagents.seeds import derive_seed
from pwagents.settings import plain
from pwagents.store import StoredEpisode, episodes

# The modules that decide an episode, the world it is played in among them; for keys.
_OF_THE_ROOM = {
    "world": ("domains", "history", "queries", "types"),
    "site": ("pages", "serve", "web"),
    "browser": ("chromium", "driver", "page"),
    "agents": ("chat", "episode", "navigator", "offline", "recall"),
}
CODE = ("schema", "seeds", "embedding", "portable", "words", "llm.prompts", "shop.search")
CODE += tuple(f"llm.{name}" for name in ("chat", "fence", "parts", "replies"))
CODE += tuple(f"persona2web.{room}.{name}" for room, names in _OF_THE_ROOM.items() for name in names)

MOST_QUERIES = 5  # before execution


@dataclass(frozen=True)
class Brief:
    """What an agent is given with a task: the query at one level, and the user's history."""

    text: str
    recall: Recall


@dataclass
class Played:
    """What an agent did: the parts of a :class:`WebTrajectory` that are its own."""

    steps: list[Step] = field(default_factory=list)
    answer: str = ""
    rewritten: str = ""

    def left(self, architecture: Architecture, scheme: Scheme) -> int:
        """Return how many steps are left, by the settings published with the paper.

        On demand, a look into the history is a step. Before execution it is none, up to the number that is
        allowed, but Browser-Use (indexed) has one step less for each. (A comment in its settings counts these
        from 25, the setting itself from 20.)
        """
        if scheme != "pre_execution":
            return (25 if scheme == "on_demand" or architecture == "indexed" else 20) - len(self.steps)
        before = itertools.takewhile(lambda step: step.kind == "memory", self.steps)
        queries = min(len([*before]), MOST_QUERIES)
        return 20 - (queries if architecture == "indexed" else 0) - (len(self.steps) - queries)


Agent = Callable[[Brief, Visit], Played]


@dataclass(frozen=True)
class Condition:
    """What an agent plays under; all of it is in the key of an episode.

    ``faults`` is the share of requests that fail or come too late, ``sample`` which of several repeated runs,
    ``edition`` what tables call the web (0: today's). The key holds what its sites are.
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


def run_episode(
    task: WebTask, condition: Condition, agent: Agent, brief: Brief, web: LocalWeb, driver: Driver
) -> WebTrajectory:
    """Play one episode in a session of its own, in which nobody else uses the driver."""
    seed = derive_seed(condition.sample, "faults", task.task_id)
    session = web.begin(task.now, faults=condition.faults, seed=seed)
    try:
        driver.begin(session)
        played = agent(brief, Visit(driver, condition.architecture))
        return record(task, condition, played, session, web, driver.site_fault)
    finally:
        web.end(session)


def record(
    task: WebTask, condition: Condition, played: Played, session: WebSession, web: LocalWeb, fault: bool
) -> WebTrajectory:
    """Return what was played in a session, with what came of it; ``fault``: whether a page failed."""
    # Intended is the stated part of the goal, on any site of the domain.
    hosts, goal = domains()[task.goal.domain].hosts, task.goal
    stated = [goal.model_copy(update={"host": host, "masked": {}}) for host in hosts]
    reached, *intended = (
        succeeded(session, each, web.sites[each.host], played.answer) for each in (goal, *stated)
    )
    how = {name: getattr(condition, name) for name in ("level", "scheme", "architecture")}
    return WebTrajectory(
        task_id=task.task_id,
        **how,
        rewritten=played.rewritten,
        steps=tuple(played.steps),
        answer=played.answer,
        requests=tuple(session.log),
        site_fault=fault,
        reached=reached,
        intended=any(intended),
    )


# --- all tasks under one condition -------------------------------------------------------------------------


class WebEpisode(StoredEpisode):
    """One episode on the local web, as it is stored; ``query`` is the task's text, for readers."""

    query: str = ""
    trajectory: WebTrajectory | None = None

    @classmethod
    def details(cls, task: WebTask, trajectory: WebTrajectory | None) -> dict[str, Any]:
        """Return what this kind of episode adds to a stored one."""
        return {"query": task.texts[trajectory.level] if trajectory else "", "trajectory": trajectory}


@dataclass(frozen=True)
class World:
    """Histories, tasks and the web they belong to; ``data`` names all of it, for the keys of episodes."""

    histories: Mapping[str, History]
    tasks: Sequence[WebTask]
    web: LocalWeb
    embedder: Embeds
    data: str

    @cached_property
    def key(self) -> dict[str, Any]:
        """What decides an episode beside its task, agent and condition, for its key."""
        digest = hashlib.sha256()
        for host in sorted(self.web.sites):
            digest.update(self.web.sites[host].model_dump_json().encode())
        return {"data": self.data, "web": digest.hexdigest()[:16], "code": CODE}

    def recalls(self, memory: Memory, settings: RetrievalSettings) -> dict[str, Recall]:
        """Return the access to each user's history."""
        of = self.histories.items()
        return {user: recall.recall_of(history, memory, settings, self.embedder) for user, history in of}

    def truth(self, memory: Memory) -> Truth:
        """Return the records that support each preference: of the history or, in its place, the profile."""
        known = [p for history in self.histories.values() for p in history.preferences]
        return Truth.of(recall.profile_preferences(known) if memory == "explicit" else known)


def run_condition(
    world: World,
    condition: Condition,
    agent_of: Callable[[WebTask], Agent],
    store: Path,
    *,
    method: str,
    model: str = "none",
    params: Mapping[str, Any] = {},
    workers: int = 1,
    stored_runs_only: bool = False,
    served: Callable[[], dict[str, Any]] = dict,
) -> list[WebEpisode]:
    """Play all tasks under one condition, with the errors of :func:`pwagents.store.episodes`.

    Args:
        agent_of: the agent for a task; only oracles look at more than the user.
        params: what else decides how the agent plays, for the keys of episodes. An agent from outside the
            project is known by ``method``, ``model`` and these alone.
        workers: episodes at a time, each with a driver of its own.
    """
    free: Queue[Driver] = Queue()
    recalls = world.recalls(condition.memory, condition.retrieval)

    def solve(task: WebTask) -> WebTrajectory:
        brief, driver = Brief(task.texts[condition.level], recalls[task.user_id]), free.get()
        try:
            return run_episode(task, condition, agent_of(task), brief, world.web, driver)
        finally:
            free.put(driver)

    with ExitStack() as opened:
        if condition.driver == "chromium" and not stored_runs_only:
            port = opened.enter_context(serving(world.web))
            drivers = [opened.enter_context(ChromiumDriver(port)) for _ in range(workers)]
        else:
            drivers = [HtmlDriver(world.web) for _ in range(workers)]
        for driver in drivers:
            free.put(driver)
        facts = {**params, **world.key, **plain(condition)}
        options = {"workers": workers, "stored_only": stored_runs_only, "served": served}
        options |= {"method": method, "model": model, "record": WebEpisode}
        return episodes(store, world.tasks, solve, facts, **options)
