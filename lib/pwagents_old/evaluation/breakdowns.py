"""Results by task type, by what tasks are like, and compared pair by pair.

A mean over part of its tasks says so. A user, judge or updater that cannot answer leaves a task without a
score (what the *agent* refuses counts 0). Then the table has a column "scored" beside that type, such as "7
of 10", and an overall or a mean of types over fewer types than were played is absent. A ``frame`` has one row
an episode (:func:`pwagents_old.evaluation.episodes.records_frame`).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.schema import TASK_TYPES, Benchmark, Task
from pwagents.seeds import rng
from pwagents_old.evaluation.episodes import EpisodeRecord
from pwagents_old.evaluation.statistics import PairedTest, name_left_out, paired_test, summarise
from pwagents.results.tables import format_intervals

# In place of a task type: all tasks, in whose mean each weighs the same, and the mean of the types' means.
OVERALL, MEAN = "overall", "mean"

BEYOND = "beyond the noise of seeds"  # heading: whether a difference is larger than seeds alone may make
SCORED = "scored"  # heading: how many of a type's tasks a mean is over, where it is not over all


def sample_tasks(tasks: Sequence[Task], n: int, seed: int) -> list[Task]:
    """Draw ``n`` of the tasks, in their order; all of them for ``n`` = 0 or more than there are."""
    if not 0 < n < len(tasks):
        return list(tasks)
    chosen = rng(seed, "sample_tasks").choice(len(tasks), size=n, replace=False)
    return [tasks[i] for i in sorted(chosen)]


def sort_by_type(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by ``method``, as they first appear, then by ``type``, those of all tasks last."""
    order = {"method": list(frame["method"].unique()), "type": (*TASK_TYPES, OVERALL, MEAN)}
    return frame.sort_values(["method", "type"], key=lambda c: c.map(order[c.name].index), kind="stable")


def split_by_type(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Split episodes by the types that were played; after several types, "overall" has all of them."""
    parts = [(task, frame[frame["type"] == task]) for task in TASK_TYPES if task in set(frame["type"])]
    return [*parts, (OVERALL, frame)] if len(parts) > 1 else parts


def by_task(frame: pd.DataFrame, metrics: Mapping[str, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tabulate one row a method, one column a task type and metric: the shape of PersonalWAB's Table 3.

    Only types that were played have columns. Several are followed by "overall", the mean over all tasks,
    which stays empty for a method that was not scored on all of these types.

    Args:
        metrics: column of ``frame`` -> its name in the table.

    Returns:
        The means, and the same as text with 95% intervals clustered by user. Where a method was scored on
        part of a type's tasks, both have a column (type, :data:`SCORED`).
    """
    methods, parts = frame["method"].unique(), split_by_type(frame)
    means, cells = {}, {}
    for task, part in parts:
        for metric, name in metrics.items():
            summary = summarise(part, ["method"], [metric]).set_index("method")
            if task == OVERALL:  # a mean over fewer types is no overall
                n_types = part.dropna(subset=[metric]).groupby("method")["type"].nunique()
                summary.loc[n_types.reindex(summary.index, fill_value=0) < len(parts) - 1, "mean"] = np.nan
            means[task, name], cells[task, name] = summary["mean"], format_intervals(summary)
        # A metric that a method has nowhere (a reference has no steps) says nothing of what was scored.
        scored = part[list(metrics)].notna().any(axis=1).groupby(part["method"]).agg(["sum", "size"])
        partly = scored[scored["sum"] < scored["size"]]
        if len(partly):
            texts = partly["sum"].astype(str) + " of " + partly["size"].astype(str)
            means[task, SCORED] = cells[task, SCORED] = texts
    tables = (pd.DataFrame(columns).reindex(methods).rename_axis("method") for columns in (means, cells))
    return tuple(tables)


def by_type_and_mean(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Tabulate means by method and task type, below them :data:`MEAN`, in which each type weighs the same.

    "overall" of :func:`by_task` weighs each task the same instead. Here a task moves the mean by
    1 / (number of types x tasks of its type), and the interval, clustered by user, is of these parts.

    Returns:
        As of :func:`pwagents_old.evaluation.statistics.summarise` by ``method, type``. A method that was not
        scored on all types of the frame has no mean, and where there is a single type nobody has.
    """
    frame = frame.reset_index(drop=True)
    rows, n_types = [summarise(frame, ["method", "type"], [metric])], frame["type"].nunique()
    # A task's part is the mean of types' means, plus its residual within its type, weighed as the type is.
    # The parts' mean is that mean; a user's residuals add up across types, as the clustered interval needs.
    scored = frame.dropna(subset=[metric])
    types = scored.groupby(["method", "type"], sort=False)[metric]
    middle = scored["method"].map(types.mean().groupby("method").mean())
    share = scored.groupby("method")[metric].transform("size") / (n_types * types.transform("size"))
    parts = middle + share * (scored[metric] - types.transform("mean"))
    complete = scored.groupby("method")["type"].transform("nunique") == n_types
    if n_types > 1 and complete.any():
        # Rows that were not scored stay, for the mean says how many they are.
        balanced = frame.assign(**{metric: parts, "type": MEAN})
        balanced = balanced[balanced["method"].isin(scored.loc[complete, "method"])]
        rows.append(summarise(balanced, ["method", "type"], [metric]))
    return sort_by_type(pd.concat(rows)).reset_index(drop=True)


def trained_differences(
    frame: pd.DataFrame,
    pairs: Mapping[str, tuple[str, str]],
    metric: str,
    seed_noise: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Compare given policies, one row a comparison and task type, "overall" after several.

    There is no p: where a policy was trained once, tasks tell of this policy, not of how it was trained.

    Args:
        pairs: what is compared, in words -> the two methods, first minus second.
        seed_noise: how far two trainings of one method may differ by their seeds alone, by task type and
            "overall" (:func:`pwagents_old.evaluation.seeds.must_exceed`); None where that was not measured.

    Returns:
        ``comparison, task`` and those of :class:`PairedTest`, ``n_left_out`` only where there are any; with
        ``seed_noise`` also whether the difference exceeds it ("yes", "no", or "not measured" on this type). A
        pair without common tasks of a type has no row there, nor has "overall" where it lacks a type.
    """
    # A mean over fewer types is no overall of the pair.
    rows, scored = [], frame.dropna(subset=[metric])
    for name, (a, b) in pairs.items():
        types = scored.groupby("method")["type"].unique()
        whole = all({*types.get(method, ())} == {*frame["type"]} for method in (a, b))
        for task, part in split_by_type(frame):
            if task != OVERALL or whole:
                test = paired_test(part, metric, a, b, flips=0)
                rows.append({"comparison": name, "task": task, **test._asdict()})
    table = pd.DataFrame(rows, columns=["comparison", "task", *PairedTest._fields]).drop(columns="p")
    table = table[table["n_tasks"] > 0].reset_index(drop=True)
    table = name_left_out(table)
    if seed_noise is None:
        return table
    # One training a method: a difference counts where it exceeds what two seeds of one method may differ by.
    noise = table["task"].map(dict(seed_noise))
    exceeds = np.where(table["difference"].abs() > noise, "yes", "no")
    return table.assign(**{BEYOND: np.where(noise.isna(), "not measured", exceeds)})


def with_breakdowns(frame: pd.DataFrame, benchmark: Benchmark) -> pd.DataFrame:
    """Add what to break results down by: the target's ``category`` and the ``history`` band."""
    tasks = {task.task_id: task for task in benchmark.all_tasks()}
    categories = [benchmark.products[tasks[task_id].target].category for task_id in frame["task_id"]]
    lengths = [len(benchmark.history(tasks[task_id], "test")) for task_id in frame["task_id"]]
    labels = ["0-9", "10-19", "20-39", "40 and more"]  # behaviours that an agent may see
    bands = pd.cut(lengths, bins=[0, 10, 20, 40, np.inf], right=False, labels=labels)
    return sort_by_type(frame.assign(category=categories, history=bands.astype(str)))


def target_ranks(records: Sequence[EpisodeRecord]) -> pd.DataFrame:
    """Count at which rank the last attempt's list had the target: ``method, type, rank, share`` of episodes.

    ``rank`` is "1" to "10" or "not shown". Search and recommend only; without an attempt nothing is shown.
    """
    ranks = [str(r) for r in range(1, 11)] + ["not shown"]
    # An attempt that was not shown any list, and an episode without attempts, count as "not shown".
    rows = []
    for record in records:
        if record.outcome == "scored" and record.type != "review":
            played = record.trajectory
            lists = (s.observation.products for s in reversed(played.steps) if played.is_attempt(s))
            shown, target = next(lists, ()), played.target
            rank = str(shown.index(target) + 1) if target in shown else "not shown"
            rows.append((record.method, record.type, rank))
    counts = pd.DataFrame(rows, columns=["method", "type", "rank"]).value_counts(["method", "type", "rank"])
    shares = counts / counts.groupby(level=["method", "type"]).transform("sum")
    full = pd.MultiIndex.from_product([*(shares.index.levels[:2]), ranks], names=["method", "type", "rank"])
    return shares.reindex(full, fill_value=0.0).rename("share").reset_index()
