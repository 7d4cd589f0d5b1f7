"""Figures of Orion's trainings: learning curves, scaling, and what is asked where."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.evaluation.figures import plain, use_style
from pwagents.rl.log import smooth

# Numbers of the log -> what a panel says of them. What is held out is marked; all else are training episodes.
PANELS = {
    "reward": "reward of an episode",
    "reward_task": "reward: task",
    "reward_alignment": "reward: alignment",
    "eval_result_final": "result accuracy, held out",
    "result_final": "result accuracy",
    "step_accuracy": "function accuracy (by step)",
    "asks": "questions an episode",
    "turns": "turns an episode",
    "tokens": "tokens written an episode",
    "entropy": "entropy (nats a token)",
    "kl": "KL from the start (nats)",
    "grad_norm": "gradient norm",
    "explained": "critic: variance explained",
}
_STYLES = ("-", "--", ":", "-.")  # a second cue beside colour
_MARKERS = "osD^vP"


def plot_curves(curves: pd.DataFrame, window: int = 5, columns: int = 4):
    """A panel a number of the log, a line a run: each step thin, the mean of the last ``window`` thick.

    Args:
        curves: from :func:`pwagents.rl.log.read_curves`. Numbers that no run has get no panel, nor
            does a KL of 0 throughout, as of runs without a model to compare with.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figures.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    names = [name for name in PANELS if name in curves and curves[name].notna().any()]
    names = [name for name in names if name != "kl" or curves[name].any()]
    rows = -(-len(names) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(4 * columns, 3.1 * rows), squeeze=False, sharex=True)
    for ax, name in zip(axes.flat, names, strict=False):
        smoothed = curves.assign(smoothed=smooth(curves, name, window))
        for i, (run, part) in enumerate(smoothed.groupby("run", sort=False)):
            part = part.dropna(subset=[name])
            look = {"color": f"C{i}", "label": plain(run), "linestyle": _STYLES[i % len(_STYLES)]}
            if name.startswith("eval_"):
                ax.plot(part["step"], part[name], marker=_MARKERS[i % len(_MARKERS)], **look)
            else:
                ax.plot(part["step"], part[name], color=f"C{i}", alpha=0.25, linewidth=1)
                ax.plot(part["step"], part["smoothed"], **look)
        ax.set_title(PANELS[name], fontsize=13)
        ax.xaxis.get_major_locator().set_params(integer=True)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    for ax in axes.flat[max(0, len(names) - columns) : len(names)]:
        ax.set_xlabel("step")
        ax.tick_params(labelbottom=True)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=4)
    return fig


def plot_scaling(summary: pd.DataFrame, hue: str, levels: Mapping[str, float] | None = None):
    """Result accuracy against the number of trajectories, with 95% intervals; one line a ``hue``.

    Args:
        summary: ``trajectories``, ``hue``, ``mean, low, high``, as from
            :func:`pwagents.evaluation.statistics.summarise`.
        levels: horizontal lines to compare with, such as the teacher's.
    """
    import matplotlib.pyplot as plt

    use_style()
    fig, ax = plt.subplots(figsize=(8, 4.8))
    groups = list(summary.groupby(hue, sort=False))
    for i, (name, part) in enumerate(groups):
        part = part.sort_values("trajectories")
        x = part["trajectories"] * 1.03 ** (i - (len(groups) - 1) / 2)  # side by side
        _line(ax, x, part, i, name)
    for (name, value), style in zip((levels or {}).items(), _STYLES[1:] * 3, strict=False):
        ax.axhline(value, color="0.4", linestyle=style, linewidth=1.5)
        ax.annotate(plain(name), (1, value), xycoords=("axes fraction", "data"), xytext=(4, 0),
                    textcoords="offset points", va="center", fontsize=12, color="0.3")  # fmt: skip
    numbers = sorted(summary["trajectories"].unique())
    ax.set_xscale("log")
    ax.set_xticks(numbers, [f"{n:,}" for n in numbers])
    ax.xaxis.minorticks_off()
    ax.set(xlabel="trajectories learned from", ylabel="result accuracy (95% interval)")
    fig.legend(loc="outside upper center", ncols=4)
    return fig


def plot_by_ambiguity(summary: pd.DataFrame, label: str, xlabel: str, metrics: Mapping[str, str]):
    """A panel a metric, a line a method, over how much the instruction leaves open.

    Args:
        summary: ``method``, ``label``, ``metric``, ``mean, low, high``, rows in the order of the axis.
        label: the column along the axis, such as "fitting" of
            :func:`pwagents.orion.views.with_ambiguity`.
        metrics: of the summary -> what its panel's axis says.
    """
    import matplotlib.pyplot as plt

    use_style()
    places = {value: i for i, value in enumerate(dict.fromkeys(summary[label]))}
    fig, axes = plt.subplots(1, len(metrics), figsize=(5.5 * len(metrics), 4.8), squeeze=False)
    for ax, (metric, ylabel) in zip(axes[0], metrics.items(), strict=True):
        groups = list(summary[summary["metric"] == metric].groupby("method", sort=False))
        for i, (name, part) in enumerate(groups):
            x = part[label].map(places) + 0.06 * (i - (len(groups) - 1) / 2)
            _line(ax, x, part, i, name)
        ax.set_xticks(range(len(places)), [_tick(value) for value in places])
        ax.set_xlim(-0.5, len(places) - 0.5)
        ax.set(xlabel=xlabel, ylabel=ylabel)
        ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return fig


def _line(ax, x: Sequence[float], part: pd.DataFrame, i: int, name: str) -> None:
    """Means with their intervals, joined; colour, marker and dashes by ``i``."""
    reach = np.nan_to_num([part["mean"] - part["low"], part["high"] - part["mean"]])
    look = {"marker": _MARKERS[i % len(_MARKERS)], "linestyle": _STYLES[i % len(_STYLES)]}
    ax.errorbar(x, part["mean"], yerr=reach, capsize=3, color=f"C{i}", label=plain(name), **look)


def _tick(value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
