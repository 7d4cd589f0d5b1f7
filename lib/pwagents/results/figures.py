"""Figures in one style, stored with their numbers: whoever has these can draw them again, without a run.

A notebook first writes a figure's numbers to ``figures/NAME.parquet``, together with the name and options of
the function that draws them, and then draws from that file. The same numbers give the same bytes at every run
on one machine: no dates, no versions, no random ids.

The style is matplotlib's own seaborn sheet (white grid) with type large enough to be read at half size. A
type of task and a method of training have the same color in every figure. Seaborn draws. It computes no
interval of ours: each point has three rows (low, mean, high), of which it draws the median and the whole
range. Nothing here chooses a backend, so scripts, tests and notebooks all work.
"""

import io
from base64 import b64encode
from collections.abc import Callable, Iterable
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.results.episodes import ACTIONS
from pwagents.results.tables import csv_text
from pwagents.schema import TASK_TYPES
from pwagents.store import write_aside

# What matplotlib is not to write of itself.
FORMATS = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save_figure(
    plot: Callable, name: str, data: pd.DataFrame, *, output_dir: Path, stamp: str = "", **options: Any
) -> None:
    """Write a figure's numbers, draw it from that file, and show it inside IPython.

    The files are ``<output_dir>/figures/<name>.parquet``, of which :func:`draw_figure` makes the figure,
    ``.png``, ``.svg`` and ``.csv``.

    Args:
        plot: a function ``plot_...`` of this module; it gets the frame and ``options``, which JSON must hold.
        data: the numbers, unrounded (6 significant digits in the CSV). Its index is dropped.
        stamp: what made the figure, in small type below it.
    """
    import matplotlib.pyplot as plt
    from IPython import get_ipython
    from IPython.display import display

    path, table = output_dir / "figures" / name, data.reset_index(drop=True)
    # pandas stores these in the file
    table.attrs = {"plot": f"{__name__}:{plot.__name__}", "options": options, "stamp": stamp}
    write_aside(path.with_name(f"{name}.parquet"), table.to_parquet(index=False, compression="zstd"))
    write_aside(path.with_name(f"{name}.csv"), csv_text(data))
    figure = draw_figure(path.with_name(f"{name}.parquet"), stamped=True)
    png = write_figure(figure, path.with_name(f"{name}.png"))
    write_figure(figure, path.with_name(f"{name}.svg"))
    plt.close(figure)  # or else a notebook shows it a second time
    if get_ipython():
        text = f"Figure {name}: {options.get('title') or 'see its caption'}. Its numbers: figures/{name}.csv"
        image, width = b64encode(png).decode(), f"{figure.get_figwidth() * 72:.0f}px"
        look = f'alt="{escape(text)}" style="width: {width}; max-width: 100%"'
        html = f'<img src="data:image/png;base64,{image}" {look}>'
        display({"text/html": html, "image/png": image, "text/plain": text}, raw=True)


def draw_figure(path: Path | str, *, stamped: bool = False):
    """Return the matplotlib figure of a file of numbers; without its stamp, unless ``stamped``."""
    table = pd.read_parquet(path)
    plots = {name: function for name, function in globals().items() if name.startswith("plot_")}
    plot = plots[table.attrs["plot"].rpartition(":")[2]]
    figure = plot(table, **table.attrs["options"])
    if stamped and (stamp := table.attrs["stamp"]):
        figure.supxlabel(escape_math(stamp), x=0.995, ha="right", fontsize=9, color="0.35")
    return figure


def write_figure(figure, path: Path) -> bytes:
    """Write a figure as its suffix says, one of :data:`FORMATS`; return the bytes, the same at every run."""
    import matplotlib.pyplot as plt

    kind, file = path.suffix.removeprefix("."), io.BytesIO()
    with plt.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(file, format=kind, metadata=FORMATS[kind])
    write_aside(path, file.getvalue())
    return file.getvalue()


# Of Okabe and Ito's colors and ColorBrewer's "Dark2" those that stand out from white (3 : 1 and more) and
# from each other under the common kinds of color blindness.
PALETTE = ("#0072B2", "#009E73", "#D55E00", "#7570B3", "#882255", "#A6761D", "#C2609A", "#4D4D4D")
_FIXED = ("search", "recommend", "review", "SFT", "GRPO", "PPO")  # what has one color in all figures
COLORS = dict(zip(_FIXED, PALETTE, strict=False))
NEUTRAL = PALETTE[-1]  # of a legend's marks whose color means nothing
_STYLE: list[str | dict] = [
    "seaborn-v0_8-whitegrid",
    {
        "axes.prop_cycle": f"cycler('color', {[color.lstrip('#') for color in PALETTE]})",
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same type on every machine
        "font.size": 14,
        "axes.titlesize": 15,
        "axes.labelsize": 14,
        "xtick.labelsize": 13,
        "ytick.labelsize": 13,
        "legend.fontsize": 12,
        "lines.linewidth": 2,
        "lines.markersize": 8,
        "figure.constrained_layout.use": True,
        "savefig.dpi": 150,
        "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    },
]
_MARKERS = "osD^vP"  # a second cue beside color


def use_style() -> None:
    """Set the style for all figures made from here on; the plot functions below call it themselves."""
    import matplotlib.pyplot as plt

    plt.style.use(_STYLE)


def assign_colors(names: Iterable[str]) -> dict[str, str]:
    """Assign a color to each name: that of :data:`COLORS`, or the first of the palette that is left."""
    names = dict.fromkeys(names)  # each once, in their order
    fixed = {name: COLORS[name] for name in names if name in COLORS}
    left = cycle([color for color in PALETTE if color not in fixed.values()])
    return {name: fixed.get(name) or next(left) for name in names}


def plot_intervals(
    data: pd.DataFrame,
    label: str,
    *,
    mean: str = "mean",
    hue: str | None = None,
    color: str | None = None,
    xlabel: str = "",
    xlim: tuple[float, float] | None = None,
    title: str = "",
):
    """Plot points with horizontal intervals, one line of the figure per ``label``, first at the top.

    Args:
        data: one row a point, with ``low`` and ``high``. A missing interval draws the point alone, a missing
            ``mean`` nothing.
        hue: column whose values get a color and marker each, side by side within a line.
        color: column that decides the color in place of ``hue``, which then has the markers alone.
        xlim: the range of a metric that has one; intervals of small groups may reach beyond it.
    """
    import matplotlib.pyplot as plt

    use_style()
    data = data.assign(_hue="" if hue is None else data[hue])
    labels, names = list(data[label].unique()), list(data["_hue"].unique())
    tones = {"": PALETTE[0]} if hue is None else assign_colors(data[color or hue])
    fig, ax = plt.subplots(figsize=(8, 1.2 + 0.3 * len(labels) * max(len(names), 1.5)))
    marks = {}
    for i, name in enumerate(names):
        # Side by side within a line, the first above.
        marker = _MARKERS[i % len(_MARKERS)]
        offset = (i - (len(names) - 1) / 2) * 0.7 / len(names)
        for tone, part in data[data["_hue"] == name].groupby(color or "_hue", sort=False):
            places, look = part[label].map(labels.index) + offset, {"linestyle": "none", "marker": marker}
            draw_points(ax, part, mean, places, color=tones[tone], **look)
        marks[escape_math(name)] = plt.Line2D([], [], color=NEUTRAL if color else tones[name], marker=marker)
    ax.set_yticks(range(len(labels)), [escape_math(name) for name in labels])
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set(xlabel=xlabel, ylabel="")
    if xlim is not None:
        margin = 0.02 * (xlim[1] - xlim[0])  # room for points at the very ends
        ax.set_xlim(xlim[0] - margin, xlim[1] + margin)
    if hue is not None:
        legend_above(fig, marks.values(), marks)
    ax.set_title(escape_math(title))
    return fig


def plot_transitions(transitions: pd.DataFrame):
    """Draw which action follows which, one panel a task type; the paper has a chord diagram (Figure 8)."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    use_style()
    types = [name for name in TASK_TYPES if name in set(transitions["type"])]
    present = {*transitions["from"], *transitions["to"]}
    names = [name for name in ACTIONS.values() if name in present]
    height = 1.8 + 0.55 * len(names)
    size = (3.5 + 0.75 * height * len(types), height)
    fig, axes = plt.subplots(1, len(types), figsize=size, sharey=True, squeeze=False)
    for ax, task_type in zip(axes[0], types, strict=True):
        part = transitions[transitions["type"] == task_type]
        grid = part.pivot(index="from", columns="to", values="share")
        grid = grid.reindex(index=names[:-1], columns=names[1:])  # from "start", to "end"
        sns.heatmap(
            grid, ax=ax, vmin=0, vmax=1, cmap="Blues", annot=True, fmt=".2f", cbar=False, square=True,
            linewidths=1, annot_kws={"size": 12},
        )  # fmt: skip
        ax.grid(visible=False)
        ax.set_facecolor("#f4f4f4")  # what never happened
        ax.set(title=task_type, xlabel="next action", ylabel="")
        ax.tick_params(axis="x", rotation=45)
        ax.tick_params(axis="y", rotation=0)
    axes[0, 0].set_ylabel("action")
    fig.colorbar(axes[0, 0].collections[0], ax=axes, label="share of what follows", shrink=0.7)
    return fig


def plot_attempts(numbers: pd.DataFrame):
    """Draw attempts by their number: how many tasks get there (bars), and their result accuracy (lines)."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    use_style()
    types = [name for name in TASK_TYPES if name in set(numbers["type"])]
    shared = {"sharex": True, "sharey": "row", "squeeze": False, "height_ratios": (1, 1.6)}
    fig, axes = plt.subplots(2, len(types), figsize=(4.2 * len(types), 6.5), **shared)
    for (upper, lower), task_type in zip(axes.T, types, strict=True):
        part = numbers[numbers["type"] == task_type]
        sns.barplot(part, x="attempt", y="tasks", color="0.65", saturation=1, native_scale=True, ax=upper)
        upper.set(title=task_type, ylabel="")
        upper.grid(axis="x", visible=False)
        look = {"color": COLORS[task_type], "markeredgecolor": COLORS[task_type], "ax": lower}
        sns.lineplot(part, x="attempt", y="result_accuracy", marker="o", label="this attempt", **look)
        look |= {"marker": "s", "linestyle": "--", "label": "best so far, all tasks"}
        sns.lineplot(part, x="attempt", y="best_so_far", **look)
        lower.get_legend().remove()
        lower.set(xticks=range(1, numbers["attempt"].max() + 1), ylim=(-0.03, 1.03), ylabel="")
    axes[0, 0].set_ylabel("tasks that get there")
    axes[1, 0].set_ylabel("result accuracy")
    legend = legend_above(fig, *axes[1, 0].get_legend_handles_labels(), columns=2)
    for line in legend.get_lines():  # the colors are of the types
        line.set(color=NEUTRAL, markeredgecolor=NEUTRAL)
    return fig


def draw_points(ax, data: pd.DataFrame, mean: str, places: pd.Series, *, orient: str = "y", **look):
    """Draw a row's ``mean`` at its place on the axis ``orient``, with the interval from ``low`` to ``high``.

    Where ``data`` has no column ``low``, points have no intervals. ``look`` is of the line through them,
    which is returned.
    """
    import seaborn as sns

    # The median of (low, mean, high) is the mean, and their whole range is the interval.
    data = data.assign(_at=places).reset_index(drop=True)
    rows = [data.assign(_value=data[each]) for each in ("low", mean, "high") if each in data]
    across = "x" if orient == "y" else "y"
    bars = {
        "errorbar": ("pi", 100) if "low" in data else None,
        "err_style": "bars",
        "err_kws": {"capsize": 3},
    }
    look = {"markeredgecolor": look["color"], "legend": False} | look
    axes = {orient: "_at", across: "_value", "orient": orient, "ax": ax}
    points = pd.concat(rows).sort_index(kind="stable").dropna(subset="_value")  # in the order of the line
    n_lines = len(ax.lines)
    sns.lineplot(points, estimator="median", sort=False, **axes, **bars, **look)
    return ax.lines[n_lines]


def legend_above(fig, *marks_and_names, columns: int = 4):
    """Put a legend above the panels, in at most so many columns as the figure's width has room for.

    Args:
        marks_and_names: as ``fig.legend`` takes them; none: all that the panels have.
    """
    for n in range(columns, 0, -1):
        legend = fig.legend(*marks_and_names, loc="outside upper center", ncols=n)
        if n == 1 or legend.get_window_extent().width <= fig.bbox.width:
            return legend
        legend.remove()


def escape_math(text) -> str:
    r"""Escape text for matplotlib, so that a ``$`` in a product title starts no formula."""
    return str(text).replace("$", r"\$")
