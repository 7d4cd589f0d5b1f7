"""Results by task type, by what tasks are like, and compared pair by pair."""

from collections.abc import Mapping, Sequence

import pandas as pd

from pwagents.evaluation.records import EpisodeRecord
from pwagents.evaluation.statistics import paired_test, summarise
from pwagents.evaluation.tables import interval_cells
from pwagents.schema import TASK_TYPES, Benchmark, Task
from pwagents.seeds import rng

HISTORY_BANDS = (0, 10, 20, 40, 10**9)  # behaviours that an agent may see: 0-9, 10-19, 20-39, 40 and more


def sample_tasks(tasks: Sequence[Task], n: int, seed: int) -> list[Task]:
    """``n`` of the tasks at random, in their order; all of them for ``n`` = 0 or more than there are."""
    if not 0 < n < len(tasks):
        return list(tasks)
    chosen = rng(seed, "sample_tasks").choice(len(tasks), size=n, replace=False)
    return [tasks[i] for i in sorted(chosen)]


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows sorted by ``method``, as they first appear, then by ``type`` in the order of TASK_TYPES."""
    order = {"method": list(frame["method"].unique()), "type": TASK_TYPES}
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
        part = frame[frame["method"].isin(complete)] if task == "overall" else frame[frame["type"] == task]
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


def comparisons(frame: pd.DataFrame, pairs: Mapping[str, tuple[str, str]], metric: str) -> pd.DataFrame:
    """Paired tests of methods, one row a comparison and task type, "overall" after several.

    Args:
        frame: one row an episode, as from :func:`pwagents.evaluation.runner.records_frame`.
        pairs: what is compared, in words -> the two methods, first minus second.

    Returns:
        ``comparison, task, difference, low, high, p, n_tasks, n_users``, clustered by user
        (:func:`pwagents.evaluation.statistics.paired_test`). A pair without common tasks of a type has no
        row there.
    """
    rows = []
    for name, (a, b) in pairs.items():
        for task in _played(frame):
            part = frame if task == "overall" else frame[frame["type"] == task]
            rows.append({"comparison": name, "task": task, **paired_test(part, metric, a, b)._asdict()})
    tests = pd.DataFrame(rows).drop(columns="n_left_out")
    return tests[tests["n_tasks"] > 0].reset_index(drop=True)


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
            shown = next((s.observation.products for s in reversed(record.trajectory.steps) if s.attempt), ())
            target = targets[record.task_id]
            rank = str(shown.index(target) + 1) if target in shown else "not shown"
            rows.append((record.method, record.type, rank))
    counts = pd.DataFrame(rows, columns=["method", "type", "rank"]).value_counts(["method", "type", "rank"])
    shares = counts / counts.groupby(level=["method", "type"]).transform("sum")
    full = pd.MultiIndex.from_product([*(shares.index.levels[:2]), ranks], names=["method", "type", "rank"])
    return shares.reindex(full, fill_value=0.0).rename("share").reset_index()


def _played(frame: pd.DataFrame) -> list[str]:
    """The types of the frame's tasks, and "overall" where there are several."""
    types = [task for task in TASK_TYPES if task in set(frame["type"])]
    return [*types, "overall"] if len(types) > 1 else types
