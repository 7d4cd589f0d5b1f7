"""Run a prompting method on tasks in one track, whichever way it has to be run."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pwagents.agents.chat_agent import Setup
from pwagents.agents.interec import InteRecAgent, play_task
from pwagents.agents.methods import METHODS
from pwagents.evaluation.records import EpisodeRecord
from pwagents.evaluation.runner import run_episodes, run_user_episodes
from pwagents.schema import Behavior, Task
from pwagents.web.environment import WebEnvironment, run_episode
from pwagents.web.functions import DETAILS_FUNCTION


class Stage(NamedTuple):
    """Where and how episodes are played.

    Args:
        environment: (task, whether the look-up of details is offered) -> an environment of its own.
        history: task -> the past behaviours that an agent may see.
        store: the file of episode records.
        model: the name of the model, for the records.
        params: all else that decides results, for the keys of the records.
    """

    environment: Callable[[Task, bool], WebEnvironment]
    history: Callable[[Task], tuple[Behavior, ...]]
    store: Path
    model: str
    params: Mapping[str, Any]
    workers: int = 1
    stored_runs_only: bool = False


def run_method(name: str, tasks: Sequence[Task], setup: Setup, stage: Stage) -> list[EpisodeRecord]:
    """Episodes of the method ``name`` of :data:`METHODS` on ``tasks``, in their order.

    Methods whose memory goes from task to task run per user in the order of time.
    """
    options = {
        "method": name,
        "model": stage.model,
        "params": {**stage.params, "strategy": setup.strategy, "length": setup.length},
        "workers": stage.workers,
        "stored_runs_only": stage.stored_runs_only,
    }
    if METHODS[name] is InteRecAgent:

        def solve_next(task: Task, profile: dict):
            return play_task(setup, stage.environment(task, False), task, stage.history(task), profile)

        return run_user_episodes(tasks, solve_next, stage.store, **options)
    agent = METHODS[name](setup)
    details = DETAILS_FUNCTION in getattr(agent, "allowed", ())

    def solve(task: Task):
        return run_episode(stage.environment(task, details), task, stage.history(task), agent)

    return run_episodes(tasks, solve, stage.store, **options)
