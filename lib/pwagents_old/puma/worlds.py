"""Who notebook 04 trains on and tests, and what may be learned from under each protocol.

Published, all train tasks are learned from and all test tasks are played. Leak-free, one date parts them:
nothing from it on is learned from, and a user whose first test task lies before it is not tested
(:func:`pwagents.data.splits.parting_date`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pwagents.data import load_benchmark
from pwagents.data.splits import parting_date, sample_tasks
from pwagents.schema import Benchmark, Product, Task
from pwagents_old.puma.settings import PumaNotebook


@dataclass(frozen=True)
class Worlds:
    """Who is tested and who is trained on.

    Args:
        tested: the benchmark.
        learned: whose train tasks are learned from; the benchmark, or a larger one of which it is a part.
        tasks, train_tasks: of the one and of the other.
        date: in milliseconds; infinite as published.
        n_left_out: test tasks and train tasks on the wrong side of ``date``.
    """

    tested: Benchmark
    learned: Benchmark
    tasks: list[Task]
    train_tasks: list[Task]
    date: float = math.inf
    n_left_out: tuple[int, int] = (0, 0)

    @property
    def products(self) -> Mapping[str, Product]:
        """Of both."""
        return {**self.learned.products, **self.tested.products}

    def __str__(self) -> str:
        """Say what is learned from and tested, in a line or two."""
        users = {task.user_id for task in self.train_tasks}
        trained = f"{len(self.train_tasks):,} train tasks of {len(users):,} users"
        summary = f"{trained}, {len(self.tasks):,} test tasks"
        if self.n_left_out == (0, 0):
            return summary
        date, (n_test, n_train) = datetime.fromtimestamp(self.date / 1000, UTC), self.n_left_out
        return (
            f"{summary}\nleft out: {n_train:,} train tasks from {date:%Y-%m-%d} on, and {n_test:,} test "
            "tasks of users whose first one lies before"
        )


def load_worlds(settings: PumaNotebook) -> Worlds:
    """Load the benchmark, and further users of its source to learn from, where the settings want any.

    Raises:
        ValueError: there is no train task, as the source has no further users, or none lies before the test.
        DataError, ValueError: see :func:`pwagents.data.load_benchmark`.
    """
    data, study, seed = settings.data, settings.study, settings.seed
    tested, _ = load_benchmark(data, seed)
    learned, train_tasks, test_tasks = tested, tested.tasks["train"], tested.tasks["test"]
    if study.training_users:
        learned, _ = load_benchmark(data.changed(n_users=data.n_users + study.training_users), seed)
        further = learned.behaviors.keys() - tested.behaviors.keys()
        train_tasks = [task for task in learned.tasks["train"] if task.user_id in further]
        if not train_tasks:
            found = f"{data.source} has {len(further)} users beside the tested ones"
            raise ValueError(f"no train tasks: training_users is {study.training_users}, and {found}")

    # Leak-free, nobody's past may be another's future.
    date, earlier, later = math.inf, train_tasks, test_tasks
    if study.protocol == "leak_free":
        date = parting_date(train_tasks, test_tasks, tested.first_task)
        earlier = [task for task in train_tasks if task.timestamp < date]
        later = [task for task in test_tasks if tested.first_task(task.user_id) >= date]
    return Worlds(
        tested,
        learned,
        sample_tasks(later, study.test_tasks, seed),
        sample_tasks(earlier, study.train_tasks, seed),
        date,
        (len(test_tasks) - len(later), len(train_tasks) - len(earlier)),
    )


def purchases_to_learn_from(worlds: Worlds) -> dict[str, list[str]]:
    """List each buyer's purchases before the date; a user's, before their first train task, too.

    What parameters achieve must not come from a recommender that has seen the answer.
    """
    from pwagents.shop.sasrec import purchases_of_strangers

    world, date = worlds.learned, worlds.date
    first = {task.user_id: world.first_task(task.user_id, "train") for task in world.tasks["train"]}
    users = {
        user: [b.parent_asin for b in world.before(user, min(first[user], date))] for user in sorted(first)
    }
    return users | purchases_of_strangers(world, date)
