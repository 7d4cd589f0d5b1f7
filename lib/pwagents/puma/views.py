"""PUMA's tables: PersonalWAB's Tables 3, 5 and 6 with the printed numbers beside ours, and paired tests.

Figures of PUMA's trainings.
"""

import math
from collections.abc import Mapping

import pandas as pd

from pwagents.evaluation.breakdowns import by_task
from pwagents.evaluation.figures import plain, use_style
from pwagents.evaluation.paper import paper_table
from pwagents.evaluation.statistics import paired_test
from pwagents.evaluation.tables import paper_beside
from pwagents.schema import TASK_TYPES

METRICS = {"function_accuracy": "function_accuracy", "result_official": "result_accuracy"}


def label_counts(counts: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """Train tasks by what became of their labels: ``task``, then a column an outcome.

    Args:
        counts: from :func:`pwagents.puma.labels.leak_free_labels`; may be empty.
    """
    rows = [(task, outcome, n) for (task, outcome), n in counts.items()]
    frame = pd.DataFrame(rows, columns=["task", "outcome", "n"])
    return frame.pivot(index="task", columns="outcome", values="n").fillna(0).astype(int).reset_index()


def beside_paper(frame: pd.DataFrame, table: str, rows: Mapping[str, str]) -> pd.DataFrame:
    """A table of PersonalWAB, its numbers and ours side by side.

    Args:
        frame: episodes as of :func:`pwagents.evaluation.runner.records_frame`.
        table: "Table 3", "Table 5" or "Table 6".
        rows: method -> its row in the table; a name that the paper does not have makes a row of its own.
    """
    printed = paper_table("PersonalWAB", table)
    shown = frame[frame["method"].isin(rows)].assign(method=lambda f: f["method"].map(rows))
    measured = by_task(shown, METRICS)[0].reindex(columns=printed.columns).rename_axis("row")
    return paper_beside(_flat(measured), _flat(printed)).astype(float)


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """One heading a column ("search, result accuracy"), as paper and here take the second."""
    return frame.set_axis([f"{task}, {column.replace('_', ' ')}" for task, column in frame.columns], axis=1)


def differences(frame: pd.DataFrame, pairs: Mapping[str, tuple[str, str]], metric: str) -> pd.DataFrame:
    """Paired tests on the tasks of each type and on all, one row a comparison and task.

    Args:
        pairs: what is compared, in words -> the two methods, first minus second.

    Returns:
        ``comparison, task, difference, low, high, p, n_tasks, n_users``, clustered by user.
    """
    rows = []
    for name, (a, b) in pairs.items():
        for task in (*TASK_TYPES, "overall"):
            part = frame if task == "overall" else frame[frame["type"] == task]
            rows.append({"comparison": name, "task": task, **paired_test(part, metric, a, b)._asdict()})
    return pd.DataFrame(rows).drop(columns="n_left_out")


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
