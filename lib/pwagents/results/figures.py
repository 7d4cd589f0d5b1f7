"""The functions that draw stored figures: each gets a frame and options, and returns matplotlib's figure.

A figure's file names its function by a word: "intervals" is :func:`plot_intervals`
(:mod:`pwagents.results.drawing`).
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pwagents.results.episodes import ACTIONS
from pwagents.results.style import (
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
# Numbers of a training's log -> what a panel says of them. What is held out says so; all else are training
# episodes.
PANELS = {
    "reward": "reward of an episode",
    "eval_return": "return, validation",
    "reward_alignment": "reward: alignment alone",
    **{f"share_{kind}": f"groups that teach something: {kind}" for kind in TASK_TYPES},
    "asks": "questions an episode",
    "entropy": "entropy (nats a token)",
    "clip_fraction": "share of tokens clipped",
    "cosine": "cosine of two half-batches' gradients",
}


@styled
def plot_intervals(
    data: pd.DataFrame,
    label: str,
    *,
    mean: str = "mean",
    hue: str | None = None,
    color: str | None = None,
    panel: str | None = None,
    xlabel: str = "",
    xlim: tuple[float, float] | None = None,
    title: str = "",
):
    """Plot points with horizontal intervals, a line a ``label``, the first at the top.

    Args:
        data: one row a point, with ``low`` and ``high``. A missing interval draws the point alone, a missing
            ``mean`` nothing. With ``n_missing``, a mean over part of its tasks is hollow.
        hue: column whose values get a color and marker each, side by side within a line.
        color: column that decides the color in place of ``hue``, which then has the markers alone.
        panel: column whose values get a panel each, with the value as its title.
        xlim: the range of a metric that has one; intervals of small groups may reach beyond it.
    """
    import matplotlib.pyplot as plt

    partial = data.get("n_missing", pd.Series(0, data.index)) > 0
    data = data.assign(_hue="" if hue is None else data[hue], _partial=partial)
    labels, names = list(data[label].unique()), list(data["_hue"].unique())
    panels = [("", data)] if panel is None else list(data.groupby(panel, sort=False))
    tones = assign_colors(data[color or "_hue"])
    width = 8 if panel is None else 3.2 + 2.7 * len(panels)
    size = (width, 1.2 + 0.3 * len(labels) * max(len(names), 1.5))
    fig, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False)
    marks = {}
    for i, name in enumerate(names):
        # Side by side within a line, the first above.
        marker, offset = MARKERS[i % len(MARKERS)], (i - (len(names) - 1) / 2) * 0.7 / len(names)
        for ax, (_, rows) in zip(axes[0], panels, strict=True):
            own = rows[rows["_hue"] == name]
            for (tone, is_partial), part in own.groupby([color or "_hue", "_partial"], sort=False):
                look = {"color": tones[tone], "markerfacecolor": "white" if is_partial else tones[tone]}
                places = part[label].map(labels.index) + offset
                draw_points(ax, part, mean, places, linestyle="none", marker=marker, **look)
        marks[escape_math(name)] = plt.Line2D([], [], color=NEUTRAL if color else tones[name], marker=marker)
    for ax, (value, _) in zip(axes[0], panels, strict=True):
        ax.set(title=escape_math(value), xlabel=xlabel, ylabel="")
        if xlim is not None:
            margin = 0.02 * (xlim[1] - xlim[0])  # room for points at the very ends
            ax.set_xlim(xlim[0] - margin, xlim[1] + margin)
    axes[0, 0].set_yticks(range(len(labels)), [escape_math(name) for name in labels])
    axes[0, 0].set_ylim(len(labels) - 0.5, -0.5)
    if len(names) > 1:
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
    panel: str | None = None,
    faint: str | None = None,
    levels: Mapping[str, float] | None = None,
    doublings: bool = False,
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
        panel: column whose values get a panel each, with the value as its title; ``columns`` in a row.
        faint: column drawn thin and pale below its line, such as what the line is a running mean of.
        levels: name -> value of a horizontal line to compare with.
        doublings: whether twice as much of ``x`` is the same step everywhere; each value has a tick.
        panel_size: width and height of one panel in inches.

    Returns:
        The matplotlib figure; panels are ``figure.axes``, in order.
    """
    import matplotlib.pyplot as plt

    ticks = sorted(data[x].unique()) if doublings else []
    data = data.assign(_x=np.log2(data[x]) if doublings else data[x])
    panels = [("", data)] if panel is None else list(data.groupby(panel, sort=False))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    size = (panel_size[0] * columns, panel_size[1] * rows)
    fig, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)

    looks = {
        name: {"color": tone, "linestyle": DASHES[i % len(DASHES)], "marker": MARKERS[i % len(MARKERS)]}
        for i, (name, tone) in enumerate(assign_colors(data[hue]).items())
    }
    drawn = set()
    for ax, (value, part) in zip(axes.flat, panels, strict=False):
        apart = 0.02 * np.ptp(part["_x"]) if "low" in data else 0.0
        for i, (name, look) in enumerate(looks.items()):
            line = part[part[hue] == name].dropna(subset=[y])
            places = line["_x"] + apart * (i - (len(looks) - 1) / 2)
            if faint is not None and line[faint].notna().any():
                ax.plot(places, line[faint], color=look["color"], alpha=0.25, linewidth=1)
            if not line.empty:
                marker = look["marker"] if len(line) <= _MARKED else None
                look = {"orient": "x", **look, "marker": marker}
                draw_points(ax, line, y, places, **look).set_label(escape_math(name))
                drawn.add(name)
        for i, (name, level) in enumerate((levels or {}).items()):
            mark_level(ax, level, name, i)
        ax.set(title=escape_math(value), xlabel="", ylabel=ylabel)
        if doublings:
            ax.set_xticks(np.log2(ticks), [f"{n:,}" for n in ticks])
        elif pd.api.types.is_integer_dtype(data[x]):
            ax.xaxis.get_major_locator().set_params(integer=True)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    for ax in axes.flat[max(0, len(panels) - columns) : len(panels)]:  # the lowest of each column
        ax.set_xlabel(xlabel)
    handles = {escape_math(name): plt.Line2D([], [], **look) for name, look in looks.items() if name in drawn}
    legend_above(fig, handles.values(), handles)
    set_title(fig, title)
    return fig


@styled
def plot_bars(
    data: pd.DataFrame, label: str, value: str, *, panel: str | None = None, xlabel: str = "", title: str = ""
):
    """Draw horizontal bars of ``value`` with their numbers, a bar a ``label``, the first at the top.

    Each label may occur once in a ``panel``, which is a column as in :func:`plot_intervals`.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    data = data.assign(_label=data[label].map(escape_math))
    panels = [("", data)] if panel is None else list(data.groupby(panel, sort=False))
    most = max(len(part) for _, part in panels)
    size = (max(8, 4.6 * len(panels)), 1.2 + 0.42 * most)
    fig, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False)
    for ax, (name, part) in zip(axes[0], panels, strict=True):
        sns.barplot(part, x=value, y="_label", color=PALETTE[0], saturation=1, width=0.8, ax=ax)
        ax.bar_label(ax.containers[0], fmt="{:,.0f}", padding=3, fontsize=13)
        ax.set(title=escape_math(name), xlabel=xlabel, ylabel="", xlim=(0, 1.2 * part[value].max()))
        ax.set_ylim(max(len(part), most / 2) - 0.4, -0.6)  # no bar is much thicker than another
        ax.grid(axis="y", visible=False)
        ax.locator_params(axis="x", nbins=4)
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


def plot_curves(curves: pd.DataFrame, *, title: str = ""):
    """Draw a panel a number of :data:`PANELS`, a line a run: each step thin, the mean of the last five thick.

    Args:
        curves: from :func:`pwagents.rl.log.read_curves`. Numbers that no run has get no panel, nor do those
            that are 0 throughout.
    """
    shares = {
        f"share_{kind}": curves[f"informative_{kind}"] / curves[f"drawn_{kind}"]
        for kind in TASK_TYPES
        if f"drawn_{kind}" in curves
    }
    curves = curves.assign(**shares)
    rows = curves.melt(["run", "step"], [name for name in PANELS if name in curves], "panel", "each").dropna()
    rows = rows[rows.groupby("panel")["each"].transform("any")]
    running = rows.groupby(["panel", "run"])["each"].transform(
        lambda steps: steps.rolling(5, min_periods=1).mean()
    )
    is_mean = rows["panel"].str.startswith("eval_")  # already over many episodes
    rows = rows.assign(shown=running.mask(is_mean, rows["each"]), each=rows["each"].mask(is_mean))
    if "eval_error" in curves:  # 95% of the validation's return, over users
        error = curves.set_index(["run", "step"])["eval_error"]
        error = 1.96 * error.reindex(pd.MultiIndex.from_frame(rows[["run", "step"]])).to_numpy()
        error = np.where(rows["panel"] == "eval_return", error, np.nan)
        rows = rows.assign(low=rows["shown"] - error, high=rows["shown"] + error)
    return plot_lines(
        rows.replace({"panel": PANELS}), "step", "shown", hue="run", panel="panel", faint="each", columns=2,
        panel_size=(5, 3.2), xlabel="step", title=title,
    )  # fmt: skip
