"""Figures in one style; :mod:`pwagents_old.notebook.figures` writes and shows them.

The style is matplotlib's own seaborn sheet (white grid) with type large enough to be read at half size. A
type of task and a method of training have the same colour in every figure. Seaborn draws. It computes no
interval of ours: each point has three rows (low, mean, high), of which it draws the median and the whole
range. Nothing here chooses a backend, so scripts, tests and notebooks all work.
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
    """Set the style for all figures made from here on; the plot functions below call it themselves."""
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


def assign_colors(names: Iterable[str]) -> dict[str, str]:
    """Assign a colour to each name: that of :data:`COLORS`, or the first of the palette that is left."""
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
):
    """Plot points with horizontal intervals, one line of the figure per ``label``, first at the top.

    Args:
        data: one row a point, with ``low`` and ``high``. A missing interval draws the point alone, a missing
            ``mean`` nothing.
        hue: column whose values get a colour and marker each, side by side within a line.
        color: column that decides the colour in place of ``hue``, which then has the markers alone.
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
):
    """Plot a line a ``hue``, told apart by colour, dashes and (where points are few) markers.

    Args:
        data: one row a point, in the order of its line. A missing ``y`` is left out. Where it has ``low`` and
            ``high``, intervals are drawn, a little beside each other.
        color: column that decides the colour in place of ``hue``; lines of one colour have different dashes.
        panel: column whose values get a panel each, with the value as its title; ``columns`` in a row.
        faint: column drawn thin and pale below its line, such as what the line is a running mean of.
        panel_size: width and height of one panel in inches.

    Returns:
        The matplotlib figure; panels are ``figure.axes``, in order.
    """
    import matplotlib.pyplot as plt

    use_style()
    panels = [("", data)] if panel is None else list(data.groupby(panel, sort=False))
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    size = (panel_size[0] * columns, panel_size[1] * rows)
    fig, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)

    # Dashes and markers by line; where a colour has several lines, by their number within it.
    lines = data.drop_duplicates(hue)
    numbers = range(len(lines)) if color in (None, hue) else lines.groupby(color, sort=False).cumcount()
    tones, looks = assign_colors(lines[color or hue]), {}
    for name, tone, i in zip(lines[hue], lines[color or hue], numbers, strict=True):
        cues = {"linestyle": _DASHES[i % len(_DASHES)], "marker": _MARKERS[i % len(_MARKERS)]}
        looks[name] = {"color": tones[tone], **cues}

    drawn = set()
    for ax, (title, part) in zip(axes.flat, panels, strict=False):
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
        ax.set(title=escape_math(title), xlabel="", ylabel=ylabel)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    for ax in axes.flat[max(0, len(panels) - columns) : len(panels)]:  # the lowest of each column
        ax.set_xlabel(xlabel)
    n_columns = 4 if color is None else data[color].nunique()  # a column of the legend a colour
    handles = {escape_math(name): plt.Line2D([], [], **look) for name, look in looks.items() if name in drawn}
    legend_above(fig, handles.values(), handles, columns=min(n_columns, 4))
    return fig


def mark_level(ax, value: float, name: str, i: int = 0) -> None:
    """Draw a grey line across a panel to compare with, its name at its right end; other dashes by ``i``."""
    name, dashes = escape_math(name), _DASHES[1 + i % (len(_DASHES) - 1)]
    ax.axhline(value, color="0.4", linestyle=dashes, linewidth=1.5, label=name)
    ax.annotate(name, (1, value), xycoords=("axes fraction", "data"), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=12, color="0.3")  # fmt: skip


def plot_bars(
    data: pd.DataFrame, label: str, value: str, *, hue: str | None = None, stacked: bool = False, ylabel=""
):
    """Plot vertical bars of ``value`` per ``label``, in the frame's order; one colour per ``hue``.

    Each (label, hue) may occur once. Returns the matplotlib figure.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    use_style()
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
