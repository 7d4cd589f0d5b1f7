"""Why a search failed: whose doing it was, by asking what would have helped.

The target is not among the ten listed last. Asked in this order:

- tool: the search engine does not list it even for the request with all that the user can tell.
- simulator: the user held back, or told otherwise, what the cooperative user would have told at that point.
- agent: everything else. It asked too little, or made too little of the answers.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import pandas as pd

from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.orion.study import Study
from pwagents.schema import Step, Task
from pwagents.users.rules import RuleUser, find_run
from pwagents.web.search import SearchEngine

Cause = Literal["agent", "simulator", "tool"]


def failure_causes(study: Study, records: Mapping[str, Sequence[EpisodeRecord]]) -> pd.DataFrame:
    """How many searches fail, and whose doing it is, as shares of all searches.

    Args:
        records: a name (of a user, say) -> episodes on the study's test tasks.

    Returns:
        A row a name: ``method, searches, found``, and a share for each :data:`Cause`; they add up to 1.
    """
    tasks = {task.task_id: task for task in study.test_tasks}
    cooperative = RuleUser(study.benchmark.products, study.benchmark.profiles, study.seed)
    rows = []
    for name, played in records.items():
        searches = [record for record in played if record.type == "search" and record.grade]
        outcomes = [
            "found"
            if record.grade.result_final
            else cause_of(tasks[record.task_id], record.trajectory.steps, cooperative, study.engine)
            for record in searches
        ]
        shares = pd.Series(outcomes).value_counts(normalize=True)
        rows.append({"method": name, "searches": len(searches), **shares})
    return pd.DataFrame(rows, columns=["method", "searches", "found", *get_args(Cause)]).fillna(0.0)


def cause_of(task: Task, steps: Sequence[Step], cooperative: RuleUser, engine: SearchEngine) -> Cause:
    """Whose doing it is that a search failed.

    Args:
        cooperative: the user who tells all that they are asked for.
    """
    said = " ".join([task.instruction, *(fact.value for fact in cooperative.facts(task))])
    if task.target not in [asin for asin, _ in engine.search(said)]:
        return "tool"
    for i, step in enumerate(steps):
        if step.is_talk:
            _, fact = cooperative.react(task, steps[:i], step.action.arguments["content"])
            if fact and find_run(fact.value, step.observation.text) is None:
                return "simulator"
    return "agent"
