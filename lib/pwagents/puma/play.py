"""The test of notebook 04: agents on test tasks, their actions computed at once; how long a task takes.

In the single-turn track no prompt depends on an earlier answer, so the actions of all tasks can be known
before the first episode begins. What the environment makes of them is the same as one by one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pwagents.agents.plain import FunctionClassifier, PlainAgent
from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.evaluation.episodes import EpisodeRecord, run_episodes
from pwagents.llm.local_model import LocalModel
from pwagents.progress import progress
from pwagents.project import code_hash
from pwagents.puma.agent import PumaAgent
from pwagents.puma.labels import PumaTask, first_states
from pwagents.puma.study import NO_MEMORY, NO_SFT, PumaStudy, with_memory
from pwagents.schema import Action, Behavior, Task
from pwagents.settings import plain
from pwagents.web.environment import Agent, BeliefState, WebEnvironment, run_episode

PLAIN = "Plain agent"
# The rooms that decide, beside data, settings and models, how an episode goes.
CODE = ("puma", "agents", "web", "profiles", "llm", "embedding", "schema", "seeds", "words")

ActAll = Callable[[Sequence[BeliefState]], list[Action]]


class Variant(NamedTuple):
    """A version of the agent: the models of its two steps, and the length of its memory in tokens."""

    identifier: Path
    writer: Path
    memory_tokens: int


class Stage(NamedTuple):
    """Where and how episodes are played.

    Args:
        environment: task -> an environment of its own.
        history: task -> the past behaviours that an agent may see.
        store: the file of episode records.
        model: the name of the model, for the records.
        params: all else that decides results, for the keys of the records.
    """

    environment: Callable[[Task], WebEnvironment]
    history: Callable[[Task], tuple[Behavior, ...]]
    store: Path
    model: str
    params: Mapping[str, Any]
    stored_runs_only: bool = False


def ablations(
    study: PumaStudy, identifier: Path, tuned: Mapping[str, Path], better: Mapping[str, Path]
) -> dict[str, Variant]:
    """The variants that the paper's tables compare PUMA with, and those of DPO.

    Args:
        tuned, better: name of a variant -> its model of step 2 before and after DPO.
    """
    tokens = study.settings.study.memory_tokens
    lengths = {with_memory(n): n for n in study.settings.study.memory_lengths}
    return {
        NO_MEMORY: Variant(identifier, better[NO_MEMORY], 0),
        NO_SFT: Variant(identifier, better[NO_SFT], tokens),
        **{name: Variant(identifier, better[name], tokens) for name in study.other_preferences},
        **{name: Variant(identifier, better[name], n) for name, n in lengths.items()},
    }


def make_agent(study: PumaStudy, variant: Variant) -> PumaAgent:
    """The agent of a variant."""
    settings = study.settings.study
    first, second = (LocalModel(folder, settings.batch_size) for folder in variant[:2])
    return PumaAgent(first, second, study.memory(variant.memory_tokens), settings.max_call_tokens)


def make_plain_agent(study: PumaStudy, items: Sequence[PumaTask]) -> PlainAgent:
    """The plain agent of notebook 03 with PUMA's memory; its classifier learns from the train tasks."""
    classifier = FunctionClassifier([item.task for item in items])
    return PlainAgent(classifier, study.memory(study.settings.study.memory_tokens))


def play(study: PumaStudy, name: str, variant: Variant) -> list[EpisodeRecord]:
    """A variant on the test tasks."""
    names = ", ".join(study.models.name_of(folder) for folder in variant[:2])
    stage = _stage(study, names, tokens=variant.memory_tokens)
    return run_at_once(name, lambda: make_agent(study, variant).act, study.worlds.tasks, stage)


def play_plain(study: PumaStudy, agent: PlainAgent) -> list[EpisodeRecord]:
    """The agent of :func:`make_plain_agent` on the test tasks."""

    def act(states: Sequence[BeliefState]) -> list[Action]:
        agent.memory.prepare(states)
        return [agent(state) for state in states]

    settings = study.settings.study
    learned = {"classifier": study.worlds.learned.content_hash, "train_tasks": settings.train_tasks}
    tokens = {"tokens": settings.memory_tokens, "tokenizer": study.models.base_name}
    stage = _stage(study, "none", **tokens, **learned)
    return run_at_once(PLAIN, lambda: act, study.worlds.tasks, stage)


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
        environment = stage.environment(task)
        return run_episode(environment, task, stage.history(task), lambda _: actions[task.task_id])

    return run_episodes(
        tasks,
        solve,
        stage.store,
        method=method,
        model=stage.model,
        params=stage.params,
        here=True,  # the first episode computes the actions of all
        stored_runs_only=stage.stored_runs_only,
    )


def time_agents(study: PumaStudy, agents: Mapping[str, Agent]) -> pd.DataFrame:
    """How long agents take for some of the test tasks: ``method, task_id, user_id, seconds``."""
    tasks = sample_tasks(study.worlds.tasks, study.settings.study.timed_tasks, study.settings.seed)
    stage = _stage(study, "timed")
    rows = []
    for name, agent in agents.items():
        seconds_per_task(agent, tasks[:1], stage)  # loads what has to be loaded
        seconds = seconds_per_task(agent, tasks, stage)
        rows += [(name, t.task_id, t.user_id, s) for t, s in zip(tasks, seconds, strict=True)]
    return pd.DataFrame(rows, columns=["method", "task_id", "user_id", "seconds"])


def seconds_per_task(agent: Agent, tasks: Sequence[Task], stage: Stage) -> list[float]:
    """Wall-clock seconds of each whole episode, one after another: what a user would wait (Figure 7)."""
    seconds = []
    for task in progress(tasks, desc="time", unit="episode"):
        begin = time.perf_counter()
        run_episode(stage.environment(task), task, stage.history(task), agent)
        seconds.append(time.perf_counter() - begin)
    return seconds


def _stage(study: PumaStudy, model: str, **more: Any) -> Stage:
    """The test tasks' environments and records; ``model`` and ``more`` are of the agent at hand."""
    settings, tested = study.settings, study.worlds.tested
    params = {
        "data": tested.content_hash,
        "code": code_hash(*CODE),
        "shop": plain(settings.shop),
        "max_call_tokens": settings.study.max_call_tokens,
        "seed": settings.seed,
    }
    return Stage(
        environment=lambda task: WebEnvironment(study.shop_for(task)),
        history=lambda task: tested.history(task, "test"),
        store=settings.output_dir / "runs" / "04_puma.jsonl",
        model=model,
        params=params | more,
        stored_runs_only=settings.stored_runs_only,
    )


def _begin(task: Task, stage: Stage) -> WebEnvironment:
    environment = stage.environment(task)
    environment.reset(task, stage.history(task))
    return environment
