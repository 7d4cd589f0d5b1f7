"""What notebook 04 shows: labels, pairs and losses, and what stands below its tables."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.evaluation.figures import mark_level, plot_lines
from pwagents.puma.labels import Label
from pwagents.puma.pairs import Pair, count_pairs
from pwagents.puma.study import PumaStudy
from pwagents.schema import TASK_TYPES

COPIES = 0.5  # a model copies ids where more than this share of them are products
_OUTCOMES = ("differs", "tie", "one text")


def label_counts(counts: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """Tabulate train tasks by what became of their labels: ``task``, then a column an outcome.

    Args:
        counts: of :meth:`pwagents.puma.study.PumaStudy.labels`; may be empty.
    """
    rows = [(task, outcome, n) for (task, outcome), n in counts.items()]
    frame = pd.DataFrame(rows, columns=["task", "outcome", "n"])
    return frame.pivot(index="task", columns="outcome", values="n").fillna(0).astype(int).reset_index()


def label_examples(kinds: Mapping[str, Sequence[Label]]) -> pd.DataFrame:
    """Tabulate a task of each type with its label of each kind."""
    labels = {
        kind: {label.begun.task.task_id: label.parameter for label in reversed(own)}
        for kind, own in kinds.items()
    }
    rows = []
    first = {label.begun.task.type: label.begun for label in reversed(next(iter(kinds.values())))}
    for task in TASK_TYPES:
        if task in first:
            begun = first[task]
            own = [labels[kind].get(begun.task.task_id, "(left out)") for kind in kinds]
            rows.append((task, begun.state.instruction, *(as_text(each) for each in own)))
    return pd.DataFrame(rows, columns=["task", "instruction", *kinds])


def as_text(parameter: str | Sequence[str]) -> str:
    """Write a parameter as the paper's model does: a text, or ids."""
    return parameter if isinstance(parameter, str) else ", ".join(parameter)


def pair_counts(pairs: Mapping[str, Sequence[Pair]]) -> pd.DataFrame:
    """Tabulate train tasks by type and by what their pairs teach, a column a variant."""
    frame = pd.DataFrame({name: count_pairs(own) for name, own in pairs.items()})
    frame = frame.fillna(0).astype(int).rename_axis(["task", "outcome"])
    order = [place for place in product(TASK_TYPES, _OUTCOMES) if place in frame.index]
    return frame.loc[order].reset_index()


def pair_examples(pairs: Sequence[Pair]) -> str:
    """Write a pair of each type of task: the request, the chosen and the rejected text with their scores."""
    shown = []
    chosen = sorted(pairs, key=lambda pair: pair.outcome != "differs")
    for pair in {pair.begun.task.type: pair for pair in reversed(chosen)}.values():
        shown.append(f"{pair.begun.task.type}: {pair.begun.task.instruction}")
        shown.append(f"  chosen,   {pair.best:.2f}: {pair.chosen}")
        shown.append(f"  rejected, {pair.worst:.2f}: {pair.rejected}")
    return "\n".join(shown)


def plot_losses(losses: pd.DataFrame):
    """Plot loss by step: fine-tuning on the left (logarithmic), preferences on the right, a line a variant.

    Where the loss of preferences begins, at log 2, the model is the reference and prefers nothing.

    Args:
        losses: of :func:`pwagents.lm.log.read_losses`; names are "SFT: PUMA" or "DPO: PUMA", and what is
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


def circumstances(study: PumaStudy) -> str:
    """Say what the test's numbers hold for, for the notes of tables."""
    settings, protocol = study.settings, study.protocol
    whose = " of users that no training saw" if settings.study.training_users else ""
    kind = "function that the task asks for" if protocol == "published" else "function that step 1 names"
    return (
        f"Single-turn, protocol {protocol.replace('_', '-')}, source {settings.data.source}, "
        f"{len(study.worlds.tasks):,} test tasks{whose}. Backbone: {settings.base.backbone}; "
        f"{study.prompts.origin}; memory {settings.study.memory_tokens} tokens of its tokenizer, of the "
        f"function that the task asks for in training, of the {kind} at the test. "
        f"Labels: {settings.study.labels.replace('_', '-')}. "
        f"Recommender: {study.shops.recommender_name(protocol)}."
    )


def ids_note(records: Sequence[EpisodeRecord], products: Collection[str]) -> str:
    """Say which share of the ids in recommendation calls are products, by method; and who cannot copy ids.

    A model that copies writes hardly any other; one that cannot spells ids that do not exist.
    """
    written: dict[str, list[bool]] = {}
    for record in records:
        for step in record.trajectory.steps if record.trajectory else ():
            ids = step.action.arguments.get("product_sequence", ())
            written.setdefault(record.method, []).extend(each in products for each in ids)
    shares = {method: sum(own) / len(own) for method, own in written.items() if own}
    told = ", ".join(f"{method} {share:.2f}" for method, share in shares.items())
    unable = [method for method, share in shares.items() if share < COPIES]
    note = f"Share of the ids in recommendation calls that are products: {told}."
    return f"{note} This backbone cannot copy ids in the rows {', '.join(unable)}." if unable else note
