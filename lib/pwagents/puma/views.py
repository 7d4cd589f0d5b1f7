"""What notebook 04 shows: labels, pairs and losses."""

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from pwagents.evaluation.figures import mark_level, plot_lines
from pwagents.puma.labels import Example, PumaTask
from pwagents.puma.pairs import Candidate, Pair
from pwagents.puma.settings import PumaNotebook
from pwagents.schema import TASK_TYPES

_OUTCOMES = ("pair", "equal", "no call")


def one_of_each_type(items: Sequence[PumaTask]) -> str:
    """The input of step 2 for the first task of each type: its rule, and the beginning of the user's turn."""
    shown = []
    for item in {item.task.type: item for item in reversed(items)}.values():
        rules, asked = item.messages
        shown.append(f"{rules['content'].split('.')[1].strip()} ...\n{asked['content'][:700]}\n{'-' * 80}")
    return "\n".join(shown)


def label_counts(counts: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """Train tasks by what became of their labels: ``task``, then a column an outcome.

    Args:
        counts: from :func:`pwagents.puma.labels.leak_free_labels`; may be empty.
    """
    rows = [(task, outcome, n) for (task, outcome), n in counts.items()]
    frame = pd.DataFrame(rows, columns=["task", "outcome", "n"])
    return frame.pivot(index="task", columns="outcome", values="n").fillna(0).astype(int).reset_index()


def label_examples(labels: Sequence[Example]) -> pd.DataFrame:
    """A task of each type with its label."""
    chosen = {label.item.task.type: label for label in labels}
    rows = [(task, label.item.task.instruction, _said(label.arguments)) for task, label in chosen.items()]
    return pd.DataFrame(rows, columns=["task", "instruction", "label"])


def pair_counts(outcomes: Mapping[str, Mapping[tuple[str, str], int]]) -> pd.DataFrame:
    """Train tasks by type and by what sampling gave, a column a variant.

    Args:
        outcomes: variant -> counts as of :func:`pwagents.puma.pairs.make_pairs`.
    """
    frame = pd.DataFrame(outcomes).fillna(0).astype(int).rename_axis(["task", "outcome"])
    order = [place for place in product(TASK_TYPES, _OUTCOMES) if place in frame.index]
    return frame.loc[order].reset_index()


def pair_examples(pairs: Sequence[Pair]) -> str:
    """A pair of each type of task, as text: the request, the best and the worst answer with their results."""
    shown = []
    for pair in {pair.item.task.type: pair for pair in pairs}.values():
        task = pair.item.task
        shown.append(f"{task.type}: {task.instruction}")
        shown += [_scored("best", pair.best), _scored("worst", pair.worst)]
    return "\n".join(shown)


def plot_losses(losses: pd.DataFrame):
    """Loss by step: fine-tuning on the left (logarithmic), preferences on the right, a line a variant.

    Where the loss of preferences begins, at log 2, the model is the reference and prefers nothing.

    Args:
        losses: from :func:`pwagents.lm.log.read_losses`; names are "SFT: PUMA" or "DPO: PUMA", and what is
            named "DPO: ..." goes right, in the colour of its variant.

    Returns:
        The matplotlib figure.
    """
    preferences = losses["training"].str.startswith("DPO")
    panels = np.where(preferences, "Preferences (DPO)", "Fine-tuning")
    named = losses.assign(panel=panels, variant=losses["training"].str.split(": ", n=1).str[-1])
    figure = plot_lines(
        named.sort_values("panel", kind="stable"),
        "step",
        "loss",
        hue="variant",
        panel="panel",
        panel_size=(5.5, 4.2),
        xlabel="step",
    )
    left, *right = figure.axes  # no panel of preferences where sampling gave no pair
    left.set(ylabel="loss (nats a token)", yscale="log")
    left.yaxis.set_major_formatter("{x:g}")
    for ax in right:
        ax.set(ylabel="loss (nats a pair)")
        mark_level(ax, math.log(2), "no preference (log 2)")
    return figure


def circumstances(settings: PumaNotebook, n_tasks: int) -> str:
    """What the test's numbers hold for, for the notes of tables."""
    whose = " of users that no training saw" if settings.study.training_users else ""
    return (
        f"Single-turn, leak-free, source {settings.data.source}, {n_tasks:,} test tasks{whose}. Backbone: "
        f"{settings.base.backbone}; memory {settings.study.memory_tokens} tokens of its tokenizer."
    )


def _scored(name: str, candidate: Candidate) -> str:
    return f"  {name}, {candidate.score:.2f}: {_said(candidate.arguments)}"


def _said(arguments: Mapping[str, object]) -> str:
    """The one argument of a call: a text, or ids."""
    (value,) = arguments.values()
    return value if isinstance(value, str) else ", ".join(value)
