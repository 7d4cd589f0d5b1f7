"""Single-turn episodes whose actions are computed all at once, then played and stored as any others.

In the single-turn track no prompt depends on an earlier answer, so the actions of all tasks can be known
before the first episode begins. What the environment makes of them is the same as one by one.
"""

import time
from collections.abc import Callable, Sequence

from pwagents.agents.run import Stage
from pwagents.evaluation.records import EpisodeRecord
from pwagents.evaluation.runner import run_episodes
from pwagents.progress import progress
from pwagents.puma.labels import first_states
from pwagents.schema import Action, Task
from pwagents.web.episode import Agent, BeliefState, Episode, run_episode

ActAll = Callable[[Sequence[BeliefState]], list[Action]]


def run_at_once(
    method: str, act: Callable[[], ActAll], tasks: Sequence[Task], stage: Stage
) -> list[EpisodeRecord]:
    """Episodes on ``tasks``, in their order; stored ones are not played again.

    The seconds in the records are those of the environment alone: the actions were computed before.

    Args:
        method: the name of the run, in records and tables.
        act: makes what acts, such as ``lambda: agent.act``; called only where some episode is not stored.
    """
    actions: dict[str, Action] = {}

    def solve(task: Task):
        if not actions:
            states = first_states(tasks, lambda task: _begin(task, stage))
            acted = act()([state for _, state in states])
            actions.update({begun.task_id: a for (begun, _), a in zip(states, acted, strict=True)})
        environment = stage.environment(task, False)
        return run_episode(environment, task, stage.history(task), lambda _: actions[task.task_id])

    return run_episodes(
        tasks,
        solve,
        stage.store,
        method=method,
        model=stage.model,
        params=stage.params,
        workers=1,  # the first episode computes the actions of all
        stored_runs_only=stage.stored_runs_only,
    )


def seconds_per_task(agent: Agent, tasks: Sequence[Task], stage: Stage) -> list[float]:
    """Wall-clock seconds of each whole episode, one after another: what a user would wait (Figure 7)."""
    seconds = []
    for task in progress(tasks, desc="time", unit="episode"):
        begin = time.perf_counter()
        run_episode(stage.environment(task, False), task, stage.history(task), agent)
        seconds.append(time.perf_counter() - begin)
    return seconds


def _begin(task: Task, stage: Stage) -> Episode:
    return Episode(stage.environment(task, False), task, stage.history(task))
