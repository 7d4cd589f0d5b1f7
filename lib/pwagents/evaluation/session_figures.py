"""Figures of what happens within episodes: transitions between actions, attempt after attempt."""

import pandas as pd

from pwagents.evaluation.figures import plain, use_style
from pwagents.evaluation.session_tables import ACTIONS, END, START
from pwagents.schema import TASK_TYPES


def plot_transitions(transitions: pd.DataFrame):
    """Which action follows which, one panel a task type: shares of what follows each action.

    PersonalWAB draws this as a chord diagram (Figure 8); a grid of shares can be read off.

    Args:
        transitions: from :func:`pwagents.evaluation.session_tables.action_transitions`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figures.save_figure`.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    use_style()
    types = [name for name in TASK_TYPES if name in set(transitions["type"])]
    if not types:
        return _nothing("no episode was scored")
    present = {*transitions["from"], *transitions["to"]}
    names = [name for name in ACTIONS.values() if name in present]
    height = 1.8 + 0.55 * len(names)
    fig, axes = plt.subplots(1, len(types), figsize=(1.5 + height * len(types), height), squeeze=False)
    for ax, task_type in zip(axes[0], types, strict=True):
        part = transitions[transitions["type"] == task_type]
        grid = part.pivot(index="from", columns="to", values="share")
        grid = grid.reindex(index=[n for n in names if n != END], columns=[n for n in names if n != START])
        sns.heatmap(
            grid, ax=ax, vmin=0, vmax=1, cmap="cividis_r", annot=True, fmt=".2f", cbar=False, square=True,
            linewidths=1, annot_kws={"size": 12},
        )  # fmt: skip
        ax.grid(visible=False)
        ax.set_facecolor("#f4f4f4")  # what never happened
        ax.set(title=plain(task_type), xlabel="next action", ylabel="action")
        ax.tick_params(axis="x", rotation=45)
        ax.tick_params(axis="y", rotation=0)
    return fig


def plot_attempts(attempts: pd.DataFrame):
    """Attempt after attempt: how many tasks get there (bars), and how well they fare (lines).

    Args:
        attempts: from :func:`pwagents.evaluation.session_tables.attempts_by_number`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figures.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    types = [name for name in TASK_TYPES if name in set(attempts["type"])]
    if not types:
        return _nothing("no attempt was made")
    size = (4.2 * len(types), 6.5)
    fig, axes = plt.subplots(
        2, len(types), figsize=size, sharex=True, sharey="row", squeeze=False, height_ratios=(1, 1.6)
    )
    numbers = range(1, attempts["attempt"].max() + 1)
    for (upper, lower), task_type in zip(axes.T, types, strict=True):
        part = attempts[attempts["type"] == task_type]
        upper.bar(part["attempt"], part["tasks"], color="0.65")
        upper.set(title=plain(task_type))
        upper.grid(axis="x", visible=False)
        lower.plot(part["attempt"], part["result_accuracy"], "o-", color="C0", label="this attempt")
        lower.plot(part["attempt"], part["best_so_far"], "s--", color="C1", label="best so far, all tasks")
        lower.set(xlabel="attempt", xticks=list(numbers), ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel("tasks that get there")
    axes[1, 0].set_ylabel("result accuracy")
    fig.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return fig


def _nothing(why: str):
    """A figure that says why there is nothing to be seen."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(6, 1.5))
    ax.axis("off")
    ax.text(0.5, 0.5, why, ha="center", va="center")
    return fig
