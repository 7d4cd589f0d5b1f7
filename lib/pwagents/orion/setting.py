"""All that Orion's episodes need: shop, user, profiles and contexts, for training and held-out users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pwagents.embedding import Embedder
from pwagents.orion.agent import contexts
from pwagents.orion.players import Roles
from pwagents.profiles.build import profile_users
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.profiles.update import Updater
from pwagents.schema import Benchmark, Split, Task, TaskType
from pwagents.web.environment import UserSimulator, WebEnvironment
from pwagents.web.episode import Context, Episode
from pwagents.web.functions import Shop
from pwagents.web.search import SearchEngine

if TYPE_CHECKING:
    from pwagents.web.recommenders_by_time import RecommendersByTime

REVIEW_TOKENS = 512  # as long as the published scorer reads a review


@dataclass(frozen=True)
class OrionSetting:
    """Starts Orion's episodes on tasks of one split.

    Args:
        contexts: task_id -> what the episode begins with.
        user: answers ``respond``; None: nobody does.
        update: the dynamic profile update; None: the profile stays as it was.
        recommenders: in place of the shop's, so that each user gets one that knows nothing of what comes
            after their first task of the split.
    """

    shop: Shop
    split: Split
    contexts: Mapping[str, Context]
    user: UserSimulator | None
    update: Updater | None
    recommenders: "RecommendersByTime | None" = None

    def start(self, task: Task) -> Episode:
        """The episode of a task, before its first step."""
        benchmark, shop = self.shop.benchmark, self.shop
        if self.recommenders is not None:
            first = benchmark.first_task(task.user_id, self.split)
            shop = replace(shop, recommender=self.recommenders.at(first))
        environment = WebEnvironment(shop, "multi_turn", self.user)
        history = benchmark.history(task, self.split)
        return Episode(environment, task, history, self.contexts[task.task_id], self.update)


def held_out_users(benchmark: Benchmark, n_held_out: int) -> list[str]:
    """The first ``n_held_out`` users: no trainer sees their tasks, profiles or histories."""
    return list(benchmark.behaviors)[:n_held_out]


def tasks_of(
    benchmark: Benchmark, users: Sequence[str], split: Split, types: Sequence[TaskType]
) -> list[Task]:
    """The tasks of some users, of some types."""
    chosen = set(users)
    return [task for task in benchmark.tasks[split] if task.user_id in chosen and task.type in types]


def part_of(benchmark: Benchmark, users: Sequence[str]) -> Benchmark:
    """The benchmark of some users alone."""
    chosen = set(users)
    return replace(
        benchmark,
        behaviors={user: own for user, own in benchmark.behaviors.items() if user in chosen},
        tasks={split: tuple(t for t in ts if t.user_id in chosen) for split, ts in benchmark.tasks.items()},
        profiles={user: own for user, own in benchmark.profiles.items() if user in chosen},
    )


def as_tested(benchmark: Benchmark, users: Sequence[str], split: Split) -> Benchmark:
    """The benchmark of some users alone, with their tasks of a split as its test tasks, for what is fitted to
    all that lies before a test task."""
    part = part_of(benchmark, users)
    return replace(part, tasks={"test": part.tasks[split]})


class SettingMaker(NamedTuple):
    """Makes the setting of a part of the users; ``settings`` are those of a study."""

    benchmark: Benchmark
    engine: SearchEngine
    roles: Roles
    offline_updater: OfflineUpdater
    settings: Mapping[str, Any]
    cache_dir: Path

    def __call__(self, users: Sequence[str], split: Split, tasks: Sequence[Task]) -> OrionSetting:
        from pwagents.web.recommenders_by_time import NothingKnown

        benchmark, seed, shop = self.benchmark, self.settings["seed"], self.settings["shop"]
        items = Embedder(self.cache_dir, shop["max_tokens"], batch_size=64)  # as in notebooks 02 and 03
        first = {user: benchmark.first_task(user, split) for user in dict.fromkeys(t.user_id for t in tasks)}
        histories = {user: benchmark.before(user, time) for user, time in first.items()}
        profiler = self.roles.make_profiler(self.offline_updater.catalogue)
        profiles = profile_users(histories, benchmark.products, items, profiler, seed)
        update = self.roles.make_updater(self.offline_updater)
        by_rules = update is None or update is self.offline_updater
        hear = self.offline_updater.hear if by_rules else None  # a model reads the instruction by itself
        reviews = Embedder(self.cache_dir, REVIEW_TOKENS)
        return OrionSetting(
            shop=Shop(benchmark, self.engine, NothingKnown(), reviews, shop["observation"]),
            split=split,
            contexts=contexts(benchmark, tasks, split, profiles, items, hear),
            user=self.roles.make_user(benchmark, seed),
            update=update,
            recommenders=self._recommenders(users, split),
        )

    def _recommenders(self, users: Sequence[str], split: Split) -> "RecommendersByTime | None":
        if "recommend" not in self.settings["task_types"]:
            return None
        from pwagents.web.recommenders_by_time import RecommendersByTime
        from pwagents.web.settings import SasRecSettings

        shop = self.settings["shop"]
        return RecommendersByTime.fit(
            as_tested(self.benchmark, users, split),
            SasRecSettings(**shop["recommender"]),
            self.settings["seed"],
            shop["rec_dates"],
            self.cache_dir,
        )
