"""One episode on the local web: a task at a level, an agent, a driver; what came of it as a trajectory."""

from collections.abc import Callable

from pwagents.persona2web.actions import Visit
from pwagents.persona2web.agent import Brief, Driver, Played
from pwagents.persona2web.domains import domains
from pwagents.persona2web.driver import Driver as PageDriver
from pwagents.persona2web.session import WebSession, succeeded
from pwagents.persona2web.sites import LocalWeb
from pwagents.persona2web.types import Architecture, Level, Scheme, WebTask, WebTrajectory
from pwagents.seeds import derive_seed

Agent = Callable[[Brief, Driver], Played]


def run_episode(
    task: WebTask,
    level: Level,
    agent: Agent,
    brief: Brief,
    web: LocalWeb,
    driver: PageDriver,
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
            reached=reached(task, session, web, played.answer),
            intended=intended(task, session, web, played.answer),
        )
    finally:
        web.end(session)


def reached(task: WebTask, session: WebSession, web: LocalWeb, answer: str) -> bool:
    """Whether the session's state is the goal."""
    return succeeded(session, task.goal, web.sites[task.goal.host], answer)


def intended(task: WebTask, session: WebSession, web: LocalWeb, answer: str) -> bool:
    """Whether it is the stated part of the goal, on any site of the domain."""
    hosts = domains()[task.goal.domain].hosts
    goals = [task.goal.model_copy(update={"host": host, "masked": {}}) for host in hosts]
    return any(succeeded(session, goal, web.sites[goal.host], answer) for goal in goals)
