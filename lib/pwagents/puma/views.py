"""What PUMA learned from, and how its losses fell."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from pwagents.evaluation.figures import mark_level, plot_lines


def label_counts(counts: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """Train tasks by what became of their labels: ``task``, then a column an outcome.

    Args:
        counts: from :func:`pwagents.puma.labels.leak_free_labels`; may be empty.
    """
    rows = [(task, outcome, n) for (task, outcome), n in counts.items()]
    frame = pd.DataFrame(rows, columns=["task", "outcome", "n"])
    return frame.pivot(index="task", columns="outcome", values="n").fillna(0).astype(int).reset_index()


def plot_losses(curves: pd.DataFrame):
    """Loss by step: fine-tuning on the left (logarithmic), preferences on the right, a line a variant.

    Where the loss of preferences begins, at log 2, the model is the reference and prefers nothing.

    Args:
        curves: from :func:`pwagents.puma.train.training_logs`; what is named "DPO, ..." goes right, in the
            colour of its variant ("SFT, full" and "DPO, full").

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figures.save_figure`.
    """
    preferences = curves["training"].str.startswith("DPO")
    panels = np.where(preferences, "Preferences (DPO)", "Fine-tuning")
    named = curves.assign(panel=panels, variant=curves["training"].str.split(", ").str[-1])
    figure = plot_lines(
        named.sort_values("panel", kind="stable"),
        "step",
        "loss",
        hue="variant",
        panel="panel",
        panel_size=(5.5, 4.2),
        xlabel="step",
    )
    left, right = figure.axes
    left.set(ylabel="loss (nats a token)", yscale="log")
    left.yaxis.set_major_formatter("{x:g}")
    right.set(ylabel="loss (nats a pair)")
    mark_level(right, math.log(2), "no preference (log 2)")
    return figure
