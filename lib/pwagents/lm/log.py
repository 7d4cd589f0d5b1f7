"""The losses of fine-tuning and preference optimization, as their trainings left them."""

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from pwagents.evaluation.figures import mark_level, plot_lines


def read_losses(folders: Mapping[str, Path]) -> pd.DataFrame:
    """Read the logs of trainings, name -> folder: ``training`` (the name), ``step``, ``loss`` and more.

    A folder without a log is passed over: a model that was not trained here has none.
    """
    logs = [
        pd.read_csv(folder / "log.csv").assign(training=name)
        for name, folder in folders.items()
        if (folder / "log.csv").exists()
    ]
    return pd.concat(logs, ignore_index=True)


def not_falling(losses: pd.DataFrame) -> list[str]:
    """Name trainings that did not learn: the last third of the losses is not below the first one.

    A log of a single row, of a training of a few steps, says nothing and is passed over.

    Args:
        losses: from :func:`read_losses`.
    """
    idle = []
    for name, log in losses.groupby("training", sort=False):
        last = log["loss"].tail(max(1, len(log) // 3))
        if len(log) > 1 and not last.mean() < log["loss"].iloc[0]:  # written so that nan is not below
            idle.append(name)
    return idle


def plot_losses(losses: pd.DataFrame):
    """Draw the loss by step, a line a training; all are of one kind."""
    of_pairs = losses["training"].str.startswith("DPO").all()
    unit = f"loss (nats a {'pair' if of_pairs else 'token'})"
    figure = plot_lines(losses, "step", "loss", hue="training", xlabel="step", ylabel=unit)
    (ax,) = figure.axes
    if of_pairs:  # it begins at log 2, where nothing is preferred
        mark_level(ax, math.log(2), "no preference (log 2)")
    else:
        ax.set_ylim(bottom=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    return figure
