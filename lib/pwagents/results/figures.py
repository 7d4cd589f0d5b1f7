"""The drawing functions of stored figures.

Each gets a frame and options, and returns matplotlib's figure. A figure's file names its function by a word:
"intervals" is :func:`plot_intervals` (:mod:`pwagents.results.drawing`).
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from pwagents.results.episodes import ACTIONS
from pwagents.results.style import (
    COLORS,
    DASHES,
    MARKERS,
    NEUTRAL,
    PALETTE,
    assign_colors,
    draw_points,
    escape_math,
    legend_above,
    mark_level,
    set_title,
    styled,
)
from pwagents.schema import TASK_TYPES

_MARKED = 20  # points of a line that markers do not run together on


@styled
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
    """Plot points with horizontal intervals, a line a ``label``, the first at the top.

    Args:
        data: one row a point, with ``low`` and ``high``. A missing interval draws the point alone, a missing
            ``mean`` nothing.
        hue: column whose values get a color and marker each, side by side within a line.
        color: column that decides the color in place of ``hue``, which then has the markers alone.
        xlim: the range of a metric that has one; intervals of small groups may reach beyond it.
    """
    import matplotlib.pyplot as plt

    data = data.assign(_hue="" if hue is None else data[hue])
    labels, names = list(data[label].unique()), list(data["_hue"].unique())
    tones = {"": PALETTE[0]} if hue is None else assign_colors(data[color or hue])
    fig, ax = plt.subplots(figsize=(8, 1.2 + 0.3 * len(labels) * max(len(names), 1.5)))
    marks = {}
    for i, name in enumerate(names):
        # Side by side within a line, the first above.
        marker = MARKERS[i % len(MARKERS)]
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
    set_title(fig, title)
    return fig


@styled
def plot_lines(
    data: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str,
    color: str | None = None,
    panel: str | None = None,
    faint: str | None = None,
    columns: int = 4,
    panel_size: tuple[float, float] = (8, 4.5),
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
):
    """Plot a line a ``hue``: colors, dashes and (if points are few) markers differ.

    Args:
        data: one row a point, in the order of its line. A missing ``y`` is left out. Where it has ``low`` and
            ``high``, intervals are drawn, a little apart from each other.
        color: column that decides the color in place of ``hue``; lines of one color have different dashes.
        panel: column whose values get a panel each, with the value as its title; ``columns`` in a row.
        faint: column drawn thin and pale below its line, such as what the line is a running mean of.
        panel_size: width and height of one panel in inches.

    Returns:
        The matplotlib figure; panels are ``figure.axes``, in order.
    """
    import matplotlib.pyplot as plt

    panels = [("", data)] if panel is None else list(data.groupby(panel, sort=False))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    size = (panel_size[0] * columns, panel_size[1] * rows)
    fig, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)

    # Dashes and markers by line; where a color has several lines, by their number within it.
    lines = data.drop_duplicates(hue)
    numbers = range(len(lines)) if color in (None, hue) else lines.groupby(color, sort=False).cumcount()
    tones, looks = assign_colors(lines[color or hue]), {}
    for name, tone, i in zip(lines[hue], lines[color or hue], numbers, strict=True):
        cues = {"linestyle": DASHES[i % len(DASHES)], "marker": MARKERS[i % len(MARKERS)]}
        looks[name] = {"color": tones[tone], **cues}

    drawn = set()
    for ax, (value, part) in zip(axes.flat, panels, strict=False):
        apart = 0.02 * np.ptp(part[x]) if "low" in data else 0.0
        for i, (name, look) in enumerate(looks.items()):
            line = part[part[hue] == name].dropna(subset=[y])
            places = line[x] + apart * (i - (len(looks) - 1) / 2)
            if faint is not None and line[faint].notna().any():
                ax.plot(places, line[faint], color=look["color"], alpha=0.25, linewidth=1)
            if not line.empty:
                marker = look["marker"] if len(line) <= _MARKED else None
                look = {"orient": "x", **look, "marker": marker}
                draw_points(ax, line, y, places, **look).set_label(escape_math(name))
                drawn.add(name)
        ax.set(title=escape_math(value), xlabel="", ylabel=ylabel)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    for ax in axes.flat[max(0, len(panels) - columns) : len(panels)]:  # the lowest of each column
        ax.set_xlabel(xlabel)
    n_columns = 4 if color is None else data[color].nunique()  # a column of the legend a color
    handles = {escape_math(name): plt.Line2D([], [], **look) for name, look in looks.items() if name in drawn}
    legend_above(fig, handles.values(), handles, columns=min(n_columns, 4))
    set_title(fig, title)
    return fig


@styled
def plot_bars(
    data: pd.DataFrame, label: str, value: str, *, hue: str | None = None, stacked: bool = False, ylabel=""
):
    """Plot vertical bars of ``value``, in the frame's order; one color a ``hue``.

    Each (label, hue) may occur once. Returns the matplotlib figure.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    names = list(data[label].map(escape_math).unique())
    # Short labels lie flat, a word a line; where they would run together they stand upright.
    crowded = sum(map(len, names)) + 2 * len(names) > 60
    texts = data[label].map(escape_math).map(lambda text: text if crowded else text.replace(" ", "\n"))
    rows, tones = data.assign(_label=texts), None
    if hue is not None:
        rows["_hue"] = data[hue].map(escape_math)
        tones = assign_colors(rows["_hue"])
    fig, ax = plt.subplots(figsize=(8, 4.5))
    # A histogram whose weights are the values: unlike barplot it can stack.
    bars = {"multiple": "stack" if stacked else "dodge", "discrete": True, "shrink": 0.8}
    by_hue = {} if hue is None else {"hue": "_hue", "palette": tones}
    look = {"alpha": 1, "linewidth": 0, "legend": False}
    sns.histplot(rows, x="_label", weights=value, ax=ax, **by_hue, **bars, **look)
    ax.tick_params(axis="x", rotation=90 if crowded else 0)
    ax.grid(axis="x", visible=False)
    ax.set(xlabel=escape_math(label), ylabel=ylabel or escape_math(value), xlim=(-0.5, len(names) - 0.5))
    if hue is not None:
        legend_above(fig, [plt.Rectangle((0, 0), 1, 1, color=color) for color in tones.values()], tones)
    return fig


@styled
def plot_instructions(statistics: pd.DataFrame, *, title: str = ""):
    """Draw the number of instructions and their length by task (PersonalWAB, Figure 4(b)).

    ``statistics`` has ``task, instructions, mean_tokens``.
    """
    fig = plot_bars(statistics, "task", "mean_tokens", hue="task", stacked=True, ylabel="mean tokens")
    fig.legends[0].remove()  # the axis names the types
    for place, n in enumerate(statistics["instructions"]):
        fig.axes[0].annotate(f"n = {n:,}", (place, 0.5), ha="center", color="white")
    set_title(fig, title)
    return fig


@styled
def plot_values(counts: pd.DataFrame, *, title: str = ""):
    """Draw who users are and how they shop (PersonalWAB, Figures 3 and 4(a)): a panel a field, a bar a value.

    ``counts`` is of :func:`pwagents.results.profiles.count_values`.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    fields = list(counts["field"].unique())
    most = counts.groupby("field").size().max()
    fig, axes = plt.subplots(1, len(fields), figsize=(4.6 * len(fields), 1.2 + 0.42 * most), squeeze=False)
    for ax, field in zip(axes[0], fields, strict=True):
        part = counts[counts["field"] == field]
        part = part.assign(value=part["value"].map(escape_math))
        sns.barplot(part, x="users", y="value", color=PALETTE[0], saturation=1, width=0.8, ax=ax)
        ax.bar_label(ax.containers[0], fmt="{:,.0f}", padding=3, fontsize=13)
        ax.set(title=escape_math(field), xlabel="users", ylabel="", xlim=(0, 1.2 * part["users"].max()))
        ax.set_ylim(max(len(part), most / 2) - 0.4, -0.6)  # no bar is much thicker than another
        ax.grid(axis="y", visible=False)
        ax.locator_params(axis="x", nbins=4)
    set_title(fig, title)
    return fig


@styled
def plot_consistency(summary: pd.DataFrame, *, by_chance: Mapping[str, float], title: str = ""):
    """Draw how well profiles agree with what users do (Figure 5): a panel an evaluation, a bar a method.

    ``summary`` (``method, evaluation, mean, low, high``) is of one judge; dashed is ``by_chance``.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    evaluations = list(summary["evaluation"].unique())
    methods = [escape_math(method) for method in summary["method"].unique()]
    size = (3.4 * len(evaluations) + 2.6, 1.6 + 0.45 * len(methods))
    fig, axes = plt.subplots(1, len(evaluations), figsize=size, sharey=True, squeeze=False)
    # Three rows a bar: their median is the mean, their range the interval, so that seaborn computes neither.
    rows = summary.melt(["method", "evaluation"], ["low", "mean", "high"]).dropna()
    rows["method"] = rows["method"].map(escape_math)
    for ax, evaluation in zip(axes[0], evaluations, strict=True):
        sns.barplot(
            rows[rows["evaluation"] == evaluation], x="value", y="method", order=methods, ax=ax,
            width=0.75, color="0.65", saturation=1, estimator="median", errorbar=("pi", 100),
            capsize=0.2, err_kws={"color": "black", "linewidth": 2},
        )  # fmt: skip
        ax.axvline(by_chance[evaluation], color="black", linestyle="dashed", label="chance")
        ax.set(title=escape_math(evaluation), xlabel="mean over users", ylabel="")
        ax.set(xlim=(0, 1), xticks=(0, 0.5, 1))
        ax.grid(axis="y", visible=False)
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right")
    set_title(fig, title)
    return fig


@styled
def plot_transitions(transitions: pd.DataFrame, *, title: str = ""):
    """Draw :func:`pwagents.results.episodes.action_transitions` (PersonalWAB, Figure 8: a chord diagram)."""
    import matplotlib.pyplot as plt
    import seaborn as sns

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
    set_title(fig, title)
    return fig


@styled
def plot_attempts(numbers: pd.DataFrame, *, title: str = ""):
    """Draw :func:`pwagents.results.episodes.attempts_by_number`: tasks as bars, result accuracy as lines."""
    import matplotlib.pyplot as plt
    import seaborn as sns

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
    set_title(fig, title)
    return fig


@styled
def plot_year(events: pd.DataFrame):
    """Draw a user's purchases (dots) and tasks (triangles), a line of time a section of the shop.

    Args:
        events: ``date``, ``section`` and ``event`` ("bought", or a type of task), a row each.
    """
    import matplotlib.pyplot as plt

    sections = sorted(events["section"].unique())
    fig, ax = plt.subplots(figsize=(10, 1.5 + 0.6 * len(sections)))
    for i, event in enumerate(("bought", *TASK_TYPES)):
        part = events[events["event"] == event]
        # A task stands above the purchase it is about.
        heights = [sections.index(section) + 0.2 * i for section in part["section"]]
        look = {"marker": "^" if i else "o", "color": COLORS.get(event, NEUTRAL), "label": event}
        ax.plot(part["date"], heights, linestyle="none", **look)
    ax.set_yticks(range(len(sections)), map(escape_math, sections))
    legend_above(fig)
    fig.autofmt_xdate()
    return fig


def plot_losses(losses: pd.DataFrame, title: str = ""):
    """Draw the loss by step, a line a training; those of preferences ("DPO ...") in a panel of their own.

    Args:
        losses: ``training``, ``step`` and ``loss``, as of :func:`pwagents.lm.train.read_losses`.
    """
    of_pairs = losses["training"].str.startswith("DPO")
    kinds = of_pairs.map({False: "loss (nats a token)", True: "loss (nats a pair)"})
    panel = "kind" if kinds.nunique() > 1 else None
    fig = plot_lines(losses.assign(kind=kinds), "step", "loss", hue="training", panel=panel, xlabel="step")
    for ax, kind in zip(fig.axes, dict.fromkeys(kinds), strict=False):
        ax.set(title="", ylabel=kind)
        if "pair" in kind:  # it begins at log 2, where nothing is preferred
            mark_level(ax, math.log(2), "no preference (log 2)")
        else:
            ax.set_ylim(bottom=0)
        ax.xaxis.get_major_locator().set_params(integer=True)
    set_title(fig, title)
    return fig


@styled
def plot_summary(lines: pd.DataFrame, *, labels: Mapping[str, str], title: str = ""):
    """Plot a dot with its 95% interval for each method, a panel for each task, in the task's color.

    A mean over part of its tasks is hollow.

    Args:
        lines: columns ``name, task, value, low, high``, and ``n_missing`` if any task was not scored.
        labels: name -> the method as readers call it.
    """
    import matplotlib.pyplot as plt

    order = [*TASK_TYPES, "mean"]
    names, tasks = list(lines["name"].unique()), [task for task in order if task in set(lines["task"])]
    size = (3.2 + 2.7 * len(tasks), 1.6 + 0.36 * len(names))
    fig, axes = plt.subplots(1, len(tasks), figsize=size, sharey=True, squeeze=False)
    colors = assign_colors(order)
    look = {"marker": "o", "markersize": 5, "linestyle": "none"}
    partial = lines.get("n_missing", pd.Series(0, lines.index)) > 0
    for ax, task in zip(axes.flat, tasks, strict=True):
        # Whole means first: those over part of their tasks are not to be compared with them.
        for is_partial, part in lines[lines["task"] == task].groupby(partial):
            fill, places = "white" if is_partial else colors[task], part["name"].map(names.index)
            draw_points(ax, part, "value", places, color=colors[task], markerfacecolor=fill, **look)
        ax.set(title=task, xlim=(-0.03, 1.03), xticks=(0, 0.5, 1), xlabel="result accuracy\n(95% interval)")
        ax.set_ylabel("")
        ax.xaxis.set_major_formatter("{x:g}")
    axes.flat[0].set_yticks(range(len(names)), [escape_math(labels[name]) for name in names])
    axes.flat[0].set_ylim(len(names) - 0.5, -0.5)
    set_title(fig, title)
    return fig
