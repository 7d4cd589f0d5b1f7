"""The tables of the benchmark notebook, made of runs' records: Table 3's shape, breakdowns, target's rank."""

from collections.abc import Mapping, Sequence

import pandas as pd

from pwagents.evaluation.records import EpisodeRecord
from pwagents.evaluation.statistics import summarise
from pwagents.evaluation.tables import interval_cells
from pwagents.schema import TASK_TYPES, Benchmark, Task
from pwagents.seeds import rng

TASKS = (*TASK_TYPES, "overall")
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
    """One row a method, one column a task type and metric, "overall" over all tasks last: Table 3's shape.

    Args:
        frame: one row an episode, as from :func:`pwagents.evaluation.runner.records_frame`.
        metrics: column of ``frame`` -> its name in the table.

    A method that was not scored on all the types of the frame has no "overall".

    Returns:
        The means, and the same as text with 95% intervals clustered by user.
    """
    types = frame.groupby("method")["type"].nunique()
    complete = types.index[types == frame["type"].nunique()]  # a mean over fewer tasks is no overall
    parts = []
    for task in TASKS:
        part = frame[frame["method"].isin(complete)] if task == "overall" else frame[frame["type"] == task]
        summary = summarise(part, by=["method"], metrics=list(metrics)).assign(task=task)
        parts.append(summary)
    summary = pd.concat(parts, ignore_index=True)
    summary["cell"] = interval_cells(summary)
    summary["name"] = summary["metric"].map(metrics)
    columns = pd.MultiIndex.from_product([TASKS, metrics.values()])
    means, cells = (
        summary.set_index(["method", "task", "name"])[value]
        .unstack(["task", "name"])
        .reindex(index=frame["method"].unique(), columns=columns)
        .rename_axis(index="method")
        for value in ("mean", "cell")
    )
    return means, cells


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
