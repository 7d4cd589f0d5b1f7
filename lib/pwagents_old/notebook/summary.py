"""The main numbers of a preset, one a line, and the papers' whole tables with all of our rows below.

Nothing is computed here. A line is a point of a notebook's own figure with its 95% interval, over tasks,
clustered by user, or over seeds where several were trained. A method that no notebook played on a task has no
line there. A mean over part of its tasks says how many are missing, here as in the notebook's own table.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pwagents.errors import DataError
from pwagents.results.papers import below_paper, load_targets
from pwagents.results.statistics import MEAN, SCORED
from pwagents.results.style import assign_colors, draw_points, escape_math, styled
from pwagents.results.tables import csv_text, format_intervals, heading
from pwagents.schema import TASK_TYPES
from pwagents.settings import INTERACTIVE
from pwagents_old.notebook.reference import REFERENCE, SUMMARY
from pwagents.settings import project_path
from pwagents.files import write_aside


class Place(NamedTuple):
    """Where a line comes from: a figure's numbers, and the method there; and what readers call it."""

    figure: str
    method: str
    label: str


METHODS = {
    "instruction": Place("04_variants", "Simple rules", "simple rules"),
    "plain": Place("04_variants", "Plain agent", "plain agent"),
    "puma": Place("04_variants", "PUMA", "PUMA"),
    "puma_plus": Place("04_variants", "PUMA+", "PUMA+"),
    "puma_sft": Place("04_variants", "w/o DPO", "PUMA without DPO"),
    "puma_no_memory": Place("04_variants", "PUMA, memory taken away", "PUMA, no memory"),
    "puma_pipelines": Place("04_variants", "PUMA, over seeds", "PUMA, pipelines"),
    "puma_sft_pipelines": Place("04_variants", "w/o DPO, over seeds", "PUMA without DPO, pipelines"),
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
CHOSEN = {"04_single_turn": ("PUMA", "PUMA+")}  # methods of a table that has further rows
TASKS = (*TASK_TYPES, MEAN)
COLUMNS = ("name", "task", "value", "low", "high", "n_tasks", "n_seeds", "notebook")
# Paper and table -> the tables of notebooks whose rows stand below it.
MADE = {
    ("PersonalWAB", "Table 3"): ("03_single_turn_with_paper", "04_single_turn"),
    ("PersonalWAB", "Table 4"): ("03_methods_multi_turn",),
    ("Orion", "Table 1"): ("05_orion_table_1", "06_orion_table_1"),
}


def read_summary(output_dir: Path) -> pd.DataFrame:
    """Read the lines of a preset's stored numbers, with :data:`COLUMNS`, in the order of :data:`METHODS`.

    ``value`` is the result accuracy (0 to 1), ``low`` and ``high`` the ends of its 95% interval: over
    ``n_tasks`` tasks where ``n_seeds`` is 1, else over so many seeds, which have played these tasks; of a
    single pipeline there is no line. Where tasks were not scored, ``n_missing`` counts them. A notebook
    opened by hand where nothing ran yet reads ``outputs/reference``.

    Raises:
        DataError: none of the figures' numbers is there.
    """
    _, stored = _find_results(output_dir)
    if not stored:
        names = ", ".join(dict.fromkeys(place.figure for place in METHODS.values()))
        raise DataError(output_dir / "figures", names, "files", "none", "the numbers of notebooks 03 to 06")
    lines = []
    for name, place in METHODS.items():
        if place.figure in stored:
            frame = stored[place.figure]
            rows = frame[frame["method"] == place.method].rename(columns={"type": "task", "mean": "value"})
            rows = rows.sort_values("task", key=lambda tasks: tasks.map(TASKS.index))
            rows = rows if "n_seeds" in rows else rows.assign(n_seeds=1)
            # A single pipeline says nothing of the method; what was trained once is over tasks.
            rows = rows[rows["n_seeds"] > 1] if name.endswith("_pipelines") else rows
            lines.append(rows.assign(name=name, notebook=place.figure[:2]))
    summary = pd.concat(lines, ignore_index=True).reindex(columns=[*COLUMNS, "n_missing"])
    summary["n_missing"] = summary["n_missing"].fillna(0).astype(int)
    return summary if summary["n_missing"].any() else summary[list(COLUMNS)]


def write_summary(lines: pd.DataFrame, output_dir: Path) -> Path:
    """Write ``<output_dir>/summary.csv`` (6 significant digits); return its path."""
    path = output_dir / SUMMARY
    write_aside(path, csv_text(lines))
    return path


def tabulate_summary(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the lines: a row a method, a column a task, values with their intervals, and the tasks."""
    cells = format_intervals(lines.rename(columns={"value": "mean"}))
    rows = lines.assign(cell=cells, method=[METHODS[name].label for name in lines["name"]])
    wide = rows.pivot(index="method", columns="task", values="cell")
    wide = wide.reindex(index=rows["method"].unique(), columns=[t for t in TASKS if t in wide])
    single = rows[rows["task"] != MEAN].groupby("method")
    counts = single["n_tasks"].agg(lambda counts: " + ".join(f"{n:,}" for n in counts))
    return wide.assign(tasks=counts, notebook=single["notebook"].first()).reset_index()


@styled
def plot_summary(lines: pd.DataFrame):
    """Plot a dot with its 95% interval for each method, a panel for each task, in the task's colour.

    A mean over part of its tasks is hollow.

    Args:
        lines: of :func:`read_summary`.

    Returns:
        The matplotlib figure.
    """
    import matplotlib.pyplot as plt

    names, tasks = list(lines["name"].unique()), [task for task in TASKS if task in set(lines["task"])]
    size = (3.2 + 2.7 * len(tasks), 1.6 + 0.36 * len(names))
    fig, axes = plt.subplots(1, len(tasks), figsize=size, sharey=True, squeeze=False)
    colors = assign_colors(TASKS)
    look = {"marker": "o", "markersize": 5, "linestyle": "none"}
    partial = lines.get("n_missing", pd.Series(0, lines.index)) > 0
    for ax, task in zip(axes.flat, tasks, strict=True):
        # Whole means first: those over part of their tasks are not to be compared with them.
        for is_partial, part in lines[lines["task"] == task].groupby(partial):
            fill = "white" if is_partial else colors[task]
            places = part["name"].map(names.index)
            draw_points(ax, part, "value", places, color=colors[task], markerfacecolor=fill, **look)
        ax.set(title=task, xlim=(-0.03, 1.03), xticks=(0, 0.5, 1), xlabel="result accuracy\n(95% interval)")
        ax.set_ylabel("")
        ax.xaxis.set_major_formatter("{x:g}")
    axes.flat[0].set_yticks(range(len(names)), [escape_math(METHODS[name].label) for name in names])
    axes.flat[0].set_ylim(len(names) - 0.5, -0.5)
    return fig


def name_backbones(output_dir: Path) -> str:
    """Name the models behind the lines, as the figures tell them; empty where none does."""
    stamps = [frame.attrs["stamp"] for frame in _find_results(output_dir)[1].values()]
    names = [stamp.partition("backbone: ")[2].partition(" · ")[0] for stamp in stamps]
    return "; ".join(dict.fromkeys(filter(None, names)))


def build_paper_table(output_dir: Path, paper: str, table: str, lines: pd.DataFrame) -> pd.DataFrame:
    """Build a table of :data:`MADE`: all rows as printed, and below them those of notebooks 03 to 06.

    Args:
        lines: the summary (:func:`read_summary`).

    Returns:
        ``source, row, backbone, data, n, grader``, what a task cost, and the metrics, as of
        :func:`pwagents.results.papers.below_paper` with headings in one level; then ``notebook``, which
        made a row of ours, ``over pipelines``, what pipelines with other seeds reach (result accuracies as
        shares, intervals over seeds) where several were trained, and ``to run it here``, a printed row's
        command.
    """
    printed = below_paper(pd.DataFrame(), paper, table, "", "")
    printed.columns = list(map(heading, printed.columns))
    targets = load_targets().query("paper == @paper and table == @table")
    commands = printed["row"].map(dict(zip(targets["row"], targets["command"], strict=True)))
    folder, _ = _find_results(output_dir)
    parts = [printed.assign(notebook="", **{"over pipelines": "", "to run it here": commands})]
    # What pipelines reach: "search 0.745 ±0.049, ..., 5 seeds" by the method.
    over = {}
    for name, own in lines[lines["name"].str.endswith("_pipelines")].groupby("name", sort=False):
        cells = format_intervals(own.rename(columns={"value": "mean"}))
        means = [f"{task} {cell}" for task, cell in zip(own["task"], cells, strict=True)]
        over[METHODS[name].method.removesuffix(", over seeds")] = ", ".join([*means, f"{own['n_seeds'].iloc[0]} seeds"])
    for name in MADE[paper, table]:
        path = folder / "tables" / f"{name}.csv"
        # Methods that rules play have no row below the paper's: their table has no source.
        if path.exists() and "source" in (made := pd.read_csv(path)):
            ours = made[made["source"] == "here"]
            method = ours["row"].str.extract(r"\(([^()]*)\)$")[0]  # a row's name is "backbone (method)"
            if name in CHOSEN:
                ours = ours[method.isin(CHOSEN[name])]
            reached = method.loc[ours.index].map(over).fillna("")
            parts.append(ours.assign(notebook=name[:2], **{"over pipelines": reached, "to run it here": ""}))
    # A row that two notebooks show is that of the first.
    joined = pd.concat(parts, ignore_index=True)
    in_part = [column for column in joined if column.endswith(f": {SCORED}") and column not in parts[0]]
    return joined[[*parts[0], *in_part]].drop_duplicates(["source", "row"]).reset_index(drop=True)


def _find_results(output_dir: Path) -> tuple[Path, dict[str, pd.DataFrame]]:
    """Return the folder of results, and the numbers of those figures that are there.

    It is ``output_dir``, but the reference where notebooks are opened by hand and none of those that are
    summed up has run.
    """
    names = dict.fromkeys(place.figure for place in METHODS.values())
    for folder in (output_dir, REFERENCE):
        paths = {name: folder / "figures" / f"{name}.parquet" for name in names}
        stored = {name: pd.read_parquet(path) for name, path in paths.items() if path.exists()}
        if stored or output_dir != project_path(INTERACTIVE):
            break
    return folder, stored
