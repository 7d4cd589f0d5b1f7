"""What happened within episodes: actions and what follows them, attempts, errors, tokens and dollars."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pandas as pd

from pwagents.evaluation.runner import EpisodeRecord
from pwagents.schema import Step, Usage

START, END = "start", "end"
# Short names of the functions, as figures and tables show them, in their order.
ACTIONS = {
    START: "start",
    "search_product_by_query": "search",
    "get_recommendations_by_history": "recommend",
    "add_product_review": "review",
    "get_product_details_by_asin": "details",
    "respond": "respond",
    "malformed": "malformed",
    "stop": "stop",
    END: "end",
}


def _scored(records: Iterable[EpisodeRecord]) -> list[EpisodeRecord]:
    return [record for record in records if record.outcome == "scored"]


def _action(step: Step) -> str:
    return "malformed" if step.error else step.action.name


def action_transitions(records: Sequence[EpisodeRecord]) -> pd.DataFrame:
    """Which action follows which (PersonalWAB, Figure 8): ``type, from, to, count, share``.

    ``share`` is that of all that follows ``from`` within the task type. An episode begins at "start" and ends
    at "end"; a call with an error is "malformed", whatever it meant to call.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    for record in _scored(records):
        path = [START, *map(_action, record.trajectory.steps), END]
        counts.update((record.type, ACTIONS[a], ACTIONS[b]) for a, b in pairwise(path))
    frame = pd.DataFrame([(*key, n) for key, n in counts.items()], columns=["type", "from", "to", "count"])
    order = list(ACTIONS.values())
    frame = frame.sort_values(["type", "from", "to"], key=lambda c: c.map(_place(order)), ignore_index=True)
    frame["share"] = frame["count"] / frame.groupby(["type", "from"])["count"].transform("sum")
    return frame


def _place(order: list[str]):
    return lambda name: (order.index(name), name) if name in order else (-1, name)


def attempts_by_number(records: Sequence[EpisodeRecord]) -> pd.DataFrame:
    """How attempts fare, the first, the second and so on (PersonalWAB, Figure 9): one row a type and number.

    ``tasks``: episodes that made so many attempts or more; ``result_accuracy``: mean of just that attempt
    over them; ``best_so_far``: mean over all scored episodes of the type of the best of their attempts up to
    it (0 for an episode without any).
    """
    rows = []
    for task_type, group in _by_type(_scored(records)).items():
        results = [[s.result_accuracy for s in r.trajectory.steps if s.attempt] for r in group]
        for number in range(1, max(map(len, results), default=0) + 1):
            reached = [result[number - 1] for result in results if len(result) >= number]
            best = [max(result[:number], default=0.0) for result in results]
            means = (sum(reached) / len(reached), sum(best) / len(best))
            rows.append((task_type, number, len(reached), *means))
    return pd.DataFrame(rows, columns=["type", "attempt", "tasks", "result_accuracy", "best_so_far"])


def _by_type(records: Iterable[EpisodeRecord]) -> dict[str, list[EpisodeRecord]]:
    groups: dict[str, list[EpisodeRecord]] = {}
    for record in records:
        groups.setdefault(record.type, []).append(record)
    return groups


def problem_counts(records: Sequence[EpisodeRecord]) -> pd.DataFrame:
    """Replies that could not be carried out, by method and kind: ``method, steps``, then a column a kind."""
    kinds = ("malformed_json", "unknown_function", "wrong_arguments", "empty", "cut_off")
    rows = {}
    for record in _scored(records):
        row = rows.setdefault(record.method, Counter(dict.fromkeys(("steps", *kinds), 0)))
        row["steps"] += len(record.trajectory.steps)
        row.update(step.error_kind for step in record.trajectory.steps if step.error_kind)
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["steps", *kinds])
    return frame.rename_axis("method").reset_index()


def episode_usage(record: EpisodeRecord) -> tuple[Usage, Usage]:
    """What the agent's and the user simulator's models cost in one episode."""
    agent, user = Usage(), Usage()
    for step in record.trajectory.steps if record.trajectory else ():
        agent += step.action.usage or Usage()
        user += step.user_usage or Usage()
    return agent, user


def costs(records: Sequence[EpisodeRecord]) -> pd.DataFrame:
    """Mean cost of a task by method: calls of the model, tokens, US dollars, and the user simulator's.

    Columns ``method, tasks, calls, prompt_tokens, completion_tokens, usd, user_tokens, user_usd``. Replies
    that came from the store count as what they cost when they were made.
    """
    rows: dict[str, list[tuple[float, ...]]] = {}
    for record in _scored(records):
        agent, user = episode_usage(record)
        user_tokens = user.prompt_tokens + user.completion_tokens
        row = (agent.calls, agent.prompt_tokens, agent.completion_tokens, agent.usd, user_tokens, user.usd)
        rows.setdefault(record.method, []).append(row)
    names = ["calls", "prompt_tokens", "completion_tokens", "usd", "user_tokens", "user_usd"]
    return pd.DataFrame(
        [(m, len(r), *(sum(column) / len(r) for column in zip(*r, strict=True))) for m, r in rows.items()],
        columns=["method", "tasks", *names],
    )
