"""The style of all figures, and what several of them draw alike.

The style is matplotlib's own seaborn sheet (white grid) with type large enough to be read at half size, above
matplotlib's defaults: a user's matplotlibrc changes no figure. A type of task and a method of training have
the same color in every figure. Nothing here chooses a backend, so scripts, tests and notebooks all work.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import cycle
from pathlib import Path
from textwrap import wrap

import pandas as pd

# Of Okabe and Ito's colors and ColorBrewer's "Dark2" those that stand out from white (3 : 1 and more) and
# from each other under the common kinds of color blindness.
PALETTE = ("#0072B2", "#009E73", "#D55E00", "#7570B3", "#882255", "#A6761D", "#C2609A", "#4D4D4D")
_FIXED = ("search", "recommend", "review", "SFT", "GRPO", "PPO")  # what has one color in all figures
COLORS = dict(zip(_FIXED, PALETTE, strict=False))
NEUTRAL = PALETTE[-1]  # of a legend's marks whose color means nothing
_STYLE: list[str | Path | dict] = [
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
MARKERS = "osD^vP"  # a second cue after color
DASHES = ("-", "--", ":", "-.", (0, (9, 2.5)))  # a third


@contextmanager
def style() -> Iterator[None]:
    """Return a context in which figures are made and written in the style."""
    import matplotlib.pyplot as plt

    # By its path: a user's own sheet may have the same name.
    sheet = Path(plt.matplotlib.get_data_path(), "stylelib", "seaborn-v0_8-whitegrid.mplstyle")
    # Which matplotlib does not reset with the others.
    times = {name: plt.rcParamsDefault[name] for name in ("timezone", "date.epoch")}
    with plt.rc_context(times), plt.style.context([sheet, *_STYLE], after_reset=True):
        yield


def add_style(sheet: str) -> None:
    """Put a style sheet of matplotlib's, or a file, above the style of all figures.

    Raises:
        ValueError: there is no such sheet.
    """
    import matplotlib.pyplot as plt

    source = file if (file := Path(sheet).expanduser()).is_file() else sheet
    try:
        with plt.style.context(source):
            _STYLE.append(source)
    except (OSError, ValueError):
        expected = "a file, or one of matplotlib's style sheets, such as seaborn-v0_8-talk"
        raise ValueError(f"style: found {sheet!r}; expected {expected}") from None


def styled(plot: Callable) -> Callable:
    """Let a function ``plot_...`` make its figure in the style."""

    @wraps(plot)
    def draw(*arguments, **options):
        with style():
            return plot(*arguments, **options)

    return draw


def assign_colors(names: Iterable[str]) -> dict[str, str]:
    """Assign a color to each name: that of :data:`COLORS`, or the next of the palette."""
    names = dict.fromkeys(names)  # each once, in their order
    fixed = {name: COLORS[name] for name in names if name in COLORS}
    left = cycle([color for color in PALETTE if color not in fixed.values()])
    return {name: fixed.get(name) or next(left) for name in names}


def draw_points(ax, data: pd.DataFrame, mean: str, places: pd.Series, *, orient: str = "y", **look):
    """Draw each row's ``mean``, with the interval from ``low`` to ``high`` if ``data`` has it.

    ``places`` are on the axis ``orient``. ``look`` is of the line through the points, which is returned.
    """
    import seaborn as sns

    # Seaborn computes no interval: the median of (low, mean, high) is the mean, their whole range is ours.
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


def mark_level(ax, value: float, name: str, i: int = 0) -> None:
    """Draw a grey line across a panel, its name at its right end; ``i`` sets the dashes."""
    name, dashes = escape_math(name), DASHES[1 + i % (len(DASHES) - 1)]
    ax.axhline(value, color="0.4", linestyle=dashes, linewidth=1.5, label=name)
    ax.annotate(name, (1, value), xycoords=("axes fraction", "data"), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=12, color="0.3")  # fmt: skip


def legend_above(fig, *marks_and_names):
    """Put a legend above the panels, in as many columns (up to four) as there is room for.

    ``marks_and_names`` are as ``fig.legend`` takes them; none: all that the panels have.
    """
    for n in (4, 3, 2, 1):
        legend = fig.legend(*marks_and_names, loc="outside upper center", ncols=n)
        if n == 1 or legend.get_window_extent().width <= fig.bbox.width:
            return legend
        legend.remove()


def set_title(fig, title: str) -> None:
    """Put a title above a figure and its legend, in lines as long as the figure is wide."""
    if not title:
        return
    lines = wrap(title, int(7 * fig.get_figwidth()))
    text = escape_math("\n".join(lines))
    if fig.legends:  # constrained layout would put a title of the figure's own over the legend
        fig.legends[0].set_title(text, prop={"size": "large"})
    else:
        fig.suptitle(text, fontsize="large")


def escape_math(text) -> str:
    r"""Escape text for matplotlib, so that a ``$`` in a product title starts no formula."""
    return str(text).replace("$", r"\$")
