"""What PUMA learned from, and how its losses fell."""

import math
from collections.abc import Mapping

import pandas as pd

from pwagents.evaluation.figures import plain, use_style


def label_counts(counts: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """Train tasks by what became of their labels: ``task``, then a column an outcome.

    Args:
        counts: from :func:`pwagents.puma.labels.leak_free_labels`; may be empty.
    """
    rows = [(task, outcome, n) for (task, outcome), n in counts.items()]
    frame = pd.DataFrame(rows, columns=["task", "outcome", "n"])
    return frame.pivot(index="task", columns="outcome", values="n").fillna(0).astype(int).reset_index()


def plot_losses(curves: pd.DataFrame):
    """Loss by step: fine-tuning on the left (logarithmic), preferences on the right, a line a training.

    The trainings of one variant ("SFT, full" and "DPO, full") share a colour. Where the loss of preferences
    begins, at log 2, the model is the reference and prefers nothing.

    Args:
        curves: from :func:`pwagents.puma.train.training_logs`; what is named "DPO, ..." goes right.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figures.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    names = dict.fromkeys(curves["training"])
    variants = list(dict.fromkeys(name.split(", ")[-1] for name in names))
    for name in names:
        log = curves[curves["training"] == name]
        ax, variant = axes[int(name.startswith("DPO"))], name.split(", ")[-1]
        ax.plot(log["step"], log["loss"], color=f"C{variants.index(variant)}", label=plain(name))
    axes[0].set(title="Fine-tuning", xlabel="step", ylabel="loss (nats a token)", yscale="log")
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[1].set(title="Preferences (DPO)", xlabel="step", ylabel="loss (nats a pair)")
    axes[1].axhline(math.log(2), color="grey", linestyle="--", linewidth=1, label="no preference (log 2)")
    for ax in axes:
        ax.legend(fontsize=10)
    return fig
