"""The embedded data source: a seeded world of people with several interests each.

Real purchase histories do not say what people wanted, so no study on them can tell a good profile from a
lucky one. This world can: every history is made by a person whose preferences are known, differ from one
interest to the next, drift, and are only partly spoken. The truth is kept in :class:`Truth`, apart from the
:class:`~pwagents.schema.Benchmark` that agents see.
"""

from dataclasses import dataclass

import numpy as np

from pwagents.data.splits import chronological_split
from pwagents.data.synthetic.people import Person, Purchase, Shopper, make_person
from pwagents.data.synthetic.shop import Item, describe, domains, make_items, make_shelves
from pwagents.data.synthetic.words import TaskTruth, ask_for_review, write_request, write_review
from pwagents.schema import TASK_TYPES, Behavior, Benchmark, Split, Task
from pwagents.seeds import rng

# All users' histories, train and test purchases fall into the same three windows (milliseconds since 1970),
# so that nobody's future is another one's past.
WINDOWS = {"history": (1609459200000, 1682899200000), "train": (1682899200000, 1693526400000),
           "test": (1693526400000, 1704067200000)}  # fmt: skip


@dataclass(frozen=True)
class WorldConfig:
    """The size of a world, and the knobs of its difficulty.

    Args:
        n_users, n_products: the size.
        history: least and most behaviours a user (train and test purchases included).
        interests: least and most interests a user; longer histories have more.
        drift: the probability that an interest's preferences change during the history.
        completeness: the probability that an instruction names an attribute.
    """

    n_users: int = 300
    n_products: int = 3000
    history: tuple[int, int] = (5, 80)
    interests: tuple[int, int] = (2, 15)
    drift: float = 0.5
    completeness: float = 0.2

    def __post_init__(self):
        if self.n_users < 1:
            raise ValueError(f"n_users is {self.n_users}; expected at least 1")
        for name, (low, high) in {"history": self.history, "interests": self.interests}.items():
            if not 1 <= low <= high:
                raise ValueError(f"{name} is {(low, high)}; expected two numbers, 1 <= least <= most")
        if self.interests[1] > len(domains()):
            raise ValueError(f"interests goes to {self.interests[1]}; the shop has {len(domains())} domains")
        if self.history[0] < 3:
            raise ValueError("history starts below 3; a user needs a past, a train and a test purchase")
        for name in ("drift", "completeness"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a probability")
        if self.n_products < (least := sum(len(d.types) for d in domains())):
            raise ValueError(
                f"n_products is {self.n_products}; the shop needs one of each type, {least} in all"
            )


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


def make_world(config: WorldConfig, seed: int) -> World:
    """The world of ``config`` and ``seed``; the same on every machine.

    Raises:
        ValueError: the configuration cannot be met; the message says which number and why.
    """
    items = make_items(config.n_products, seed)
    shelves = make_shelves(items)
    pages = rng(seed, "synthetic", "pages")
    products = {asin: describe(asin, item, pages) for asin, item in items.items()}

    people, behaviors, truths = {}, {}, {}
    tasks: dict[Split, list[Task]] = {"train": [], "test": []}
    for n in range(config.n_users):
        user_id = f"U{n + 1:04d}"
        generator = rng(seed, "synthetic", user_id)
        person, length = _make_user(user_id, config, generator)
        shopper = Shopper(person, items, shelves, generator)
        purchases = [shopper.buy(i / length) for i in range(length)]
        times, segments = _timeline(length, generator)
        people[user_id] = person
        behaviors[user_id] = tuple(
            Behavior(
                parent_asin=p.asin, timestamp=t, review=write_review(person, items[p.asin], p, generator)
            )
            for p, t in zip(purchases, times, strict=True)
        )
        for split in ("train", "test"):
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


def _make_user(user_id: str, config: WorldConfig, generator: np.random.Generator) -> tuple[Person, int]:
    """A person, and how many purchases they make: log-normal around 30 within the bounds."""
    length = int(np.clip(generator.lognormal(np.log(28), 0.6), *config.history))
    n_interests = int(np.clip(round(length / 6 + generator.normal(0, 1)), *config.interests))
    return make_person(user_id, n_interests, config.drift, generator), length


def _timeline(length: int, generator: np.random.Generator) -> tuple[list[int], list[str]]:
    """Strictly increasing times and the segment ("history", "train", "test") of each purchase."""
    times, segments = [], []
    for (segment, (start, end)), count in zip(WINDOWS.items(), chronological_split(length), strict=True):
        times += sorted(
            int(t) for t in start + generator.choice((end - start) // 60_000, count, replace=False) * 60_000
        )
        segments += [segment] * count
    return times, segments


def _make_tasks(
    person: Person, behavior: Behavior, purchase: Purchase, items, bought, config: WorldConfig, generator
) -> list[tuple[Task, TaskTruth | None]]:
    """Search and recommend tasks (with their truth) for purchases the user liked, a review task for each."""
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
        else:
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
