"""The synthetic data source: a seeded world of people with several interests each.

Real purchase histories do not say what people wanted, so no study on them can tell a good profile from a
lucky one. This world can: every history is made by a person whose preferences are known, differ from one
interest to the next, drift, and are only partly said in instructions. The truth is kept in :class:`Truth`,
apart from the :class:`~pwagents.schema.Benchmark` that agents see.

The numbers in this folder (rates, spreads, weights) are ours; no paper gives any. The order of random draws
belongs to the world: one draw more or less changes all that the same generator draws after it.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from pwagents.data.splits import chronological_split
from pwagents.data.synthetic.people import Person, Purchase, Shopper, make_person
from pwagents.data.synthetic.shop import Item, describe, domains, make_items, make_shelves
from pwagents.data.synthetic.words import TaskTruth, ask_for_review, write_request, write_review
from pwagents.schema import TASK_TYPES, Behavior, Benchmark, Split, Task
from pwagents.seeds import rng
from pwagents.settings import WorldSettings

# The same three windows for all users, in milliseconds since 1970: from January 2021, May 2023 and September
# 2023 on, until the end of 2023. So everybody's history ends before anybody's test purchase, and what is
# fitted to all histories (a recommender, price statistics) sees nobody's future.
WINDOWS = {"history": (1609459200000, 1682899200000), "train": (1682899200000, 1693526400000),
           "test": (1693526400000, 1704067200000)}  # fmt: skip


@dataclass(frozen=True)
class Truth:
    """What agents must not see: the items' real attributes, the people, and what each instruction means."""

    items: dict[str, Item]
    people: dict[str, Person]
    tasks: dict[str, TaskTruth]


@dataclass(frozen=True)
class World:
    """A benchmark and the truth behind it."""

    benchmark: Benchmark
    truth: Truth


def make_world(config: WorldSettings, seed: int) -> World:
    """Make the world of ``config`` and ``seed``, the same on every machine.

    Raises:
        ValueError: the shop has too few domains or products for the configuration, or too many.
    """
    if config.interests[1] > len(domains()):
        raise ValueError(f"interests goes to {config.interests[1]}; the shop has {len(domains())} domains")
    if config.n_products < (least := sum(len(domain.types) for domain in domains())):
        raise ValueError(
            f"n_products is {config.n_products}; the shop needs one of each type, {least} in all"
        )
    items = make_items(config.n_products, seed)
    shelves = make_shelves(items)
    pages = rng(seed, "synthetic", "pages")  # apart from the items: a page decides nothing about a purchase
    products = {asin: describe(asin, item, pages) for asin, item in items.items()}

    people, behaviors, truths = {}, {}, {}
    tasks: dict[Split, list[Task]] = {"train": [], "test": []}
    for n in range(config.n_users):
        user_id = f"U{n + 1:04d}"
        generator = rng(seed, "synthetic", user_id)  # so a user is the same however many others there are
        person, purchases, times, segments = _go_shopping(user_id, items, shelves, config, generator)
        people[user_id] = person
        reviews = [write_review(person, items[p.asin], p, generator) for p in purchases]
        behaviors[user_id] = tuple(
            Behavior(parent_asin=purchase.asin, timestamp=time, review=review)
            for purchase, time, review in zip(purchases, times, reviews, strict=True)
        )
        for split in ("train", "test"):
            # What an agent may know, as in ``Benchmark.history``: all before the first purchase of the split.
            before = purchases[: segments.index(split)]
            bought = {
                (items[p.asin].domain.name, *pair) for p in before for pair in items[p.asin].values.items()
            }
            for behavior, purchase, segment in zip(behaviors[user_id], purchases, segments, strict=True):
                if segment == split:
                    made = _make_tasks(person, behavior, purchase, items, bought, config, generator)
                    tasks[split] += [task for task, _ in made]
                    truths |= {task.task_id: truth for task, truth in made if truth}
    benchmark = Benchmark("synthetic", products, behaviors, {s: tuple(ts) for s, ts in tasks.items()})
    return World(benchmark, Truth(items, people, truths))


def _go_shopping(
    user_id: str, items, shelves, config: WorldSettings, generator: np.random.Generator, past_alone=False
) -> tuple[Person, list[Purchase], list[int], list[str]]:
    """Draw a person, what they buy (or their history of it alone), and the time and segment of all they buy.

    Times increase strictly; segments are "history", "train" and "test".
    """
    # Log-normal, since most people buy a little and a few buy a lot. Its mean of 34 lies between the 32 and
    # 38 behaviors that PersonalWAB counts (Table 2). An interest gets some six purchases to learn from.
    length = int(np.clip(generator.lognormal(np.log(28), 0.6), *config.history))
    if config.lengths == "uniform":
        length = int(generator.integers(config.history[0], config.history[1] + 1))
    n_interests = int(np.clip(round(length / 6 + generator.normal(0, 1)), *config.interests))
    person = make_person(user_id, n_interests, config.drift, generator)
    shopper = Shopper(person, items, shelves, generator, config.repurchase)
    counts = chronological_split(length)
    purchases = [shopper.buy(i / length) for i in range(counts[0] if past_alone else length)]
    times, segments = [], []
    # Whole minutes drawn without replacement: no two purchases at one time, so "before" is never in doubt.
    for (segment, (start, end)), count in zip(WINDOWS.items(), counts, strict=True):
        times += sorted(
            int(t) for t in start + generator.choice((end - start) // 60_000, count, replace=False) * 60_000
        )
        segments += [segment] * count
    return person, purchases, times, segments


def _make_tasks(
    person: Person, behavior: Behavior, purchase: Purchase, items, bought, config: WorldSettings, generator
) -> list[tuple[Task, TaskTruth | None]]:
    """Make the tasks of a purchase, with their truth; search and recommend only where it was liked."""
    item = items[behavior.parent_asin]
    made = []
    for task_type in TASK_TYPES:
        truth = None
        if task_type == "review":
            instruction = ask_for_review(person, item, purchase, generator)
        elif purchase.rating >= 4:
            instruction, truth = write_request(
                task_type, person, item, purchase, bought, config.completeness, generator
            )
        else:  # nobody asks for what disappointed them; a review may be a complaint
            continue
        task = Task(
            task_id=f"{person.user_id}-{behavior.timestamp // 60_000}-{task_type}",
            user_id=person.user_id,
            type=task_type,
            timestamp=behavior.timestamp,
            instruction=instruction,
            target=behavior.parent_asin,
            review=behavior.review,
        )
        made.append((task, truth))
    return made


@cache
def make_population(config: WorldSettings, n: int, seed: int) -> dict[str, tuple[tuple[int, str], ...]]:
    """Make what ``n`` strangers to the benchmark bought in the window that users' histories lie in.

    Nothing of it lies in the time of train or test tasks. A stranger is the same however many users or other
    strangers there are.

    Returns:
        Stranger's id -> (milliseconds, parent_asin), oldest first. Made once, so not to be changed.
    """
    items = make_items(config.n_products, seed)
    shelves = make_shelves(items)
    population = {}
    for i in range(n):
        stranger = f"P{i + 1:05d}"
        generator = rng(seed, "synthetic", stranger)
        _, bought, times, _ = _go_shopping(stranger, items, shelves, config, generator, past_alone=True)
        population[stranger] = tuple((time, each.asin) for time, each in zip(times, bought, strict=False))
    return population
