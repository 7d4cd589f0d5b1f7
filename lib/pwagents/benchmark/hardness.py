"""How hard the embedded world is, and what each kind of knowledge is worth in it.

A ladder of search queries for the same tasks: each rung knows more than the one below. Because the rungs use
the latent truth, their differences measure the world, not a method.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from pwagents.benchmark.bounds import COLUMNS, product_bounds
from pwagents.data.synthetic import Truth, World, WorldConfig, make_world
from pwagents.evaluation.figures import plot_intervals
from pwagents.evaluation.statistics import paired_test
from pwagents.schema import Task
from pwagents.web.functions import RESULTS
from pwagents.web.reward import rank_accuracy
from pwagents.web.search import SearchEngine, build_search_engine

RUNGS = (
    "random",
    "popularity",
    "instruction alone",
    "content words alone",
    "+ averaged profile",
    "+ right interest, before drift",
    "+ right interest, up to date",
    "+ the user's answers",
    "oracle query",
)
# Three kinds of knowledge, each the gain of one rung over another.
GAINS = {
    "knowing the right interest": ("+ averaged profile", "+ right interest, up to date"),
    "updating the profile": ("+ right interest, before drift", "+ right interest, up to date"),
    "asking the user": ("instruction alone", "+ the user's answers"),
}
# Negative controls: worlds in which one setting takes the worth out of one kind of knowledge.
CONTROLS: dict[str, dict[str, Any]] = {
    "as configured": {},
    "one interest": {"interests": (1, 1)},  # the averaged profile is the right interest
    "no drift": {"drift": 0.0},  # the old preferences are the current ones
    "complete instructions": {"completeness": 1.0},  # nothing is left to ask
}
NEEDS_TRUTH = 'Not known here: only the embedded world tells what people really want (source = "synthetic").'


def search_ladder(world: World, engine: SearchEngine, tasks: Sequence[Task], seed: int) -> pd.DataFrame:
    """Result accuracy of each rung on the search tasks among ``tasks``, one row a task and rung."""
    searches = [task for task in tasks if task.type == "search"]
    ends = product_bounds(world.benchmark, engine, searches, seed).replace(
        {"method": {"oracle": "oracle query"}}
    )
    rows = []
    for task in searches:
        for rung, query in _queries(world, task):
            ranking = [asin for asin, _ in engine.search(query, RESULTS)]
            rows.append((rung, task.task_id, task.user_id, task.type, rank_accuracy(ranking, task.target)))
    ladder = pd.concat([ends, pd.DataFrame(rows, columns=COLUMNS)], ignore_index=True)
    return ladder.sort_values("method", key=lambda rungs: rungs.map(RUNGS.index), kind="stable")


def _queries(world: World, task: Task) -> Iterator[tuple[str, str]]:
    """The rungs between instruction and oracle: the instruction, and values for the slots that it leaves out.

    Every rung knows which slots the target's domain has. They differ in the values they take for them, and
    in the departments they name: all of the user's, or the right one.
    """
    person, meaning = world.truth.people[task.user_id], world.truth.tasks[task.task_id]
    interest = next(i for i in person.interests if i.domain.name == meaning.interest)
    averaged = {slot: person.averaged[slot] for slot in interest.domain.slots}
    departments = [i.domain.name for i in person.interests]

    def query(preferences: dict[str, str], names: list[str]) -> str:
        added = [value for slot, value in preferences.items() if slot not in meaning.stated]
        return " ".join([task.instruction, *added, *names])

    yield "+ averaged profile", query(averaged, departments)
    yield "+ right interest, before drift", query(interest.initial, [meaning.interest])
    yield "+ right interest, up to date", query(interest.current, [meaning.interest])
    yield "+ the user's answers", query(meaning.wants, [])


def ladder_by_kind(ladder: pd.DataFrame, truth: Truth) -> pd.DataFrame:
    """Mean result accuracy of each rung (a row) by kind of instruction (a column, with its number of tasks).

    Args:
        ladder: from :func:`search_ladder`.
    """
    kinds = ladder["task_id"].map(lambda task_id: truth.tasks[task_id].kind)
    table = ladder.assign(kind=kinds).pivot_table(index="method", columns="kind", values="result_accuracy")
    n_tasks = ladder.groupby(kinds)["task_id"].nunique()
    table.columns = [f"{kind} (n = {n_tasks[kind]:,})" for kind in table.columns]
    return table.loc[[rung for rung in RUNGS if rung in table.index]].rename_axis("query")


def knowledge_gains(
    config: WorldConfig, seed: int, controls: Mapping[str, Mapping[str, Any]] = CONTROLS
) -> pd.DataFrame:
    """What each kind of knowledge gains in each world.

    Args:
        config: the world as configured.
        controls: name of a world -> the settings that differ in it.

    Returns:
        ``world, knowledge, gain, low, high, p``, one row a world and kind of knowledge: paired differences
        of result accuracy on the same search tasks, with 95% intervals clustered by user.
    """
    rows = []
    for name, changes in controls.items():
        world = make_world(replace(config, **changes), seed)
        engine = build_search_engine(world.benchmark.products)
        ladder = search_ladder(world, engine, world.benchmark.tasks["test"], seed)
        for knowledge, (without, knowing) in GAINS.items():
            test = paired_test(ladder, "result_accuracy", knowing, without)
            rows.append((name, knowledge, test.difference, test.low, test.high, test.p))
    return pd.DataFrame(rows, columns=["world", "knowledge", "gain", "low", "high", "p"])


def plot_gains(gains: pd.DataFrame):
    """:func:`knowledge_gains` as points with intervals, beside a line at no gain."""
    label = "gain in result accuracy, search tasks (95% interval)"
    figure = plot_intervals(gains, "world", hue="knowledge", mean="gain", xlabel=label)
    figure.axes[0].axvline(0, color="black", linewidth=1)
    return figure
