"""What happened within episodes: which action follows which, attempt after attempt, errors and costs.

Tables and figures are made of the episodes that were scored. Methods are given by the name that tables show.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pandas as pd

from pwagents.benchmark.results import Runs
from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.evaluation.figures import COLORS, NEUTRAL, escape_math, legend_above, use_style
from pwagents.evaluation.metrics import attempts
from pwagents.schema import TASK_TYPES, Step, Usage

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
# Kinds of problems (pwagents.schema.ProblemKind), as the table shows them.
PROBLEMS = {
    "malformed_json": "malformed JSON",
    "unknown_function": "unknown function",
    "wrong_arguments": "wrong arguments",
    "empty": "empty",
    "cut_off": "cut off",
}
COST_NOTE = "Replies that came from the store count as what they cost when they were made."
# What a task costs, and the format of each column.
COSTS = {
    "calls": ".2f",
    "prompt tokens": ",.0f",
    "reply tokens": ",.0f",
    "US dollars": ".5f",
    "user's tokens": ",.0f",
    "user's US dollars": ".5f",
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
        results = [attempts(r.trajectory) for r in group]
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


def problem_counts(runs: Runs) -> pd.DataFrame:
    """Replies that could not be carried out, by method and kind: ``method, steps``, then a column a kind.

    No row where everything could be carried out.
    """
    rows = []
    for name, records in runs.items():
        steps = [step for record in _scored(records) for step in record.trajectory.steps]
        counts = Counter(step.error_kind for step in steps)
        rows.append((name, len(steps), *(counts[kind] for kind in PROBLEMS)))
    frame = pd.DataFrame(rows, columns=["method", "steps", *PROBLEMS.values()])
    return frame if frame[[*PROBLEMS.values()]].to_numpy().any() else frame.iloc[:0]


def costs(runs: Runs) -> pd.DataFrame:
    """Mean cost of a task by method: calls of the model, tokens, US dollars, and the user simulator's.

    Replies that came from the store count as what they cost when they were made.

    Returns:
        ``method, tasks`` and the columns of :data:`COSTS`. No row where no model was asked.
    """
    rows = []
    for name, records in runs.items():
        spent = [_spent(record) for record in _scored(records)]
        if spent:
            rows.append(
                (name, len(spent), *(sum(column) / len(spent) for column in zip(*spent, strict=True)))
            )
    frame = pd.DataFrame(rows, columns=["method", "tasks", *COSTS])
    return frame if frame[[*COSTS]].to_numpy().any() else frame.iloc[:0]


def _spent(record: EpisodeRecord) -> tuple[float, ...]:
    """What an episode cost, in the order of :data:`COSTS`."""
    agent = record.trajectory.usage
    user = sum((step.user_usage or Usage() for step in record.trajectory.steps), Usage())
    return agent.calls, agent.prompt_tokens, agent.completion_tokens, agent.usd, user.tokens, user.usd


def plot_transitions(transitions: pd.DataFrame):
    """Which action follows which, one panel a task type: shares of what follows each action.

    PersonalWAB draws this as a chord diagram (Figure 8); a grid of shares can be read off.

    Args:
        transitions: from :func:`pwagents.benchmark.sessions.action_transitions`.

    Returns:
        The matplotlib figure.
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
    size = (3.5 + 0.75 * height * len(types), height)
    fig, axes = plt.subplots(1, len(types), figsize=size, sharey=True, squeeze=False)
    for ax, task_type in zip(axes[0], types, strict=True):
        part = transitions[transitions["type"] == task_type]
        grid = part.pivot(index="from", columns="to", values="share")
        grid = grid.reindex(index=[n for n in names if n != END], columns=[n for n in names if n != START])
        sns.heatmap(
            grid, ax=ax, vmin=0, vmax=1, cmap="Blues", annot=True, fmt=".2f", cbar=False, square=True,
            linewidths=1, annot_kws={"size": 12},
        )  # fmt: skip
        ax.grid(visible=False)
        ax.set_facecolor("#f4f4f4")  # what never happened
        ax.set(
            title=escape_math(task_type), xlabel="next action", ylabel="action" if ax is axes[0, 0] else ""
        )
        ax.tick_params(axis="x", rotation=45)
        ax.tick_params(axis="y", rotation=0)
    fig.colorbar(axes[0, 0].collections[0], ax=axes, label="share of what follows", shrink=0.7)
    return fig


def plot_attempts(attempts: pd.DataFrame):
    """Attempt after attempt: how many tasks get there (bars), and how well they fare (lines).

    Args:
        attempts: from :func:`pwagents.benchmark.sessions.attempts_by_number`.

    Returns:
        The matplotlib figure.
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
        upper.set(title=escape_math(task_type))
        upper.grid(axis="x", visible=False)
        color = COLORS[task_type]
        lower.plot(part["attempt"], part["result_accuracy"], "o-", color=color, label="this attempt")
        lower.plot(part["attempt"], part["best_so_far"], "s--", color=color, label="best so far, all tasks")
        lower.set(xlabel="attempt", xticks=list(numbers), ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel("tasks that get there")
    axes[1, 0].set_ylabel("result accuracy")
    legend = legend_above(fig, *axes[1, 0].get_legend_handles_labels(), columns=2)
    for line in legend.get_lines():
        line.set_color(NEUTRAL)
    return fig


def _nothing(why: str):
    """A figure that says why there is nothing to be seen."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(6, 1.5))
    ax.axis("off")
    ax.text(0.5, 0.5, why, ha="center", va="center")
    return fig
