"""What notebook 04 shows of labels and pairs, and what stands below its tables."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from pwagents.results.tables import recommender_name
from pwagents.schema import TASK_TYPES
from pwagents.store import Episode
from pwagents.results.statistics import summarise
from pwagents_old.puma.labels import Label, Pair, as_text
from pwagents_old.puma.study import PumaStudy

COPIES = 0.5  # a model copies ids where more than this share of those that it writes are products


def outcome_counts(counts: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """Tabulate train tasks by what became of them: ``task``, then a column an outcome.

    Args:
        counts: by (type, outcome); may be empty.
    """
    rows = [(task, outcome, n) for (task, outcome), n in counts.items()]
    frame = pd.DataFrame(rows, columns=["task", "outcome", "n"])
    table = frame.pivot(index="task", columns="outcome", values="n").fillna(0).astype(int)
    return table.reindex([task for task in TASK_TYPES if task in table.index]).reset_index()


def label_examples(kinds: Mapping[str, Sequence[Label]]) -> pd.DataFrame:
    """Tabulate the first task of each type with its label of each kind; empty where a kind leaves it out."""
    texts = {
        kind: {begun.task.task_id: as_text(parameter) for begun, parameter in labels}
        for kind, labels in kinds.items()
    }
    first = {begun.task.type: begun for begun, _ in reversed(next(iter(kinds.values())))}
    rows = []
    for task in (task for task in TASK_TYPES if task in first):
        own = [texts[kind].get(first[task].task.task_id, "") for kind in kinds]
        rows.append((task, first[task].state.instruction, *own))
    return pd.DataFrame(rows, columns=["task", "instruction", *kinds])


def pair_examples(pairs: Sequence[Pair]) -> str:
    """Write a pair of each type of task, one that differs where there is any, with the results of both."""
    shown = []
    first = sorted(pairs, key=lambda pair: pair.outcome != "differs")
    for pair in {pair.begun.task.type: pair for pair in reversed(first)}.values():
        shown.append(f"{pair.begun.task.type}: {pair.begun.task.instruction}")
        shown.append(f"  chosen,   {pair.best:.2f}: {pair.chosen}")
        shown.append(f"  rejected, {pair.worst:.2f}: {pair.rejected}")
    return "\n".join(shown)


def circumstances(study: PumaStudy) -> str:
    """Say what the test's numbers hold for, for the notes of tables."""
    settings, protocol = study.settings, study.protocol
    whose = " of users that no training saw" if settings.study.training_users else ""
    kind = "the task asks for" if protocol == "published" else "step 1 names"
    recommender = recommender_name(study.shop, settings.shop.recommender.loss, protocol)
    return (
        f"Single-turn, protocol {protocol.replace('_', '-')}, source {settings.data.source}, "
        f"{len(study.worlds.tasks):,} test tasks{whose}. Backbone: {settings.base.backbone}; "
        f"{study.prompts.origin}; labels: {settings.study.labels.replace('_', '-')}. Memory: "
        f"{settings.study.memory_tokens} tokens of its tokenizer, of the function that the task asks "
        f"for, and at the test of the one that {kind}. Recommender: {recommender}."
        + " References are leak-free: they know less."
        * (protocol == "published")
    )


def ids_note(records: Sequence[Episode], products: Collection[str]) -> str:
    """Say which share of the ids in recommendation calls are products, by method; and who cannot copy ids.

    A model that copies writes hardly any other; one that cannot spells ids that do not exist.
    """
    written: dict[str, list[bool]] = {}
    for record in records:
        for step in record.trajectory.steps if record.trajectory else ():
            ids = step.action.arguments.get("product_sequence", ())
            written.setdefault(record.method, []).extend(each in products for each in ids)
    shares = {method: sum(own) / len(own) for method, own in written.items() if own}
    note = ", ".join(f"{method} {share:.2f}" for method, share in shares.items())
    note = f"Share of the ids in recommendation calls that are products: {note}."
    unable = ", ".join(method for method, share in shares.items() if share < COPIES)
    return f"{note} This backbone cannot copy ids in the rows {unable}." if unable else note


def results_by_target(worlds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Average result accuracy by task type and by whether the target was bought before.

    Args:
        worlds: name -> episodes with ``target`` (:func:`pwagents.results.episodes.mark_targets`).

    Returns:
        As of :func:`~pwagents.results.statistics.summarise`, by ``world, type, target`` and ``method``.
    """
    rows = pd.concat([results.assign(world=world) for world, results in worlds.items()])
    everything = pd.concat([rows.assign(target="all"), rows])
    means = summarise(everything, ["world", "type", "target", "method"], ["result_official"])
    order = {name: i for i, name in enumerate((*worlds, *TASK_TYPES, "all", "bought before", "new"))}
    by = ["world", "type", "target"]
    return means.sort_values(by, key=lambda names: names.map(order), kind="stable", ignore_index=True)
