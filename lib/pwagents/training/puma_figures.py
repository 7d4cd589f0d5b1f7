"""Figures of PUMA's trainings."""

import pandas as pd

from pwagents.evaluation.figures import plain, use_style


def plot_losses(curves: pd.DataFrame):
    """Loss by step: fine-tuning on the left, preferences on the right, a line a training.

    Args:
        curves: from :func:`pwagents.training.puma_recipe.training_logs`; what is named "DPO, ..." goes right.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figures.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    prefers = curves["training"].str.startswith("DPO")
    for ax, part, title in zip(
        axes, (curves[~prefers], curves[prefers]), ("Fine-tuning", "Preferences (DPO)"), strict=True
    ):
        for name, log in part.groupby("training", sort=False):
            ax.plot(log["step"], log["loss"], label=plain(name))
        ax.set(title=title, xlabel="step", ylabel="loss")
        if len(part):
            ax.legend(fontsize=10)
    return fig
