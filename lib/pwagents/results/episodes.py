"""Stored episodes as frames: a row each with its grade, transitions between actions, and attempts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import get_args

import pandas as pd

from pwagents.schema import Benchmark, Outcome
from pwagents.shop.score import METRICS, attempts, grade
from pwagents.store import Episode

# Short names of the functions, as figures show them, in their order.
ACTIONS = {
    "start": "start",
    "search_product_by_query": "search",
    "get_recommendations_by_history": "recommend",
    "add_product_review": "review",
    "get_product_details_by_asin": "details",
    **{name: name for name in ("respond", "malformed", "stop", "end")},
}
_NAMES = ("method", "model", "task_id", "user_id", "type", "outcome")
EACH, BEST = "this attempt", "best so far, all tasks"
# What tables call an agent's failure; such an episode counts 0 throughout.
FAILURES = {"refused": "refused by its model", "error": "the agent's error"}


def frame(runs: Mapping[str, Sequence[Episode]]) -> pd.DataFrame:
    """Return :func:`records_frame` of several runs; ``runs``: the method's name in tables -> its episodes."""
    return pd.concat(
        [records_frame(records).assign(method=method) for method, records in runs.items()], ignore_index=True
    )


def records_frame(records: Iterable[Episode]) -> pd.DataFrame:
    """Return one row an episode: names, ids, type, outcome, :data:`METRICS`, tokens, usd and end.

    Episodes that were not scored stay, with NaN metrics. Tables must be the same at every run, so no row says
    how long it took.
    """
    rows = []
    for each in records:
        row, played = {name: getattr(each, name) for name in _NAMES}, each.trajectory
        if played:
            usage = played.usage
            row |= grade(played).model_dump() | {"tokens": usage.tokens, "usd": usage.usd}
        rows.append(row | {"end": played.end if played else ""})
    numbers = (*METRICS, "tokens", "usd")  # the last two are of the agent's model
    return pd.DataFrame(rows, columns=[*_NAMES, *numbers, "end"]).astype(dict.fromkeys(numbers, float))


def count_outcomes(frame: pd.DataFrame, by: Sequence[str] = ("method",)) -> pd.DataFrame:
    """Count episodes by outcome, with a column for each of the three: the columns of ``by``, then counts."""
    counts = frame.groupby(list(by), sort=False)["outcome"].value_counts().unstack(fill_value=0)
    return counts.reindex(columns=get_args(Outcome), fill_value=0).rename_axis(columns=None).reset_index()


def mark_targets(results: pd.DataFrame, benchmark: Benchmark) -> pd.DataFrame:
    """Add ``target``: "bought before" the user's first test task, or "new" to the user.

    Memory names what was bought before. In the synthetic world four targets of ten were, on real Amazon
    reviews hardly any, so what memory gains is reported for both kinds.
    """
    bought = {
        task.task_id: any(b.parent_asin == task.target for b in benchmark.history(task, "test"))
        for task in benchmark.tasks["test"]
    }
    return results.assign(target=results["task_id"].map(bought).map({True: "bought before", False: "new"}))


def share_of_known_ids(runs: Mapping[str, Iterable[Episode]], products: Collection[str]) -> dict[str, float]:
    """Return by method which share of the ids in its recommendation calls are products at all.

    A model that copies ids writes hardly any other; one that cannot spells ids that do not exist.
    """
    shares = {}
    for method, records in runs.items():
        steps = [step for each in records if each.trajectory for step in each.trajectory.steps]
        ids = [asin for step in steps for asin in step.action.arguments.get("product_sequence", ())]
        if ids:
            shares[method] = sum(asin in products for asin in ids) / len(ids)
    return shares


def action_transitions(records: Iterable[Episode]) -> pd.DataFrame:
    """Count which action follows which (PersonalWAB, Figure 8).

    ``share`` is that of all that follows ``from`` within the task type. An episode begins at "start" and ends
    at "end"; a call with an error is "malformed", whatever it meant to call.
    """
    rows = []
    for record in records:
        if record.outcome == "scored":
            steps = ["malformed" if step.error else step.action.name for step in record.trajectory.steps]
            path = [ACTIONS[name] for name in ("start", *steps, "end")]
            rows += [(record.type, *pair) for pair in pairwise(path)]
    columns, order = ["type", "from", "to"], list(ACTIONS.values())  # of the types, too
    counts = pd.DataFrame(rows, columns=columns).groupby(columns).size().rename("count").reset_index()
    counts = counts.sort_values(columns, key=lambda names: names.map(order.index), ignore_index=True)
    counts["share"] = counts["count"] / counts.groupby(["type", "from"])["count"].transform("sum")
    return counts


def attempts_by_number(records: Iterable[Episode]) -> pd.DataFrame:
    """Average attempts by their number (PersonalWAB, Figure 9).

    Returns:
        Two rows a type and number, by what ``counts``: :data:`EACH` is the mean ``result_accuracy`` of just
        that attempt over the episodes that made it (``tasks``); :data:`BEST`, over all scored episodes, that
        of the best of their attempts up to it, or 0.
    """
    scored = [record for record in records if record.outcome == "scored"]
    rows = []
    for task_type in dict.fromkeys(record.type for record in scored):
        # A row an episode, a column an attempt.
        episodes = [attempts(record.trajectory) for record in scored if record.type == task_type]
        by_number = pd.DataFrame([dict(enumerate(episode)) for episode in episodes])
        best = by_number.cummax(axis=1).ffill(axis=1).fillna(0.0)
        for counts, frame in {EACH: by_number, BEST: best}.items():
            rows += [(task_type, i + 1, by_number[i].count(), counts, frame[i].mean()) for i in frame]
    return pd.DataFrame(rows, columns=["type", "attempt", "tasks", "counts", "result_accuracy"])
