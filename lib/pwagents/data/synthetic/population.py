"""The rest of the embedded world's people: strangers to the benchmark, of whom only purchases are known."""

from dataclasses import replace
from functools import cache

from pwagents.data.splits import chronological_split
from pwagents.data.synthetic.people import Shopper
from pwagents.data.synthetic.shop import make_items, make_shelves
from pwagents.data.synthetic.world import WorldConfig, make_timeline, make_user
from pwagents.seeds import rng


def make_population(config: WorldConfig, n: int, seed: int) -> dict[str, tuple[tuple[int, str], ...]]:
    """What ``n`` further people of a world bought in the window that users' histories lie in.

    Nothing of it lies in the time of train or test tasks. A stranger is the same however many users or other
    strangers there are.

    Returns:
        Stranger's id -> (milliseconds, parent_asin), oldest first.
    """
    # What decides nothing about strangers is taken out, so that worlds that differ in it share them.
    return dict(_make(replace(config, n_users=1, completeness=0.0), n, seed))


@cache
def _make(config: WorldConfig, n: int, seed: int) -> dict[str, tuple[tuple[int, str], ...]]:
    items = make_items(config.n_products, seed)
    shelves = make_shelves(items)
    population = {}
    for i in range(n):
        stranger = f"P{i + 1:05d}"
        generator = rng(seed, "synthetic", stranger)
        person, length = make_user(stranger, config, generator)
        shopper = Shopper(person, items, shelves, generator)
        n_history, _, _ = chronological_split(length)
        bought = [shopper.buy(i / length).asin for i in range(n_history)]
        times, _ = make_timeline(length, generator)
        population[stranger] = tuple(zip(times, bought, strict=False))
    return population
