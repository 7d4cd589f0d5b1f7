"""Controls: is what was learned about asking and about profiles learned for the right reason?

- Instructions that say more: who asks where it pays asks less, and nothing where all is said.
- Profiles of other users: what is personal must then be worth nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from pwagents.orion.runs import OrionRuns, episodes_frame
from pwagents.orion.settings import GrpoNotebook
from pwagents.orion.study import Study, make_study
from pwagents.schema import Product, Task
from pwagents.seeds import rng
from pwagents.web.episode import Context

COMPLETENESS = (0.6, 1.0)  # shares of the attributes that the controls' instructions name


def asks_by_completeness(
    settings: GrpoNotebook, policies: Mapping[str, Path], played: pd.DataFrame
) -> pd.DataFrame:
    """Searches of policies where instructions name more and more: same people, shop and targets. (Before a
    recommendation or a review hardly anything is asked.)

    Args:
        policies: method -> its folder.
        played: the methods' episodes with the instructions as they are.

    Returns:
        All episodes with ``named``, the share of attributes that instructions name: "20%", "60%", "100%".
    """
    searches = played[played["type"] == "search"]
    parts = [searches.assign(named=f"{settings.data.completeness:.0%}")]
    tasks = {"eval_tasks": settings.study.complete_tasks, "task_types": ("search",)}
    for share in COMPLETENESS:
        runs = OrionRuns(make_study(settings.changed(data={"completeness": share}, study=tasks)))
        found = episodes_frame(*(runs.policy(method, folder) for method, folder in policies.items()))
        parts.append(found.assign(named=f"{share:.0%}"))
    return pd.concat(parts)


def shuffled_runs(study: Study) -> OrionRuns:
    """Plays the test tasks with profiles shuffled between their users.

    What was retrieved for another user begins the episode as the own would: with what the own instruction
    says, and without what the products in question cannot have.

    Raises:
        ValueError: see :func:`foreign_contexts`.
    """
    foreign = foreign_contexts(study.test_tasks, study.benchmark.products, study.retrieved, study.seed)
    return OrionRuns(
        study,
        start=lambda task: study.start(task, study.begin(task, foreign[task.task_id])),
        variant={"profiles": "another user's", "seed": study.seed},
    )


def foreign_contexts(
    tasks: Sequence[Task], products: Mapping[str, Product], retrieved: Callable[[Task], Context], seed: int
) -> dict[str, Context]:
    """task_id -> what was retrieved for a task of another user, drawn by lot.

    It is a task of the same type whose target is of the same category, where another user has one. So the
    profile is about the right sort of products and differs in whose it is alone. The earlier review that the
    agent is told of in a review task stays the own.

    Args:
        retrieved: what retrieval found for a task, such as :meth:`pwagents.orion.study.Study.retrieved`.

    Raises:
        ValueError: all tasks are of one user.
    """
    if len({task.user_id for task in tasks}) < 2:
        raise ValueError("profiles cannot be shuffled between the users of these tasks: there is only one")
    order = [tasks[i] for i in rng(seed, "shuffled profiles").permutation(len(tasks))]
    made = {}
    for i, task in enumerate(order):
        others = [other for other in (*order[i + 1 :], *order[:i]) if other.user_id != task.user_id]
        category = products[task.target].category
        alike = [o for o in others if products[o.target].category == category and o.type == task.type]
        made[task.task_id] = retrieved((alike or others)[0])
    return {task.task_id: made[task.task_id] for task in tasks}
