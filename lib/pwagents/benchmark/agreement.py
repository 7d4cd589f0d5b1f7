"""What each difference from PersonalWAB's code is worth: the published way beside the corrected one.

Each row is a kind of call, made on purpose for the tasks that it fits. So a row says what the difference is
worth where it occurs, not how often it occurs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pwagents.agents.memory import Memory, Strategy
from pwagents.agents.plain import PlainAgent
from pwagents.evaluation.metrics import GRADER as OURS
from pwagents.evaluation.metrics import attempts
from pwagents.schema import FUNCTION_OF, Action, Behavior, Task, TaskType
from pwagents.web.environment import Agent, WebEnvironment, run_episode
from pwagents.web.published import GRADER as PUBLISHED
from pwagents.web.published import Score, published_score

if TYPE_CHECKING:
    import pandas as pd

    from pwagents.benchmark.study import Study

# What stands below the table.
GRADERS = f"Grader: {OURS}; as published, in rows that begin with 'grader': {PUBLISHED}."
SHORT = 3  # ids, in what was a short sequence for the published code


def published_against_corrected(study: "Study") -> "pd.DataFrame":
    """Each difference on the sample of test tasks, leak-free, single-turn.

    Returns:
        A row each: what differs, the tasks that it was tried on, function and result accuracy in both ways;
        no row where there is no task to try it on.
        The first rows are two graders on the same calls, the others two ways to act under our grader.
    """
    import pandas as pd

    rows = []
    for name, scores in (*_graders(study), *_ways_to_act(study)):
        if scores:
            means = np.mean([(*published, *ours) for published, ours in scores], axis=0)
            rows.append((name, len(scores), *means))
    ways = ("as published", "corrected")
    metrics = [f"{metric} accuracy, {way}" for way in ways for metric in ("function", "result")]
    return pd.DataFrame(rows, columns=["difference", "tasks", *metrics])


Scores = list[tuple[Score, Score]]  # as published, corrected


def _graders(study: "Study") -> Iterator[tuple[str, Scores]]:
    """The published grader and ours on the same calls."""
    unlike = _least_alike(study)
    calls: dict[str, tuple[TaskType, Callable[[Task], Any]]] = {
        "empty query": ("search", lambda task: ""),
        "blank query": ("search", lambda task: "  "),
        "empty review": ("review", lambda task: ""),
        "text where a list of ids is expected": ("recommend", lambda task: " ".join(_bought(study, task))),
        "fewer than ten results": ("search", lambda task: _ids_of_three(study, task)),
        "the target's id in the text of a result": ("search", lambda task: task.instruction),
        "review unlike the real one": ("review", lambda task: unlike[task.task_id]),
    }
    for name, (task_type, argument) in calls.items():
        scores = []
        for task in (task for task in study.sample if task.type == task_type and _can_score(task)):
            value = argument(task)
            action = Action(name=FUNCTION_OF[task_type], arguments={_PARAMETER[task_type]: value})
            ours = _played(study, task, study.history(task), lambda state, action=action: action)
            scores.append((published_score(study.shops.of(task), task, action), ours))
        yield f"grader: {name}", scores


def _ways_to_act(study: "Study") -> Iterator[tuple[str, Scores]]:
    """What published agents, scripts and data do, and what is done here, both under our grader."""
    memory = _memory(study, "task_specific")
    function_of = {task.instruction: FUNCTION_OF[task.type] for task in study.sample}
    told, itself = PlainAgent(function_of.get, memory), PlainAgent(study.classifier, memory)
    tasks = [task for task in study.sample if _can_score(task)]
    yield "agent: told the task's type, its memory too", _compared(study, tasks, told, itself)

    recommend = [task for task in tasks if task.type == "recommend" and _bought(study, task)]
    for name, change in {
        "recommendation: ids in the order of a set (here: by id)": sorted,
        f"recommendation: the first of {SHORT} ids repeated three times (an earlier state)": _padded,
    }.items():
        scores = []
        for task in recommend:
            ids = _bought(study, task)[-SHORT:] if change is _padded else _bought(study, task)
            published, ours = (_played(study, task, (), _recommending(way)) for way in (change(ids), ids))
            scores.append((published, ours))
        yield name, scores

    last, scores = PlainAgent(study.classifier, _memory(study, "last")), []
    for task in tasks:
        own = study.benchmark.behaviors[task.user_id]
        until = tuple(behavior for behavior in own if behavior.timestamp <= task.timestamp)
        strictly = study.history(task, "as_published")
        scores.append((_played(study, task, until, last), _played(study, task, strictly, last)))
    yield "history: the target itself in it, at the task's own time", scores


_PARAMETER: dict[TaskType, str] = {"search": "query", "recommend": "product_sequence", "review": "review"}


def _least_alike(study: "Study") -> dict[str, str]:
    """task_id -> of the real reviews of all tasks, the one that is least like the task's own."""
    tasks = [task for task in study.sample if task.type == "review" and _can_score(task)]
    texts = [task.review.text for task in tasks]
    vectors = study.shops.embedder.encode(texts)
    return {
        task.task_id: texts[i] for task, i in zip(tasks, np.argmin(vectors @ vectors.T, axis=1), strict=True)
    }


def _can_score(task: Task) -> bool:
    return task.type != "review" or bool(task.review.text.strip())


def _memory(study: "Study", strategy: Strategy) -> Memory:
    settings = study.settings
    length = settings.play.memory_length
    return Memory(strategy, study.benchmark.products, study.memory_embedder, length, settings.seed)


def _bought(study: "Study", task: Task) -> list[str]:
    return [behavior.parent_asin for behavior in study.history(task)][-30:]


def _padded(ids: Sequence[str]) -> list[str]:
    return [*[ids[0]] * 3, *ids]


def _ids_of_three(study: "Study", task: Task) -> str:
    """The target's id among two others: a query that finds no more than these, in some order."""
    others = [asin for asin in sorted(study.benchmark.products) if asin != task.target][:2]
    return " ".join([*others, task.target])


def _recommending(ids: Sequence[str]) -> Agent:
    call = Action(name=FUNCTION_OF["recommend"], arguments={"product_sequence": list(ids)})
    return lambda state: call


def _compared(study: "Study", tasks: Sequence[Task], published: Agent, ours: Agent) -> Scores:
    histories = {task.task_id: study.history(task) for task in tasks}
    return [
        (_played(study, t, histories[t.task_id], published), _played(study, t, histories[t.task_id], ours))
        for t in tasks
    ]


def _played(study: "Study", task: Task, history: tuple[Behavior, ...], agent: Agent) -> Score:
    """A call under our grader."""
    results = attempts(run_episode(WebEnvironment(study.shops.of(task)), task, history, agent))
    return Score(float(bool(results)), sum(results))
