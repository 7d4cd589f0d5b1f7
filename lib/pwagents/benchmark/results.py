"""What methods reach, next to what needs no method and to the paper, and what one gains over another.

Runs are given by the name that tables show: name of the method -> its episodes, in the order of the tasks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pwagents.evaluation.breakdowns import sort_by_type, with_breakdowns
from pwagents.evaluation.episodes import EpisodeRecord, count_outcomes, records_frame
from pwagents.evaluation.figures import plot_intervals
from pwagents.evaluation.paper import IN_PERCENT, ORION, PERSONALWAB, Setup, below_paper, paper_table
from pwagents.evaluation.statistics import paired_gains, summarise
from pwagents.notebook.run import Run
from pwagents.schema import Benchmark, Task

Runs = Mapping[str, Sequence[EpisodeRecord]]

# Metrics as the tables of each track call them.
SINGLE_TURN = {"function_accuracy": "function", "result_official": "result"}
MULTI_TURN = {
    "function_accuracy": "function",
    "result_official": "official",
    "result_final": "final",
    "steps": "steps",
}
PROTOCOLS = {"leak_free": "leak-free", "as_published": "as published"}  # as tables call them


def frame_of(runs: Runs) -> pd.DataFrame:
    """All episodes as of :func:`pwagents.evaluation.episodes.records_frame`; ``method`` is the shown name."""
    return pd.concat([records_frame(records).assign(method=name) for name, records in runs.items()])


def distinct(runs: Runs) -> tuple[dict[str, Sequence[EpisodeRecord]], str]:
    """The first of each set of methods that played the very same episodes, and a line on which these are."""
    same: dict[str, list[str]] = {}
    for name, records in runs.items():
        played = [record.trajectory for record in records]
        first = next((other for other in same if [r.trajectory for r in runs[other]] == played), name)
        same.setdefault(first, []).append(name)
    sets = "; ".join(" = ".join(names) for names in same.values() if len(names) > 1)
    line = f"One row for methods that played the same episodes, as the policy reads no prompt: {sets}."
    return {name: runs[name] for name in same}, line if sets else ""


def prompting_tables(single: pd.DataFrame, multi: pd.DataFrame, here: Setup) -> list[dict[str, Any]]:
    """The papers' tables of prompting methods, ours in rows of their own, as arguments of ``run.table``.

    Args:
        single, multi: one row an episode of each track.
    """
    prompted = paper_table("Orion", "Table 1").index[:-3]  # the last ones are trained: notebooks 05 and 06
    alone, talking = (f[f["method"].isin(PERSONALWAB)] for f in (single, multi))
    orion = below_paper(multi[multi["method"].isin(ORION)], "Orion", "Table 1", here, prompted)
    return [
        {
            "data": below_paper(alone, "PersonalWAB", "Table 3", here),
            "name": "table_3",
            "title": "PersonalWAB, Table 3: prompting methods, single-turn",
        },
        {
            "data": below_paper(talking, "PersonalWAB", "Table 4", here),
            "name": "table_4",
            "title": "PersonalWAB, Table 4: prompting methods, multi-turn",
        },
        {
            "data": orion,
            "name": "orion_table_1",
            "title": "Orion, Table 1: prompting methods, in percent (Raw: No memory, CoT: Chain of thought)",
            "formats": IN_PERCENT,
        },
    ]


def plot_accuracy(rows: pd.DataFrame, by: str, of: str = ""):
    """Result accuracy by task type, a line of the figure for each value of ``by``.

    Args:
        rows: means and intervals, as of :func:`pwagents.evaluation.statistics.summarise`.
        of: the method at hand, where it is a single one.

    Returns:
        The matplotlib figure.
    """
    xlabel = f"result accuracy{of and f', {of}'} (95% interval)"
    figure = plot_intervals(rows, by, hue="type", xlabel=xlabel, xlim=(0, 1))
    if by == "history":
        figure.axes[0].set_ylabel("behaviours in the history")
    return figure


def broken_down(frame: pd.DataFrame, benchmark: Benchmark, by: str) -> pd.DataFrame:
    """Result accuracy by task type and by ``category`` of the target or band of the ``history``'s length."""
    detailed = with_breakdowns(frame, benchmark)
    summary = summarise(detailed, by=["type", by], metrics=["result_official"])
    return summary.sort_values(by, kind="stable") if by == "history" else summary


def gains_of_memory(results: pd.DataFrame, without: str) -> pd.DataFrame:
    """Result accuracy of each method minus that of the method ``without`` memory, by task type.

    Args:
        results: one row an episode, all under one protocol.

    Returns:
        ``method, task, difference, low, high, p, n_tasks, n_users``, paired by task, clustered by user.
    """
    ordered = sort_by_type(results)
    gains = {
        method: paired_gains(ordered, "result_official", method, without, by="type")
        for method in ordered["method"].unique()
        if method != without
    }
    return _by_method(gains)


def gains_of_hindsight(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Result accuracy as published minus leak-free, by method and task type; columns as of
    :func:`gains_of_memory`.

    Args:
        outcomes: one row an episode, with its ``protocol``.
    """
    gains = {}
    for method, part in sort_by_type(outcomes).groupby("method", sort=False):
        by_protocol = part.assign(method=part["protocol"])
        gains[method] = paired_gains(by_protocol, "result_official", "as_published", "leak_free", by="type")
    return _by_method(gains)


def _by_method(gains: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    parts = [frame.rename(columns={"type": "task"}).assign(method=name) for name, frame in gains.items()]
    table = pd.concat(parts, ignore_index=True)
    return table[["method", *table.columns.drop("method")]]


def show(run: Run, frame: pd.DataFrame, name: str, *, otherwise: str, **options: Any) -> None:
    """Save a table and display it; of one without rows, save nothing and print ``otherwise``.

    Args:
        options: of :meth:`pwagents.notebook.run.Run.table`.
    """
    from IPython.display import display

    if len(frame):
        display(run.table(frame, name, **options))
    else:
        print(otherwise)


def show_outcomes(run: Run, frame: pd.DataFrame, name: str, by: Sequence[str]) -> None:
    """How episodes ended, counted by the columns ``by``; in a line where every one was scored."""
    counts = count_outcomes(frame, by).rename(columns=lambda column: column.replace("_", " "))
    if (frame["outcome"] == "scored").all():
        counts = counts.iloc[:0]
    otherwise = f"All {len(frame):,} episodes were scored."
    show(run, counts, name, title="How the episodes ended", otherwise=otherwise)


def seconds_per_task(runs: Runs, tasks: Sequence[Task]) -> pd.DataFrame:
    """Wall-clock seconds of the episodes on some of the tasks: ``method, seconds, user_id, task_id``."""
    wanted = {task.task_id for task in tasks}
    rows = [
        {"method": name, "seconds": r.seconds, "user_id": r.user_id, "task_id": r.task_id}
        for name, records in runs.items()
        for r in records
        if r.task_id in wanted
    ]
    return pd.DataFrame(rows)
