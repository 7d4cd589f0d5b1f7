"""The main numbers of a preset, one a line, read from the numbers of the notebooks' own figures.

Nothing is computed here: a line is a point of a figure with its 95% interval, over tasks, clustered by user,
or over seeds where several were trained. A method that no notebook played on a task has no line there.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pwagents.errors import DataError
from pwagents.evaluation.breakdowns import MEAN
from pwagents.evaluation.figures import assign_colors, escape_math, use_style
from pwagents.evaluation.tables import csv_text, format_intervals
from pwagents.notebook.reference import REFERENCE, SUMMARY
from pwagents.notebook.settings import INTERACTIVE
from pwagents.project import project_path, write_aside
from pwagents.schema import TASK_TYPES


class Place(NamedTuple):
    """Where a line comes from: a figure's numbers, and the method there; and what readers call it."""

    figure: str
    method: str
    label: str


METHODS = {
    "instruction": Place("04_variants", "Simple rules", "simple rules"),
    "plain": Place("04_variants", "Plain agent", "plain agent"),
    "puma": Place("04_variants", "PUMA", "PUMA"),
    "puma_sft": Place("04_variants", "w/o DPO", "PUMA without DPO"),
    "puma_no_memory": Place("04_variants", "PUMA, memory taken away", "PUMA, no memory"),
    "puma_pipelines": Place("04_pipelines", "PUMA", "PUMA, pipelines"),
    "puma_sft_pipelines": Place("04_pipelines", "w/o DPO", "PUMA without DPO, pipelines"),
    "base": Place("05_results", "Base", "base (Orion)"),
    "orion_sft": Place("05_results", "SFT", "SFT (Orion)"),
    "orion_ppo": Place("06_results", "PPO", "PPO (Orion)"),
    "orion_grpo": Place("06_results", "GRPO", "GRPO (Orion)"),
    "base_pipelines": Place("07_pipelines", "Base", "base, pipelines"),
    "orion_sft_pipelines": Place("07_pipelines", "SFT", "SFT, pipelines"),
    "orion_ppo_pipelines": Place("07_pipelines", "PPO", "PPO, pipelines"),
    "orion_grpo_pipelines": Place("07_pipelines", "GRPO", "GRPO, pipelines"),
    "teacher": Place("05_results", "Teacher", "teacher (Orion)"),
    "recommender_whole_history": Place("03_recommender", "whole history", "SASRec: whole history"),
    "recommender_right_interest": Place("03_recommender", "right interest", "SASRec: right interest"),
}
TASKS = (*TASK_TYPES, MEAN)
COLUMNS = ("name", "task", "value", "low", "high", "n_tasks", "n_seeds", "notebook")


def summary_of(output_dir: Path) -> pd.DataFrame:
    """The lines of a preset's stored numbers, with :data:`COLUMNS`, in the order of :data:`METHODS`.

    ``value`` is the result accuracy (0 to 1), ``low`` and ``high`` the ends of its 95% interval: over
    ``n_tasks`` tasks where ``n_seeds`` is 1, else over so many seeds, which have played these tasks; of a
    single pipeline there is no line. A notebook opened by hand where nothing ran yet reads
    ``outputs/reference``.

    Raises:
        DataError: none of the figures' numbers is there.
    """
    found = _stored(output_dir)
    if not found:
        names = ", ".join(dict.fromkeys(place.figure for place in METHODS.values()))
        raise DataError(output_dir / "figures", names, "files", "none", "the numbers of notebooks 03 to 06")
    lines = []
    for name, place in METHODS.items():
        if place.figure in found:
            frame = found[place.figure]
            rows = frame[frame["method"] == place.method].rename(columns={"type": "task", "mean": "value"})
            rows = rows.sort_values("task", key=lambda tasks: tasks.map(TASKS.index))
            rows = rows[rows["n_seeds"] > 1] if "n_seeds" in rows else rows.assign(n_seeds=1)
            lines.append(rows.assign(name=name, notebook=place.figure[:2]))
    return pd.concat(lines, ignore_index=True)[list(COLUMNS)]


def write_summary(lines: pd.DataFrame, output_dir: Path) -> Path:
    """Write ``<output_dir>/summary.csv`` (6 significant digits); its path."""
    path = output_dir / SUMMARY
    write_aside(path, csv_text(lines))
    return path


def side_by_side(lines: pd.DataFrame) -> pd.DataFrame:
    """The lines to be read: a row a method, a column a task, values with their intervals, and the tasks."""
    cells = format_intervals(lines.rename(columns={"value": "mean"}))
    rows = lines.assign(cell=cells, method=[METHODS[name].label for name in lines["name"]])
    wide = rows.pivot(index="method", columns="task", values="cell")
    wide = wide.reindex(index=rows["method"].unique(), columns=[t for t in TASKS if t in wide])
    single = rows[rows["task"] != MEAN].groupby("method")
    counts = single["n_tasks"].agg(lambda counts: " + ".join(f"{n:,}" for n in counts))
    return wide.assign(tasks=counts, notebook=single["notebook"].first()).reset_index()


def plot_summary(lines: pd.DataFrame):
    """A dot with its 95% interval for each method, a panel for each task, in the task's colour.

    Args:
        lines: of :func:`summary_of`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figure_files.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    names, tasks = list(lines["name"].unique()), [task for task in TASKS if task in set(lines["task"])]
    size = (3.2 + 2.7 * len(tasks), 1.6 + 0.36 * len(names))
    fig, axes = plt.subplots(1, len(tasks), figsize=size, sharey=True, squeeze=False)
    colors = assign_colors(TASKS)
    for ax, task in zip(axes.flat, tasks, strict=True):
        part = lines[lines["task"] == task]
        reach = [part["value"] - part["low"], part["high"] - part["value"]]
        places = part["name"].map(names.index)
        ax.errorbar(part["value"], places, xerr=reach, fmt="o", markersize=5, capsize=3, color=colors[task])
        ax.set(title=task, xlim=(-0.03, 1.03), xticks=(0, 0.5, 1), xlabel="result accuracy\n(95% interval)")
        ax.xaxis.set_major_formatter("{x:g}")
    axes.flat[0].set_yticks(range(len(names)), [escape_math(METHODS[name].label) for name in names])
    axes.flat[0].set_ylim(len(names) - 0.5, -0.5)
    return fig


def backbones(output_dir: Path) -> str:
    """The models behind the lines, as the figures tell them; empty where none does."""
    told = [frame.attrs["stamp"].partition("backbone: ")[2] for frame in _stored(output_dir).values()]
    return "; ".join(dict.fromkeys(text.partition(" · ")[0] for text in told if text))


def results_folder(output_dir: Path) -> Path:
    """Where results are: ``output_dir``, but the reference where notebooks are opened by hand and none of
    those that are summed up has run."""
    by_hand = output_dir == project_path(INTERACTIVE)
    return REFERENCE if by_hand and not _figures(output_dir) else output_dir


def _figures(folder: Path) -> dict[str, Path]:
    """The files of those figures that are there."""
    names = dict.fromkeys(place.figure for place in METHODS.values())
    paths = {name: folder / "figures" / f"{name}.parquet" for name in names}
    return {name: path for name, path in paths.items() if path.exists()}


def _stored(output_dir: Path) -> dict[str, pd.DataFrame]:
    """The numbers of those figures that are there."""
    return {name: pd.read_parquet(path) for name, path in _figures(results_folder(output_dir)).items()}
