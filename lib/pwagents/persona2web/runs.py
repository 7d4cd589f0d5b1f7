"""Episodes by the project's runner, and their scores as a table.

What is stored of an episode is its trajectory; scores are worked out from it whenever they are read, so that
a changed rubric needs no new run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue

import pandas as pd

from pwagents.embedding import Embedder
from pwagents.evaluation.records import Episode
from pwagents.evaluation.runner import run_episodes
from pwagents.persona2web.agent import Brief
from pwagents.persona2web.driver import Driver
from pwagents.persona2web.episode import Agent, play_episode
from pwagents.persona2web.history import History
from pwagents.persona2web.judge import Scores, Truth, judge
from pwagents.persona2web.memory import Memory, profile_preferences, recall_of
from pwagents.persona2web.settings import RetrievalSettings
from pwagents.persona2web.sites import LocalWeb
from pwagents.persona2web.types import Architecture, Level, Scheme, WebTask, WebTrajectory
from pwagents.schema import Usage

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


class WebEpisode(Episode):
    """One episode on the local web, as it is stored."""

    trajectory: WebTrajectory | None = None


@dataclass(frozen=True)
class Condition:
    """What an agent plays under; all of it is in the key of an episode.

    Args:
        faults: share of requests that fail or come too late.
        sample: which of several repeated runs.
        edition: of the web (0: today's).
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
        ask: a user who may be asked, by task, in the variant that allows questions.
    """

    histories: Mapping[str, History]
    tasks: Sequence[WebTask]
    web: LocalWeb
    embedder: Embedder
    data: str
    ask: Callable[[WebTask], Callable[[str], str]] | None = None

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
    stored_runs_only: bool = False,
) -> list[WebEpisode]:
    """Play all tasks of ``world`` under one condition; what is stored is not played again.

    Args:
        agent_of: the agent for a task; only oracles look at more than the user.
        drivers: one for each episode at a time; they are not closed here.

    Raises:
        DataError, RuntimeError: see :func:`pwagents.evaluation.runner.run_episodes`.
    """
    free: SimpleQueue[Driver] = SimpleQueue()
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
            return play_episode(
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

    params = {"data": world.data, "asked": world.ask is not None} | asdict(condition)
    return run_episodes(
        world.tasks,
        solve,
        store,
        method=method,
        model=model,
        params=params,
        workers=len(drivers),
        stored_runs_only=stored_runs_only,
        record=WebEpisode,
    )


def scores_frame(
    records: Sequence[WebEpisode], world: World, judged: Callable[..., Scores] = judge
) -> pd.DataFrame:
    """One row an episode: what it was played under, its scores, and what it took.

    Episodes without a trajectory stay, with empty scores. ``reached``: whether the session's state was the
    goal, however it came to that. ``fault``: whether a page failed, which is counted apart.

    Args:
        judged: (task, trajectory, truth) -> scores; the programmatic judge.
    """
    tasks, truths, rows = {task.task_id: task for task in world.tasks}, {}, []
    for record in records:
        memory = record.params["memory"]
        if memory not in truths:
            truths[memory] = world.truth(memory)
        row = {name: getattr(record, name) for name in ("method", "model", "task_id", "user_id", "outcome")}
        names = ("architecture", "scheme", "level", "memory", "driver", "faults", "sample", "edition")
        row |= {name: record.params[name] for name in names}
        row["retriever"] = record.params["retrieval"]["retriever"]
        if played := record.trajectory:
            scores = judged(tasks[record.task_id], played, truths[memory])
            row |= {name: getattr(scores, name) for name in SCORES}
            usage = sum((step.usage for step in played.steps), Usage())
            row |= {
                "reached": float(played.reached),
                "steps": len(played.steps),
                "looks": sum(step.kind == "memory" for step in played.steps),
                "fault": float(played.site_fault),
                "tokens": usage.prompt_tokens + usage.completion_tokens,
                "usd": usage.usd,
            }
        rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.astype({name: float for name in SCORES if name in frame})
