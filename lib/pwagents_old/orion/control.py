"""Controls: is what was learned about asking and about profiles learned for the right reason?

- Instructions that say more: who asks where it pays asks less, and nothing where all is said.
- Profiles of other users: what is personal must then be worth nothing. And none, and the truth: what memory
  is worth, and what a flawless one would be.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from pwagents.data.splits import sample_tasks
from pwagents.data.synthetic import Truth
from pwagents.profiles.contextual import Context, ContextualProfile, ProfileLine
from pwagents.schema import Benchmark, Product, Task
from pwagents.seeds import rng
from pwagents.shop.environment import Environment
from pwagents.code import hash_of
from pwagents_old.orion.agent import purchases
from pwagents_old.orion.runs import OrionRuns
from pwagents_old.orion.settings import GrpoNotebook
from pwagents_old.orion.study import Study, make_study

SAME = 0.9  # share of tasks from which two policies count as the same
# What a policy is told of its user when an episode begins.
OWN, FOREIGN, NONE, TRUE = "own profile", "another user's profile", "no profile", "true preferences"


def asks_by_instruction(
    settings: GrpoNotebook, policies: Mapping[str, Path], played: pd.DataFrame
) -> pd.DataFrame:
    """Searches and recommendations of policies where instructions say more: the same tasks in other words.

    Args:
        policies: method -> its folder.
        played: the methods' episodes with the instructions of the settings.

    Returns:
        The episodes of ``study.complete_tasks`` tasks, with ``instruction``: "ambiguous", the source's own
        ("explicit"), and, on the embedded world, one that names all attributes ("complete").
    """
    study = make_study(settings)
    asked = [task for task in study.test_tasks if task.type != "review"]
    chosen = {task.task_id for task in sample_tasks(asked, settings.study.complete_tasks, study.seed)}
    own = settings.study.instructions
    parts = [played[played["task_id"].isin(chosen)].assign(instruction=own)]
    changes = {name: {"study": {"instructions": name}} for name in ("ambiguous", "explicit") if name != own}
    if settings.data.source == "synthetic":
        changes["complete"] = {"data": {"completeness": 1.0}, "study": {"instructions": "explicit"}}
    for name, change in changes.items():
        there = make_study(settings.changed(**change))
        runs = OrionRuns(there, tasks=[task for task in there.test_tasks if task.task_id in chosen])
        episodes = runs.frame(*(runs.policy(method, folder) for method, folder in policies.items()))
        parts.append(episodes.assign(instruction=name))
    return pd.concat(parts)


def play_with_profiles(study: Study, policies: Mapping[str, Path], own: pd.DataFrame) -> pd.DataFrame:
    """The test tasks, played with other profiles than the own.

    Args:
        policies: method -> its folder.
        own: the methods' episodes with the own profiles, among others.

    Returns:
        All episodes of these methods with ``profiles``: :data:`OWN`, or those of
        :func:`runs_with_other_profiles`.

    Raises:
        ValueError: see :func:`foreign_contexts`.
    """
    parts = [own[own["method"].isin(policies)].assign(profiles=OWN)]
    for profiles, runs in runs_with_other_profiles(study).items():
        played = runs.frame(*(runs.policy(method, folder) for method, folder in policies.items()))
        parts.append(played.assign(profiles=profiles))
    return pd.concat(parts, ignore_index=True)


def runs_with_other_profiles(study: Study) -> dict[str, OrionRuns]:
    """What plays the test tasks with other profiles than the own, by what they are.

    :data:`FOREIGN` is what was retrieved for another user, :data:`NONE` nothing, :data:`TRUE`, of the
    embedded world alone, the truth (:func:`true_contexts`). With the profile go the purchases told; the
    earlier review that the agent is told of in a review task stays the own.

    Raises:
        ValueError: see :func:`foreign_contexts`.
    """
    tasks, products = study.test_tasks, study.benchmark.products
    found = {
        FOREIGN: foreign_contexts(tasks, products, study.context, study.seed),
        NONE: {task.task_id: Context(ContextualProfile()) for task in tasks},
    }
    if study.truth:
        found[TRUE] = true_contexts(tasks, study.benchmark, study.truth)
    runs = {}
    for profiles, contexts in found.items():
        begun = [(task_id, each.profile.model_dump(), each.purchases) for task_id, each in contexts.items()]

        def start(task: Task, contexts: Mapping[str, Context] = contexts) -> Environment:
            return study.start(task, contexts[task.task_id])

        runs[profiles] = OrionRuns(study, start=start, variant={"contexts": hash_of(begun)})
    return runs


def true_contexts(tasks: Sequence[Task], benchmark: Benchmark, truth: Truth) -> dict[str, Context]:
    """task_id -> what a flawless memory and a flawless retrieval would tell of a test task's user.

    Their preferences of today in the interest that the target is of, which an agent must find out, what they
    avoid there, and what they bought of it, beside others. It is no bound: nobody always buys what they
    prefer, and a tier is not quite a price band of the catalogue, a third of the prices.
    """
    made = {}
    for task in tasks:
        person, domain = truth.people[task.user_id], truth.items[task.target].domain
        current = next(interest.current for interest in person.interests if interest.domain == domain)
        values = [(slot, value) for slot, all_values in domain.values.items() for value in all_values]
        told = [(slot, value, True) for slot, value in current.items()]
        told += [(slot, value, False) for slot, value in values if value in person.dislikes]
        # In the form of the offline profiles, which tell of a price, not of a tier.
        lines = [
            ProfileLine.of(f"{'price' if slot == 'tier' else slot}: {value}", is_wanted, "history")
            for slot, value, is_wanted in told
        ]
        history = benchmark.history(task, "test")
        interest = [i for i, b in enumerate(history) if truth.items[b.parent_asin].domain == domain]
        profile = ContextualProfile(lines=tuple(lines))
        made[task.task_id] = Context(profile, purchases(benchmark, history, interest))
    return made


def foreign_contexts(
    tasks: Sequence[Task], products: Mapping[str, Product], retrieved: Callable[[Task], Context], seed: int
) -> dict[str, Context]:
    """task_id -> what was retrieved for a task of another user, drawn by lot.

    It is a task of the same type whose target is of the same category, where another user has one. So the
    profile is about the right sort of products and differs in whose it is alone. The earlier review that the
    agent is told of in a review task stays the own.

    Args:
        retrieved: what retrieval found for a task, such as :meth:`pwagents_old.orion.study.Study.context`.

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


def identify_parts(frame: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Whether two trained methods are different policies, task by task.

    Args:
        frame: one row an episode, as of :meth:`OrionRuns.frame`, with ``seed``; of episodes that were all
            played alike, so that what differs is the policy.

    Returns:
        A row a seed: the share of tasks on which both ask ``as often`` and reach the ``same result``, the
        share of searches with the ``same query`` (NaN without any), the mean ``questions`` and ``return`` of
        each, and a ``verdict``: "not identified" where nine tasks of ten or more are alike in all of these.
    """
    rows = []
    for seed, own in frame[frame["method"].isin(methods)].groupby("seed"):
        scored = own.dropna(subset=["result_final"])
        a, b = (scored[scored["method"] == method].set_index("task_id") for method in methods)
        a, b = a.align(b, join="inner", axis=0)  # tasks that both were scored on
        alike = {
            "as often": a["asks"] == b["asks"],
            "same query": (a["query"] == b["query"])[a["type"] == "search"],
            "same result": a["result_final"] == b["result_final"],
        }
        row = {"seed": seed, **{name: each.mean() for name, each in alike.items()}}
        for method, episodes in zip(methods, (a, b), strict=True):
            row |= {f"{method}: questions": episodes["asks"].mean()}
            row |= {f"{method}: return": episodes["return"].mean()}
        row["verdict"] = "identified" if any(row[name] < SAME for name in alike) else "not identified"
        rows.append(row)
    return pd.DataFrame(rows)
