"""Episodes by the project's runner, and their scores as a table.

What is stored of an episode is its trajectory, with whether the session's state at the end was the goal;
scores are worked out from it whenever they are read. The key holds the code that played: what other code made
is played again.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import Queue
from typing import Any

import pandas as pd

from pwagents.embedding import Embedder
from pwagents.persona2web.agent import Brief
from pwagents.persona2web.driver import Driver
from pwagents.persona2web.episode import Agent, run_episode
from pwagents.persona2web.history import History
from pwagents.persona2web.judge import Scores, Truth, judge
from pwagents.persona2web.memory import Memory, profile_preferences, recall_of
from pwagents.persona2web.retrieval import RetrievalSettings
from pwagents.persona2web.sites import LocalWeb
from pwagents.persona2web.types import Architecture, Level, Scheme, WebTask, WebTrajectory
from pwagents.schema import Usage
from pwagents.settings import plain
from pwagents.store import StoredEpisode, episodes

# The modules that decide an episode, the world it is played in among them; for keys.
_WORLD = ("catalogue", "domains", "facet_text", "history", "people", "plans", "queries", "task_text", "types")
_WEB = ("filters", "pages", "serve", "session", "sites", "templates", "visits")
_BROWSER = ("actions", "browser", "driver", "html_driver", "markup", "observe", "page", "page_text")
_AGENTS = ("agent", "asked_user", "memory", "navigator", "offline_agent", "prompts", "reader", "retrieval")
_PLAYED = (*_WORLD, *_WEB, *_BROWSER, *_AGENTS, "episode", "judge", "runs", "scripts")
CODE = ("schema", "seeds", "embedding", "portable", "words", "shop.search")
CODE += tuple(f"llm.{name}" for name in ("chat", "fence", "parts", "replies"))
CODE += tuple(f"persona2web.{name}" for name in _PLAYED)

SCORES = (
    "website_retrieval",
    "website_utilization",
    "preference_retrieval",
    "preference_utilization",
    "p_web",
    "p_pref",
    "p_avg",
    "intent",
    "success",
)
_TAKEN = ("reached", "steps", "looks", "fault", "tokens", "usd")
_RECORD = ("method", "model", "task_id", "user_id", "outcome")
_CONDITION = ("architecture", "scheme", "level", "memory", "driver", "faults", "sample", "edition")


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


def scores_frame(
    records: Sequence[WebEpisode], world: World, judged: Callable[..., Scores] = judge
) -> pd.DataFrame:
    """One row an episode: what it was played under, its scores, and what it took; always the same columns.

    Episodes without a trajectory stay, with empty scores. ``asked``: whether the user could be asked.
    ``looks``: into the history. ``reached``: whether the session's state was the goal, however it came to
    that. ``fault``: whether a page failed, which is counted apart.

    Args:
        judged: (task, trajectory, truth) -> scores; the programmatic judge.
    """
    tasks, truths, rows = {task.task_id: task for task in world.tasks}, {}, []
    for record in records:
        memory = record.params["memory"]
        if memory not in truths:
            truths[memory] = world.truth(memory)
        row = {name: getattr(record, name) for name in _RECORD}
        row |= {name: record.params[name] for name in _CONDITION}
        row |= {
            "retriever": record.params["retrieval"]["retriever"],
            "asked": bool(record.params["asked"]),
        }
        if played := record.trajectory:
            scores = judged(tasks[record.task_id], played, truths[memory])
            row |= {name: getattr(scores, name) for name in SCORES}
            usage = sum((step.usage for step in played.steps), Usage())
            row |= {
                "reached": float(played.reached),
                "steps": len(played.steps),
                "looks": sum(step.kind == "memory" for step in played.steps),
                "fault": float(played.site_fault),
                "tokens": usage.tokens,
                "usd": usage.usd,
            }
        rows.append(row)
    columns = [*_RECORD, *_CONDITION, "retriever", "asked", *SCORES, *_TAKEN]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys([*SCORES, *_TAKEN], float))
