"""Results by task type, by what tasks are like, and compared pair by pair."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.evaluation.records import EpisodeRecord
from pwagents.evaluation.statistics import PairedTest, paired_test, summarise
from pwagents.evaluation.tables import interval_cells
from pwagents.schema import TASK_TYPES, Benchmark, Task
from pwagents.seeds import rng

HISTORY_BANDS = (0, 10, 20, 40, 10**9)  # behaviours that an agent may see: 0-9, 10-19, 20-39, 40 and more

# In place of a task type: all tasks, in whose mean each weighs the same, and the mean of the types' means.
OVERALL, MEAN = "overall", "mean"

BEYOND = "beyond the noise of seeds"  # heading: whether a difference is larger than seeds alone may make


def sample_tasks(tasks: Sequence[Task], n: int, seed: int) -> list[Task]:
    """``n`` of the tasks at random, in their order; all of them for ``n`` = 0 or more than there are."""
    if not 0 < n < len(tasks):
        return list(tasks)
    chosen = rng(seed, "sample_tasks").choice(len(tasks), size=n, replace=False)
    return [tasks[i] for i in sorted(chosen)]


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows by ``method``, as they first appear, then by ``type``: TASK_TYPES, then those of all tasks."""
    order = {"method": list(frame["method"].unique()), "type": (*TASK_TYPES, OVERALL, MEAN)}
    return frame.sort_values(["method", "type"], key=lambda c: c.map(order[c.name].index), kind="stable")


def by_task(frame: pd.DataFrame, metrics: Mapping[str, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a method, one column a task type and metric: the shape of PersonalWAB's Table 3.

    Only types that were played have columns; several are followed by "overall", the mean over all tasks,
    which stays empty for a method that was not scored on all of these types.

    Args:
        frame: one row an episode, as from :func:`pwagents.evaluation.runner.records_frame`.
        metrics: column of ``frame`` -> its name in the table.

    Returns:
        The means, and the same as text with 95% intervals clustered by user.
    """
    types = frame.groupby("method")["type"].nunique()
    complete = types.index[types == frame["type"].nunique()]  # a mean over fewer tasks is no overall
    parts = []
    for task in _played(frame):
        part = frame[frame["method"].isin(complete)] if task == OVERALL else frame[frame["type"] == task]
        parts.append(summarise(part, by=["method"], metrics=list(metrics)).assign(task=task))
    summary = pd.concat(parts, ignore_index=True)
    summary["cell"] = interval_cells(summary)
    summary["name"] = summary["metric"].map(metrics)
    columns = pd.MultiIndex.from_product([_played(frame), metrics.values()])
    means, cells = (
        summary.set_index(["method", "task", "name"])[value]
        .unstack(["task", "name"])
        .reindex(index=frame["method"].unique(), columns=columns)
        .rename_axis(index="method")
        for value in ("mean", "cell")
    )
    return means, cells


def by_type_and_mean(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means by method and task type, below them :data:`MEAN`, in which each type weighs the same.

    "overall" of :func:`by_task` weighs each task the same instead. Here a task moves the mean by
    1 / (number of types x tasks of its type), and the interval, clustered by user, is of these parts.

    Args:
        frame: one row an episode, as from :func:`pwagents.evaluation.runner.records_frame`.
        metric: a column of it.

    Returns:
        As of :func:`pwagents.evaluation.statistics.summarise` by ``method, type``. A method that was not
        scored on all types of the frame has no mean, and where there is a single type nobody has.
    """
    rows = [summarise(frame, ["method", "type"], [metric])]
    scored = frame.dropna(subset=[metric])
    n_types = scored["type"].nunique()
    types = scored.groupby(["method", "type"], sort=False)[metric]
    middle = scored["method"].map(types.mean().groupby("method").mean())
    share = scored.groupby("method")[metric].transform("size") / (n_types * types.transform("size"))
    parts = middle + share * (scored[metric] - types.transform("mean"))
    complete = scored.groupby("method")["type"].transform("nunique") == n_types
    if n_types > 1:
        balanced = scored.assign(**{metric: parts, "type": MEAN})[complete]
        rows.append(summarise(balanced, ["method", "type"], [metric]))
    return in_order(pd.concat(rows)).reset_index(drop=True)


def trained_differences(
    frame: pd.DataFrame,
    pairs: Mapping[str, tuple[str, str]],
    metric: str,
    seed_noise: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Differences of given policies, one row a comparison and task type, "overall" after several.

    There is no p: where a policy was trained once, tasks tell of this policy, not of how it was trained.

    Args:
        frame: one row an episode, as from :func:`pwagents.evaluation.runner.records_frame`.
        pairs: what is compared, in words -> the two methods, first minus second.
        seed_noise: how far two trainings of one method may differ by their seeds alone, by task type and
            "overall" (:func:`pwagents.evaluation.seeds.must_exceed`); None where that was not measured.

    Returns:
        ``comparison, task, difference, low, high, n_tasks, n_users``, the interval over tasks clustered by
        user; with ``seed_noise`` also whether the difference exceeds it ("yes", "no", or "not measured" on
        this type). A pair without common tasks of a type has no row there.
    """
    rows = []
    for name, (a, b) in pairs.items():
        for task, part in parts_of(frame):
            rows.append({"comparison": name, "task": task, **paired_test(part, metric, a, b)._asdict()})
    columns = ["comparison", "task", *PairedTest._fields]
    table = pd.DataFrame(rows, columns=columns).drop(columns=["p", "n_left_out"])
    table = table[table["n_tasks"] > 0].reset_index(drop=True)
    if seed_noise is None:
        return table
    noise = table["task"].map(dict(seed_noise))
    exceeds = np.where(table["difference"].abs() > noise, "yes", "no")
    return table.assign(**{BEYOND: np.where(noise.isna(), "not measured", exceeds)})


def with_breakdowns(frame: pd.DataFrame, benchmark: Benchmark) -> pd.DataFrame:
    """The frame with what to break results down by: the target's ``category`` and the ``history`` band."""
    tasks = {task.task_id: task for task in benchmark.all_tasks()}
    categories = [benchmark.products[tasks[task_id].target].category for task_id in frame["task_id"]]
    lengths = [len(benchmark.history(tasks[task_id], "test")) for task_id in frame["task_id"]]
    labels = ["0-9", "10-19", "20-39", "40 and more"]
    bands = pd.cut(lengths, bins=HISTORY_BANDS, right=False, labels=labels)
    return in_order(frame.assign(category=categories, history=bands.astype(str)))


def target_ranks(records: Sequence[EpisodeRecord], benchmark: Benchmark) -> pd.DataFrame:
    """Where the target stood in the last attempt's list, as ``method, type, rank, share`` of the episodes.

    ``rank`` is "1" to "10" or "not shown". Search and recommend only; without an attempt nothing is shown.
    """
    targets = {task.task_id: task.target for task in benchmark.all_tasks()}
    ranks = [str(r) for r in range(1, 11)] + ["not shown"]
    rows = []
    for record in records:
        if record.outcome == "scored" and record.type != "review":
            played = record.trajectory
            lists = (s.observation.products for s in reversed(played.steps) if played.is_attempt(s))
            shown, target = next(lists, ()), targets[record.task_id]
            rank = str(shown.index(target) + 1) if target in shown else "not shown"
            rows.append((record.method, record.type, rank))
    counts = pd.DataFrame(rows, columns=["method", "type", "rank"]).value_counts(["method", "type", "rank"])
    shares = counts / counts.groupby(level=["method", "type"]).transform("sum")
    full = pd.MultiIndex.from_product([*(shares.index.levels[:2]), ranks], names=["method", "type", "rank"])
    return shares.reindex(full, fill_value=0.0).rename("share").reset_index()


def parts_of(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The episodes of each type that was played and, after several types, "overall": all of them."""
    return [(task, frame if task == OVERALL else frame[frame["type"] == task]) for task in _played(frame)]


def _played(frame: pd.DataFrame) -> list[str]:
    """The types of the frame's tasks, and "overall" where there are several."""
    types = [task for task in TASK_TYPES if task in set(frame["type"])]
    return [*types, OVERALL] if len(types) > 1 else types
