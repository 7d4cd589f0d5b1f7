"""How hard the embedded world is, and what each kind of knowledge is worth in it.

A ladder of search queries for the same tasks: each rung knows more than the one below. Because the rungs use
the latent truth, their differences measure the world, not a method.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pwagents.data.synthetic import World, WorldConfig, make_world
from pwagents.evaluation.bounds import COLUMNS, popular_products
from pwagents.evaluation.statistics import paired_test
from pwagents.schema import Task
from pwagents.seeds import rng
from pwagents.web.functions import RESULTS
from pwagents.web.reward import rank_accuracy
from pwagents.web.search import SearchEngine, build_search_engine

RUNGS = (
    "random",
    "popularity",
    "instruction alone",
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


def search_ladder(world: World, engine: SearchEngine, tasks: Sequence[Task], seed: int) -> pd.DataFrame:
    """Result accuracy of each rung on the search tasks among ``tasks``, one row a task and rung."""
    catalogue = sorted(world.benchmark.products)
    popular = popular_products(world.benchmark)
    rows = []
    for task in tasks:
        if task.type != "search":
            continue
        picks = rng(seed, "ladder", task.task_id).choice(len(catalogue), size=RESULTS, replace=False)
        rankings = {"random": [catalogue[i] for i in picks], "popularity": popular}
        for rung, query in _queries(world, task):
            rankings[rung] = [asin for asin, _ in engine.search(query, RESULTS)]
        for rung in RUNGS:
            rows.append(
                (rung, task.task_id, task.user_id, task.type, rank_accuracy(rankings[rung], task.target))
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def _queries(world: World, task: Task) -> Iterator[tuple[str, str]]:
    person, meaning = world.truth.people[task.user_id], world.truth.tasks[task.task_id]
    interest = next(i for i in person.interests if i.domain.name == meaning.interest)
    departments = [i.domain.name for i in person.interests]

    def query(preferences: dict[str, str], names: list[str]) -> str:
        added = [value for slot, value in preferences.items() if slot not in meaning.stated]
        return " ".join([task.instruction, *added, *names])

    yield "instruction alone", task.instruction
    yield "+ averaged profile", query(person.averaged, departments)
    yield "+ right interest, before drift", query(interest.initial, [meaning.interest])
    yield "+ right interest, up to date", query(interest.current, [meaning.interest])
    yield "+ the user's answers", query(meaning.wants, [])
    yield "oracle query", world.benchmark.products[task.target].title


def knowledge_gains(
    config: Mapping[str, Any], knobs: Mapping[str, Mapping[str, Any]], seed: int
) -> pd.DataFrame:
    """What each kind of knowledge gains in each world: the negative controls.

    Args:
        config: the fields of :class:`WorldConfig`.
        knobs: name of a world -> the fields that differ in it.

    Returns:
        ``world, knowledge, gain, low, high, p``, one row a world and kind of knowledge: paired differences
        of result accuracy on the same search tasks, with 95% intervals clustered by user.
    """
    rows = []
    for name, changes in knobs.items():
        world = make_world(WorldConfig(**{**config, **changes}), seed)
        engine = build_search_engine(world.benchmark.products)
        ladder = search_ladder(world, engine, world.benchmark.tasks["test"], seed)
        for knowledge, (without, knowing) in GAINS.items():
            test = paired_test(ladder, "result_accuracy", knowing, without)
            rows.append((name, knowledge, test.difference, test.low, test.high, test.p))
    return pd.DataFrame(rows, columns=["world", "knowledge", "gain", "low", "high", "p"])
