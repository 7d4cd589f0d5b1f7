"""Curves of Orion's trainings: by step, and by number of conversations learned from."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pwagents.results.figures import plot_lines
from pwagents.results.style import mark_level, set_title

# Numbers of the log -> what a panel says of them. What is held out says so; all else are training episodes.
PANELS = {
    "reward": "reward of an episode",
    "eval_return": "return, validation",
    "eval_result_final": "result accuracy, validation",
    "reward_alignment": "reward: alignment alone",
    "asks": "questions an episode",
    "entropy": "entropy (nats a token)",
    "clip_fraction": "share of tokens clipped",
    "grad_norm": "gradient norm",
}


def plot_curves(curves: pd.DataFrame, *, window: int = 5, title: str = ""):
    """Draw a panel a number of :data:`PANELS`, a line a run: the mean of the last ``window`` steps.

    Args:
        curves: from :func:`pwagents.rl.log.read_curves`. Numbers that no run has get no panel, nor
            does a KL of 0 throughout, as of runs without a model to compare with. Runs named "METHOD, seed N"
            have the colour of their method and dashes by seed; of others each step is drawn too, thin.

    Returns:
        The matplotlib figure.
    """
    names = [name for name in PANELS if name in curves and curves[name].notna().any()]
    methods = curves["run"].str.split(", seed", n=1).str[0]
    parts = []
    for name in names:
        part = curves[["run", "step"]].assign(method=methods, panel=PANELS[name], each=curves[name])
        if name.startswith("eval_"):  # already a mean over many episodes
            parts.append(part.assign(shown=part["each"], each=np.nan))
        else:
            parts.append(part.assign(shown=smooth(curves, name, window)).dropna(subset=["each"]))
    by_seed = (methods != curves["run"]).any()
    color, faint = ("method", None) if by_seed else ("run", "each")
    figure = plot_lines(
        pd.concat(parts, ignore_index=True), "step", "shown", hue="run", color=color,
        panel="panel", faint=faint, columns=2, panel_size=(5, 3.2), xlabel="step",
    )  # fmt: skip
    for ax in figure.axes:
        ax.xaxis.get_major_locator().set_params(integer=True)
    set_title(figure, title)
    return figure


def plot_scaling(summary: pd.DataFrame, *, levels: Mapping[str, float] | None = None, title: str = ""):
    """Draw result accuracy against the number of trajectories, with 95% intervals; a line a type of task.

    Args:
        summary: ``trajectories, type, mean, low, high``, as from
            :func:`pwagents.results.statistics.by_type_and_mean`.
        levels: horizontal lines to compare with, such as the teacher's.
    """
    rows = summary.assign(doublings=np.log2(summary["trajectories"])).sort_values(
        "trajectories", kind="stable"
    )
    figure = plot_lines(
        rows, "doublings", "mean", hue="type", panel_size=(8, 4.8), xlabel="trajectories learned from",
        ylabel="result accuracy (95% interval)",
    )  # fmt: skip
    (ax,) = figure.axes
    for i, (name, value) in enumerate((levels or {}).items()):
        mark_level(ax, value, name, i)
    numbers = sorted(summary["trajectories"].unique())
    ax.set_xticks(np.log2(numbers), [f"{n:,}" for n in numbers])
    set_title(figure, title)
    return figure


def smooth(curves: pd.DataFrame, column: str, window: int) -> pd.Series:
    """Return the column's mean over the last ``window`` steps of the same run; fewer at a run's beginning.

    Missing values count for nothing; where all are missing, so is the mean.
    """
    groups = curves.groupby("run", sort=False)[column]
    return groups.transform(lambda values: values.rolling(window, min_periods=1).mean())
