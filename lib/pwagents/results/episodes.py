"""What happens within episodes: transitions between actions, and attempts.

Both are read off the episodes that were scored.
"""

from collections.abc import Iterable
from itertools import pairwise

import pandas as pd

from pwagents.results.metrics import attempts
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


def action_transitions(records: Iterable[Episode]) -> pd.DataFrame:
    """Count which action follows which (PersonalWAB, Figure 8).

    The columns are ``type, from, to, count, share``. ``share`` is that of all that follows ``from`` within
    the task type. An episode begins at "start" and ends at "end"; a call with an error is "malformed",
    whatever it meant to call.
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
    """Average attempts by their number (PersonalWAB, Figure 9), a row a type and number.

    ``tasks``: episodes that made so many attempts or more; ``result_accuracy``: mean of just that attempt
    over them; ``best_so_far``: mean over all scored episodes of the best of their attempts up to it, or 0.
    """
    scored = [record for record in records if record.outcome == "scored"]
    rows = []
    for task_type in dict.fromkeys(record.type for record in scored):
        # A row an episode, a column an attempt.
        episodes = [attempts(record.trajectory) for record in scored if record.type == task_type]
        by_number = pd.DataFrame([dict(enumerate(episode)) for episode in episodes])
        best = by_number.cummax(axis=1).ffill(axis=1).fillna(0.0)
        for i in by_number:
            attempt = by_number[i]
            rows.append((task_type, i + 1, attempt.count(), attempt.mean(), best[i].mean()))
    return pd.DataFrame(rows, columns=["type", "attempt", "tasks", "result_accuracy", "best_so_far"])
