"""Tables of what trained agents achieve and of what training changed, made of runs' records.

What an agent asks and searches for, without its words: "color + type", "brand, then color".

A control: agents that are told another user's profile. What is personal must then be worth nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from pwagents.data.instructions import content_words
from pwagents.data.synthetic import Truth
from pwagents.evaluation.records import EpisodeRecord
from pwagents.evaluation.statistics import paired_test, summarise
from pwagents.profiles.catalogue import BANDS, TOPIC, Catalogue, Trait
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.profiles.types import ContextualProfile
from pwagents.profiles.update import settle
from pwagents.schema import Product, Task, Trajectory
from pwagents.seeds import rng
from pwagents.tasks.ambiguity import WordIndex
from pwagents.web.episode import Context
from pwagents.web.functions import FUNCTION_OF

FITTING = {"1 to 3": 4, "4 to 12": 13, "13 to 40": 41, "41 and more": 10**9}  # band -> where it ends


def with_ambiguity(
    frame: pd.DataFrame, tasks: Sequence[Task], index: WordIndex, truth: Truth | None
) -> pd.DataFrame:
    """The episodes with how much their instruction leaves open, the least first.

    Returns:
        The frame with ``fitting`` (products that fit what the instruction says, as a band of
        :data:`FITTING`) and ``untold`` (attributes of the target that neither instruction nor history
        tells, as a number; NaN without the latent truth).
    """
    by_id = {task.task_id: task for task in tasks}
    counts = {name: index.fitting(task.instruction, task.target) for name, task in by_id.items()}
    known = truth.tasks if truth else {}
    ends = [1, *FITTING.values()]
    fitting = pd.cut(frame["task_id"].map(counts), ends, right=False, labels=list(FITTING))
    untold = {name: len(known[name].in_head) for name in by_id if name in known}
    made = frame.assign(fitting=fitting.astype(str), count=frame["task_id"].map(counts))
    made = made.assign(untold=made["task_id"].map(untold).astype(float))
    return made.sort_values("count", kind="stable").drop(columns="count").reset_index(drop=True)


def by_seed(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One row a method: the mean of each seed, then over all seeds with an interval clustered by user.

    Args:
        frame: one row an episode with ``method, seed, task_id, user_id`` and ``metric``. The interval takes
            each task's mean over the seeds; it is of the tasks, the seeds' spread stands beside it.

    Returns:
        ``method``, a column "seed ..." each, ``mean, low, high`` and ``sd`` (of the seeds' means).
    """
    scored = frame.dropna(subset=[metric])
    keys = ["method", "user_id", "task_id"]
    pooled = summarise(scored.groupby(keys, sort=False)[metric].mean().reset_index(), ["method"], [metric])
    means = scored.groupby(["method", "seed"], sort=False)[metric].mean().unstack("seed").sort_index(axis=1)
    means = means.loc[pooled["method"]]
    table = means.rename(columns="seed {}".format).reset_index().rename_axis(columns=None)
    return pd.concat([table, pooled[["mean", "low", "high"]]], axis=1).assign(sd=means.std(axis=1).to_numpy())


def profile_effect(frame: pd.DataFrame, before: str, after: str, metric: str) -> pd.DataFrame:
    """What the user's own profile is worth before and after a training, and to the training's gain.

    Args:
        frame: one row an episode with ``method, task_id, user_id``, ``metric`` and ``profiles``: "own", or
            "another user's".
        before, after: the methods; tasks that not all four runs were scored on are left out.

    Returns:
        One row a comparison, as of :func:`paired_test`: own minus another user's profile, before and after;
        the gain of after over before, when after plays with its own profiles and when it has to play with
        others'; the gain when both play with others'; and the difference of the first gain and the last.
    """
    runs = frame[frame["method"].isin([before, after])]
    wide = runs.pivot_table(index=["user_id", "task_id"], columns=["method", "profiles"], values=metric)
    wide = wide.dropna()
    own, other = ({m: wide[m, name] for m in (before, after)} for name in ("own", "another user's"))
    gains = [profiles[after] - profiles[before] for profiles in (own, other)]
    compared = {
        f"{before}: own - another user's profile": (own[before], other[before]),
        f"{after}: own - another user's profile": (own[after], other[after]),
        f"{after} - {before}": (own[after], own[before]),
        f"{after} with another user's profile - {before}": (other[after], own[before]),
        f"{after} - {before}, both with another user's profile": (other[after], other[before]),
        "difference of the first gain and the last": tuple(gains),
    }
    rows = [{"comparison": name, **_paired(*pair)} for name, pair in compared.items()]
    return pd.DataFrame(rows)


def _paired(a: pd.Series, b: pd.Series) -> dict[str, float]:
    """:func:`paired_test` of two columns over the same tasks."""
    long = pd.concat({"a": a, "b": b}, names=["method"]).rename("value").reset_index()
    test = paired_test(long, "value", "a", "b")._asdict()
    return {name: test[name] for name in ("difference", "low", "high", "p", "n_tasks", "n_users")}


TYPE, OTHER, NOTHING = "type", "other words", "nothing"


def query_pattern(query: str, catalogue: Catalogue) -> str:
    """The attributes that a query names, in alphabetical order: "brand + color + type".

    ``type`` stands for words of products' titles that are no attribute's value, "other words" for the rest.
    """
    found = [trait for _, trait in catalogue.find(query)]
    taken = {word for trait in found for word in trait.value.lower().split()}
    names = {trait.about for trait in found}
    if not set(query.lower().split()).isdisjoint(BANDS):
        names.add("price")
    for word in content_words(query):
        if word not in taken and word not in BANDS:
            names.add(TYPE if catalogue.is_used(Trait(TOPIC, word)) else OTHER)
    return " + ".join(sorted(names)) or NOTHING


def queries(trajectory: Trajectory, catalogue: Catalogue) -> list[str]:
    """The patterns of an episode's searches, each once."""
    texts = [step.action.arguments["query"] for step in _valid(trajectory, FUNCTION_OF["search"])]
    return list(dict.fromkeys(query_pattern(text, catalogue) for text in texts))


def questions(trajectory: Trajectory, updater: OfflineUpdater) -> list[str]:
    """What an episode's questions are about, in their order, as one pattern: "color, brand"."""
    texts = [step.action.arguments["content"] for step in _valid(trajectory, "respond")]
    abouts = [updater.asked(text) or "something else" for text in texts]
    return [", ".join("anything" if about == TOPIC else about for about in abouts) or NOTHING]


def _valid(trajectory: Trajectory, function: str):
    return (step for step in trajectory.steps if step.action.name == function and not step.error)


def frequent_patterns(
    records: Sequence[EpisodeRecord], patterns_of: Callable[[Trajectory], list[str]], n: int = 10
) -> pd.DataFrame:
    """The ``n`` most frequent patterns of each method, side by side.

    Args:
        records: of one or several methods; those that were not scored are left out.
        patterns_of: the patterns of an episode, such as :func:`queries`.

    Returns:
        Rows by ``rank``; a method's columns are ``pattern``, ``share`` of its episodes that have it, and the
        ``result accuracy`` of these episodes.
    """
    scored = [record for record in records if record.outcome == "scored"]
    rows = [
        (record.method, pattern, record.grade.result_final)
        for record in scored
        for pattern in patterns_of(record.trajectory)
    ]
    frame = pd.DataFrame(rows, columns=["method", "pattern", "result"])
    parts = {}
    for method, episodes in Counter(record.method for record in scored).items():
        groups = frame[frame["method"] == method].groupby("pattern")["result"]
        table = pd.DataFrame({"share": groups.size() / episodes, "result accuracy": groups.mean()})
        table = table.rename_axis("pattern").reset_index()
        table = table.sort_values(["share", "pattern"], ascending=[False, True]).head(n)
        parts[method] = table.set_axis(range(1, len(table) + 1))
    return pd.concat(parts, axis=1).rename_axis("rank")


def foreign_contexts(
    tasks: Sequence[Task], products: Mapping[str, Product], context_of: Callable[[Task], Context], seed: int
) -> dict[str, Context]:
    """task_id -> what the episode begins with when profiles are shuffled between users.

    A task gets the past of another user, drawn by lot: P_ctx,0 and the ids bought, as retrieval found them
    for a task of the same type whose target is of the same category, where another user has one. So the
    profile is about the right sort of products and differs in whose it is alone. What the own instruction
    states stays as it was, and so does the earlier review that the agent is told of in a review task.

    Args:
        context_of: the own context of a task, such as :meth:`pwagents.orion.study.Study.context`.

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
        made[task.task_id] = _blend(context_of(task), context_of((alike or others)[0]))
    return {task.task_id: made[task.task_id] for task in tasks}


def _blend(own: Context, other: Context) -> Context:
    """The other's past under what the own instruction states."""
    past = tuple(line for line in other.profile.lines if line.provenance != "stated")
    stated = [line for line in own.profile.lines if line.provenance == "stated"]
    return Context(settle(ContextualProfile(lines=past), stated), other.bought)
