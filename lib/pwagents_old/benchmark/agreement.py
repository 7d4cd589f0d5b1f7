"""What each difference from PersonalWAB's code is worth: the published way beside the corrected one.

Each row is a kind of call, made on purpose for the tasks that it fits. So a row says what the difference is
worth where it occurs, not how often it occurs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pwagents.agents.memory import Memory
from pwagents.agents.offline import RuleAgent
from pwagents.results.metrics import GRADER as OURS
from pwagents.schema import FUNCTION_OF, Action, Behavior, Task, TaskType
from pwagents.shop.environment import Agent, Environment
from pwagents_old.benchmark.leaderboard import GRADER as PUBLISHED
from pwagents_old.benchmark.leaderboard import PARAMETER, Score, score_episode

if TYPE_CHECKING:
    from pwagents_old.benchmark.study import Study

# What stands below the table.
GRADERS = f"Grader: {OURS}; as published, in rows that begin with 'grader': {PUBLISHED}."
SHORT = 3  # ids, in what was a short sequence for the published code

Scores = list[tuple[Score, Score]]  # as published, corrected


def published_against_corrected(study: "Study") -> pd.DataFrame:
    """Try each difference on the sample of test tasks, leak-free, single-turn.

    Returns:
        A row each: what differs, the tasks that it was tried on, function and result accuracy in both ways;
        no row where there is no task to try it on.
        The first rows are two graders on the same calls, the others two ways to act under our grader.
    """
    tasks = [task for task in study.sample if task.type != "review" or task.review.text.strip()]
    rows = []
    for name, scores in (*compare_graders(study, tasks), *compare_ways_to_act(study, tasks)):
        if scores:
            means = np.mean([(*published, *ours) for published, ours in scores], axis=0)
            rows.append((name, len(scores), *means))
    ways = ("as published", "corrected")
    metrics = [f"{metric} accuracy, {way}" for way in ways for metric in ("function", "result")]
    return pd.DataFrame(rows, columns=["difference", "tasks", *metrics])


def compare_graders(study: "Study", tasks: Sequence[Task]) -> Iterator[tuple[str, Scores]]:
    """Grade the same calls by the published grader and by ours."""
    # Of each real review the one among all others that is least like it.
    texts = {task.task_id: task.review.text for task in tasks if task.type == "review"}
    vectors = study.shop.embedder.encode(list(texts.values()))
    least = np.argmin(vectors @ vectors.T, axis=1) if texts else []
    unlike = dict(zip(texts, (list(texts.values())[i] for i in least), strict=True))
    # Two ids for a query that finds no more than three products, the target among them.
    first = sorted(study.benchmark.products)[:3]
    calls: dict[str, tuple[TaskType, Callable[[Task], Any]]] = {
        "empty query": ("search", lambda task: ""),
        "blank query": ("search", lambda task: "  "),
        "empty review": ("review", lambda task: ""),
        "text where a list of ids is expected": ("recommend", lambda task: " ".join(_bought(study, task))),
        "fewer than ten results": (
            "search",
            lambda task: " ".join([*[asin for asin in first if asin != task.target][:2], task.target]),
        ),
        "the target's id in the text of a result": ("search", lambda task: task.instruction),
        "review unlike the real one": ("review", lambda task: unlike[task.task_id]),
    }
    for name, (task_type, argument) in calls.items():
        scores = []
        for task in (task for task in tasks if task.type == task_type):
            call = _call(task_type, argument(task))
            scores.append(_play(study, task, study.history(task), lambda state, call=call: call))
        yield f"grader: {name}", scores


def compare_ways_to_act(study: "Study", tasks: Sequence[Task]) -> Iterator[tuple[str, Scores]]:
    """Act as published agents and scripts do, and as is done here, both under our grader."""
    products, embedder = study.benchmark.products, study.roles.embedder
    length, seed = study.settings.play.memory_length, study.settings.seed
    memory = Memory("task_specific", products, embedder, length, seed)
    # Some published agents read the gold type of the task; ours has to tell it from the instruction.
    function_of = {task.instruction: FUNCTION_OF[task.type] for task in study.sample}
    agents = RuleAgent(function_of.get, memory), RuleAgent(study.roles.classifier, memory)
    scores = [tuple(_play(study, task, study.history(task), agent)[1] for agent in agents) for task in tasks]
    yield "agent: told the task's type, its memory too", scores

    def recommend(task: Task, ids: list[str]) -> Score:
        return _play(study, task, (), lambda state: _call("recommend", ids))[1]

    # Some published scripts lose the order of ids in a set, an earlier one repeated the first of few.
    pasts = [(task, _bought(study, task)) for task in tasks if task.type == "recommend"]
    pasts = [(task, ids) for task, ids in pasts if ids]
    scores = [(recommend(task, sorted(ids)), recommend(task, ids)) for task, ids in pasts]
    yield "recommendation: ids in the order of a set (here: by id)", scores
    short = [(task, ids[-SHORT:]) for task, ids in pasts]
    scores = [(recommend(task, [*[ids[0]] * 3, *ids]), recommend(task, ids)) for task, ids in short]
    yield f"recommendation: the first of {SHORT} ids repeated three times (an earlier state)", scores


def _call(task_type: TaskType, argument: Any) -> Action:
    return Action(name=FUNCTION_OF[task_type], arguments={PARAMETER[task_type]: argument})


def _bought(study: "Study", task: Task) -> list[str]:
    return [behavior.parent_asin for behavior in study.history(task)][-30:]


def _play(study: "Study", task: Task, history: tuple[Behavior, ...], agent: Agent) -> tuple[Score, Score]:
    """Score one call by the published scorer and by ours."""
    played = Environment(study.shop, task, history=history).play(agent)
    return score_episode(study.shop, task, played), score_episode(study.shop, task, played, ())
