"""Figures in one style; :mod:`pwagents.evaluation.figure_files` writes and shows them.

The style is matplotlib's own seaborn sheet (white grid) with type large enough to be read at half size. A
type of task and a method of training have the same colour in every figure. Nothing here chooses a backend, so
scripts, tests and notebooks all work.
"""

from collections.abc import Iterable
from itertools import cycle

import numpy as np
import pandas as pd

# Of Okabe and Ito's colours and ColorBrewer's "Dark2" those that stand out from white (3 : 1 and more) and
# from each other under the common kinds of colour blindness.
PALETTE = ("#0072B2", "#009E73", "#D55E00", "#7570B3", "#882255", "#A6761D", "#C2609A", "#4D4D4D")
_FIXED = ("search", "recommend", "review", "SFT", "GRPO", "PPO")  # what has one colour in all figures
COLORS = dict(zip(_FIXED, PALETTE, strict=False))
NEUTRAL = PALETTE[-1]  # of a legend's marks whose colour means nothing
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
_MARKERS = "osD^vP"  # a second cue beside colour
_DASHES = ("-", "--", ":", "-.", (0, (9, 2.5)))  # a third
_MARKED = 20  # points of a line that markers do not run together on


def use_style() -> None:
    """Set the style for all figures made from here on; the plot helpers below call it themselves."""
    import matplotlib.pyplot as plt

    plt.style.use(_STYLE)


def add_style(sheet: str) -> None:
    """Put one of matplotlib's style sheets, or one's own file, above the style of all figures from here on.

    Raises:
        OSError: there is no such sheet.
    """
    import matplotlib.pyplot as plt

    plt.style.use(sheet)
    _STYLE.append(sheet)


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each of some names: that of :data:`COLORS`, or the first of the palette that is left."""
    names = dict.fromkeys(names)  # each once, in their order
    fixed = {name: COLORS[name] for name in names if name in COLORS}
    left = cycle([color for color in PALETTE if color not in fixed.values()])
    return {name: fixed.get(name) or next(left) for name in names}


def plot_intervals(
    data: pd.DataFrame,
    label: str,
    *,
    mean: str = "mean",
    low: str = "low",
    high: str = "high",
    hue: str | None = None,
    color: str | None = None,
    xlabel: str = "",
    xlim: tuple[float, float] | None = None,
):
    """Points with horizontal intervals, one line of the figure per ``label``, first at the top.

    Args:
        data: one row per point; ``label``, ``mean``, ``low``, ``high``, ``hue`` and ``color`` name columns.
            A missing ``low`` and ``high`` draws the point alone, a missing ``mean`` nothing.
        hue: column whose values get a colour and marker each, side by side within a line.
        color: column that decides the colour in place of ``hue``, which then has the markers alone.
        xlim: the range of a metric that has one; intervals of small groups may reach beyond it.

    Returns:
        The matplotlib figure, for :func:`save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    labels = list(dict.fromkeys(data[label]))
    groups = [(None, data)] if hue is None else list(data.groupby(hue, sort=False))
    fig, ax = plt.subplots(figsize=(8, 1.2 + 0.3 * len(labels) * max(len(groups), 1.5)))
    line_of = {name: i for i, name in enumerate(labels)}
    toned = color or hue
    tones = {None: PALETTE[0]} if toned is None else colors_of(data[toned])
    marks = {}
    for i, (name, group) in enumerate(groups):
        offset = (i - (len(groups) - 1) / 2) * 0.7 / len(groups)
        look = {"fmt": _MARKERS[i % len(_MARKERS)], "capsize": 3}
        for tone, part in [(None, group)] if toned is None else group.groupby(toned, sort=False):
            y = part[label].map(line_of).to_numpy() + offset
            reach = np.nan_to_num([part[mean] - part[low], part[high] - part[mean]])
            ax.errorbar(part[mean], y, xerr=reach, color=tones[tone], **look)
        shown = NEUTRAL if color else tones[name]
        marks[plain(name)] = plt.Line2D([], [], color=shown, marker=look["fmt"])
    ax.set_yticks(range(len(labels)), [plain(name) for name in labels])
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_xlabel(xlabel)
    if xlim is not None:
        margin = 0.02 * (xlim[1] - xlim[0])  # room for points at the very ends
        ax.set_xlim(xlim[0] - margin, xlim[1] + margin)
    if hue is not None:
        legend_above(fig, marks.values(), marks)
    return fig


def plot_lines(
    data: pd.DataFrame,
    x: str,
    y: str,
    *,
    hue: str,
    color: str | None = None,
    panel: str | None = None,
    low: str = "low",
    high: str = "high",
    faint: str | None = None,
    columns: int = 4,
    panel_size: tuple[float, float] = (8, 4.5),
    xlabel: str = "",
    ylabel: str = "",
):
    """A line a ``hue``, told apart by colour, dashes and (where points are few) markers.

    Args:
        data: one row a point, in the order of its line; ``x``, ``y``, ``hue``, ``color``, ``panel``, ``low``,
            ``high`` and ``faint`` name columns. A missing ``y`` is left out. Where the frame has ``low`` and
            ``high``, intervals are drawn, a little beside each other.
        color: column that decides the colour in place of ``hue``; lines of one colour have different dashes.
        panel: column whose values get a panel each, with the value as its title; ``columns`` in a row.
        faint: column drawn thin and pale below its line, such as what the line is a running mean of.
        panel_size: width and height of one panel in inches.

    Returns:
        The matplotlib figure, for :func:`save_figure`; panels are ``figure.axes``, in order.
    """
    import matplotlib.pyplot as plt

    use_style()
    panels = [("", data)] if panel is None else list(data.groupby(panel, sort=False))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    size = (panel_size[0] * columns, panel_size[1] * rows)
    fig, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    looks = _looks(data.drop_duplicates(hue), hue, color or hue)
    for ax, (title, part) in zip(axes.flat, panels, strict=False):
        apart = 0.02 * np.ptp(part[x]) if low in data else 0.0
        for i, (name, look) in enumerate(looks.items()):
            line = part[part[hue] == name].dropna(subset=[y])
            places = line[x] + apart * (i - (len(looks) - 1) / 2)
            _draw_line(ax, places, line, look, y, low, high, faint)
        ax.set(title=plain(title), ylabel=ylabel)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    for ax in axes.flat[max(0, len(panels) - columns) : len(panels)]:  # the lowest of each column
        ax.set_xlabel(xlabel)
    handles = {
        text: line for ax in fig.axes for line, text in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    columns = 4 if color is None else data[color].nunique()  # a column of the legend a colour
    legend_above(fig, handles.values(), handles, columns=min(columns, 4))
    return fig


def mark_level(ax, value: float, name: str, i: int = 0) -> None:
    """A grey line across a panel to compare with, its name at its right end; other dashes by ``i``."""
    ax.axhline(
        value, color="0.4", linestyle=_DASHES[1 + i % (len(_DASHES) - 1)], linewidth=1.5, label=plain(name)
    )
    ax.annotate(plain(name), (1, value), xycoords=("axes fraction", "data"), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=12, color="0.3")  # fmt: skip


def plot_bars(
    data: pd.DataFrame, label: str, value: str, *, hue: str | None = None, stacked: bool = False, ylabel=""
):
    """Vertical bars of ``value`` per ``label``, in the frame's order; one colour per ``hue``.

    Each (label, hue) may occur once. Returns the matplotlib figure, for :func:`save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    if hue is None:
        wide = data.set_index(label)[[value]]
    else:
        wide = data.pivot(index=label, columns=hue, values=value)
        wide = wide.reindex(index=data[label].unique(), columns=data[hue].unique())
    wide = wide.rename(index=plain, columns=plain)
    fig, ax = plt.subplots(figsize=(8, 4.5))
    crowded = sum(map(len, wide.index)) + 2 * len(wide) > 60
    if not crowded:
        wide = wide.rename(index=lambda name: name.replace(" ", "\n"))
    tones = None if hue is None else list(colors_of(wide.columns).values())
    wide.plot.bar(ax=ax, stacked=stacked, legend=False, rot=90 if crowded else 0, width=0.8, color=tones)
    ax.grid(axis="x", visible=False)
    ax.set_xlabel(plain(label))
    ax.set_ylabel(ylabel or plain(value))
    if hue is not None:
        legend_above(fig)
    return fig


def _looks(names: pd.DataFrame, hue: str, color: str) -> dict[str, dict]:
    """Colour, dashes, marker and label of the lines of :func:`plot_lines`, one row of ``names`` a line."""
    tones = colors_of(names[color])
    # Dashes by line; where a colour has several lines, by their number within it.
    place = range(len(names)) if color == hue else names.groupby(color, sort=False).cumcount()
    looks = {}
    for name, tone, i in zip(names[hue], names[color], place, strict=True):
        cues = {"linestyle": _DASHES[i % len(_DASHES)], "marker": _MARKERS[i % len(_MARKERS)]}
        looks[name] = {"color": tones[tone], "label": plain(name), **cues}
    return looks


def _draw_line(ax, places: pd.Series, line: pd.DataFrame, look: dict, y: str, low: str, high: str, faint):
    """One line of :func:`plot_lines`."""
    if len(line) > _MARKED:
        look = look | {"marker": None}
    if faint is not None and line[faint].notna().any():
        ax.plot(places, line[faint], color=look["color"], alpha=0.25, linewidth=1)
    if low in line:
        reach = np.nan_to_num([line[y] - line[low], line[high] - line[y]])
        ax.errorbar(places, line[y], yerr=reach, capsize=3, **look)
    elif not line.empty:
        ax.plot(places, line[y], **look)


def legend_above(fig, *marks_and_names, columns: int = 4):
    """A legend above the panels, in at most so many columns as the figure's width has room for.

    Args:
        marks_and_names: as ``fig.legend`` takes them; none: all that the panels have.
    """
    for n in range(columns, 0, -1):
        legend = fig.legend(*marks_and_names, loc="outside upper center", ncols=n)
        if n == 1 or legend.get_window_extent().width <= fig.bbox.width:
            return legend
        legend.remove()


def plain(text) -> str:
    r"""Text as matplotlib shows it letter by letter: a ``$`` in a product title starts no formula."""
    return str(text).replace("$", r"\$")
