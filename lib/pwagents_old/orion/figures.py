"""Figures of Orion's trainings: the base model, learning curves, scaling."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pwagents.results.figures import plot_intervals, plot_lines
from pwagents.results.style import mark_level
from pwagents.base_model.pretrain import LOG
from pwagents_old.rl.log import smooth

# Numbers of the log -> what a panel says of them. What is held out says so; all else are training episodes.
PANELS = {
    "reward": "reward of an episode",
    "eval_return": "return, validation",
    "eval_result_final": "result accuracy, validation",
    "reward_alignment": "reward: alignment alone",
    "asks": "questions an episode",
    "entropy": "entropy (nats a token)",
    "clip_fraction": "share of tokens clipped",
    "kl": "KL from the start (nats)",
    "grad_norm": "gradient norm",
}


def plot_curves(curves: pd.DataFrame, window: int = 5):
    """A panel a number of :data:`PANELS`, a line a run: the mean of the last ``window`` steps.

    Args:
        curves: from :func:`pwagents_old.rl.log.read_curves`. Numbers that no run has get no panel, nor
            does a KL of 0 throughout, as of runs without a model to compare with. Runs named "METHOD, seed N"
            have the colour of their method and dashes by seed; of others each step is drawn too, thin.

    Returns:
        The matplotlib figure.
    """
    names = [name for name in PANELS if name in curves and curves[name].notna().any()]
    names = [name for name in names if name != "kl" or curves[name].any()]
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
    return figure


def plot_results(summary: pd.DataFrame):
    """Result accuracy of each method with its interval; a colour a type of task where there are several.

    Args:
        summary: ``method, type, mean, low, high``, as from
            :func:`pwagents.results.statistics.by_type_and_mean`.
    """
    hue = "type" if summary["type"].nunique() > 1 else None
    return plot_intervals(summary, "method", hue=hue, xlabel="result accuracy (95% interval)", xlim=(0, 1))


def plot_scaling(summary: pd.DataFrame, levels: Mapping[str, float] | None = None):
    """Result accuracy against the number of trajectories, with 95% intervals; a line a type of task.

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
    return figure


def read_base_log(folder: Path) -> pd.DataFrame:
    """The learning curve of the small base model: ``lesson`` and ``step`` (counted through), ``loss``,
    ``query_accuracy``."""
    log = pd.read_csv(folder / LOG)
    lengths = log.groupby("lesson")["step"].max()
    before = (lengths.cumsum() - lengths).rename("before")
    return log.assign(step=log["step"] + log["lesson"].map(before), lesson=log["lesson"] + 1)


def plot_base(log: pd.DataFrame):
    """Loss and query accuracy of the small base model by step, a line a lesson.

    Args:
        log: from :func:`read_base_log`.

    Returns:
        The matplotlib figure.
    """
    panels = {"loss": "loss (nats a token)", "query_accuracy": "query words right, held out"}
    long = log.melt(["lesson", "step"], list(panels), var_name="panel").assign(
        lesson=lambda rows: "lesson " + rows["lesson"].astype(str)
    )
    figure = plot_lines(
        long, "step", "value", hue="lesson", panel="panel", panel_size=(5.5, 4.2), xlabel="step"
    )
    for ax, label in zip(figure.axes, panels.values(), strict=True):
        ax.set(title="", ylabel=label)
    figure.axes[1].set_ylim(-0.02, 1.02)
    return figure
