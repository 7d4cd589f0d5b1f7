"""What notebook 04 works with, made from its settings: who learns and who is tested, shops, memory, labels.

worlds = load_worlds(settings)
study = PumaStudy(worlds, settings, base)
labels = study.labels("published")              what the train tasks teach
recall = study.memory.recall(state, function, settings.method)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import pandas as pd

from pwagents.benchmark.study import Shops
from pwagents.data import load_benchmark
from pwagents.data.splits import parting_date
from pwagents.embedding import Embedder
from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.llm.folder import read_tokenizer
from pwagents.llm.make import Models
from pwagents.orion.base import base_for
from pwagents.puma.labels import (
    Begun,
    Label,
    LlmQueries,
    OfflineQueries,
    begin_tasks,
    bought_before,
    leak_free_labels,
    published_labels,
)
from pwagents.puma.memory import SEARCH, Recall, TaskMemory
from pwagents.puma.pairs import score_texts
from pwagents.puma.prompts import load_prompts
from pwagents.puma.settings import LabelKind, Method, PumaNotebook
from pwagents.schema import Benchmark, Product, Protocol, Task
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine


@dataclass(frozen=True)
class Worlds:
    """Who is tested and who is trained on.

    Args:
        tested: the benchmark.
        learned: whose train tasks are learned from; the benchmark, or a larger one of which it is a part.
        tasks, train_tasks: of the one and of the other.
        date: in milliseconds. Leak-free, nothing from then on is learned from, and users whose first test
            task lies before are not tested (:func:`pwagents.data.splits.parting_date`); published, infinite.
        n_left_out: test tasks and train tasks on the wrong side of ``date``.
    """

    tested: Benchmark
    learned: Benchmark
    tasks: list[Task]
    train_tasks: list[Task]
    date: float
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
        n_test, n_train = self.n_left_out
        if not n_test and not n_train:
            return summary
        date = datetime.fromtimestamp(self.date / 1000, UTC)
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
    learned, train_tasks = tested, tested.tasks["train"]
    if study.training_users:
        learned, _ = load_benchmark(replace(data, n_users=data.n_users + study.training_users), seed)
        further = learned.behaviors.keys() - tested.behaviors.keys()
        train_tasks = [task for task in learned.tasks["train"] if task.user_id in further]
        if not train_tasks:
            found = f"{data.source} has {len(further)} users beside the tested ones"
            raise ValueError(f"no train tasks: training_users is {study.training_users}, and {found}")
    test_tasks, date = tested.tasks["test"], float("inf")
    earlier, later = train_tasks, test_tasks
    if study.protocol == "leak_free":
        date = parting_date(train_tasks, test_tasks, tested.first_task)
        earlier = [task for task in train_tasks if task.timestamp < date]
        later = [task for task in test_tasks if tested.first_task(task.user_id) >= date]
    return Worlds(
        tested=tested,
        learned=learned,
        tasks=sample_tasks(later, study.test_tasks, seed),
        train_tasks=sample_tasks(earlier, study.train_tasks, seed),
        date=date,
        n_left_out=(len(test_tasks) - len(later), len(train_tasks) - len(earlier)),
    )


def make_base(settings: PumaNotebook, worlds: Worlds) -> Path:
    """Return the folder of the model that all trainings start from, the small one made here.

    Raises:
        DataError: with ``stored_runs_only``, a model that is not there.
    """
    models, only = settings.output_dir / "models", settings.stored_runs_only
    if not settings.base.is_small:
        return settings.base.folder(models, stored_only=only)
    return base_for(worlds.products, models, settings.seed, settings.base.steps, stored_only=only)


class PumaStudy:
    """Two shops, one to learn in and one to be tested in, and what is learned from in the first.

    Leak-free, the recommender of the shop to learn in knows what lies before each user's first train task:
    what parameters achieve there must not come from a recommender that has seen the answer. Published, both
    shops have the published recommender where its files are there.

    Args:
        base: the folder of the model that all trainings start from. Its tokenizer cuts the memory.

    Attributes:
        shops: those to be tested in, as of notebook 03.
        learning_shop: where train tasks are played.
        prompts: the words of all prompts.
        seed: of data, shops and samples of tasks, whatever the seed of trainings.
    """

    def __init__(self, worlds: Worlds, settings: PumaNotebook, base: Path):
        from pwagents.web.recommender import Recommender  # imports torch

        self.worlds, self.settings, self.base, self.seed = worlds, settings, base, settings.seed
        shop, seed, cache = settings.shop, settings.seed, settings.output_dir / "cache"
        self.shops = Shops(worlds.tested, shop, settings.data, seed, cache)
        # A reported score is computed alone, to the last bit; the many candidates of DPO are not reported.
        at_once = Embedder(cache, max_tokens=512, batch_size=64)
        published = self.shops.published if self.protocol == "published" else None
        bought = {} if published else purchases_to_learn_from(worlds)
        self.learning_shop = Shop(
            worlds.learned,
            build_search_engine(worlds.learned.products, shop.search_engine, cache),
            published.recommender
            if published
            else Recommender.fit(bought, shop.recommender, seed, cache_dir=cache),
            at_once,
            shop.observation,
        )
        self.prompts = load_prompts(settings.study.official_repo)
        embedder = Embedder(cache, shop.max_tokens, batch_size=64)
        self.memory = TaskMemory(worlds.products, embedder, read_tokenizer(base), self.prompts.texts)
        self._labels: dict[LabelKind, tuple[list[Label], Counter]] = {}

    def with_seed(self, settings: PumaNotebook, base: Path) -> "PumaStudy":
        """Copy the study for trainings with another seed and base model; data, shops and labels stay."""
        other = copy(self)
        other.settings, other.base = settings, base
        return other

    @property
    def protocol(self) -> Protocol:
        """What may be known, in training and at the test."""
        return self.settings.study.protocol

    def recall(self, begun: Begun, method: Method) -> Recall:
        """Remember for a train task, by the function that it really asks for."""
        return self.memory.recall(begun.state, begun.function, method)

    def start(self, task: Task) -> WebEnvironment:
        """Begin a train task in the shop to learn in."""
        environment = WebEnvironment(self.learning_shop)
        environment.reset(task, self.worlds.learned.history(task, "train", self.protocol))
        return environment

    @cached_property
    def begun(self) -> list[Begun]:
        """The train tasks that can be evaluated, with their belief states; all texts are embedded."""
        begun = begin_tasks(self.worlds.train_tasks, self.start)
        self.memory.prepare([each.state for each in begun])
        return begun

    @cached_property
    def _write_queries(self) -> OfflineQueries | LlmQueries:
        players = self.settings.players
        if players.label_writer == "offline":
            return OfflineQueries(self.memory)
        store = self.settings.output_dir / "runs" / "replies.sqlite"
        return LlmQueries(Models(players, store)(players.label_writer), self.memory, self.prompts)

    def labels(self, kind: LabelKind) -> tuple[list[Label], Counter]:
        """Label the train tasks, and count what became of them, by ``(type, outcome)``."""
        if kind not in self._labels:
            if kind == "leak_free":
                self._labels[kind] = leak_free_labels(self.begun, self.memory, self._write_queries)
            else:
                made = published_labels(self.begun, self.memory.products, self._write_queries)
                counts = Counter(
                    (each.begun.task.type, _bought(each.begun, self.memory.products)) for each in made
                )
                self._labels[kind] = made, counts
        return self._labels[kind]

    def worth_of_labels(self, kinds: Sequence[LabelKind]) -> pd.DataFrame:
        """Measure the mean result accuracy that labels reach on their train tasks.

        Returns:
            One row a task type and whether the target was bought before ("all", "bought before", "new"), a
            column a kind, with the instruction alone as the query before them, and the number of ``tasks``.
        """
        sets = {kind.replace("_", "-"): self.labels(kind)[0] for kind in kinds}
        first = next(iter(sets.values()))
        alone = [label._replace(parameter=label.begun.state.instruction) for label in first]
        alone = [label for label in alone if label.begun.function == SEARCH]
        scored = pd.concat(
            [
                self._scored(labels).assign(label=name)
                for name, labels in {"instruction alone": alone, **sets}.items()
            ]
        )
        everything = pd.concat([scored.assign(target="all"), scored[scored["task"] != "review"]])
        by = ["task", "target"]
        means = everything.pivot_table("result", by, "label", sort=False)
        means = means.reindex(columns=["instruction alone", *sets])
        counted = everything[everything["label"] == next(iter(sets))].groupby(by).size()
        return means.assign(tasks=counted).reset_index()

    def _scored(self, labels: Sequence[Label]) -> pd.DataFrame:
        """Carry out labels: ``task, target, result``."""
        begun, plain = [label.begun for label in labels], Method()
        texts = [
            [label.parameter if isinstance(label.parameter, str) else ", ".join(label.parameter)]
            for label in labels
        ]
        scores = score_texts(
            begun,
            [Recall("")] * len(begun),
            texts,
            plain,
            "leak_free",
            self.start,
            self.learning_shop.embedder,
        )
        rows = [
            (each.task.type, _bought(each, self.memory.products), score)
            for each, many in zip(begun, scores, strict=True)
            for score in many.values()
        ]
        return pd.DataFrame(rows, columns=["task", "target", "result"])


def _bought(begun: Begun, products: Mapping[str, Product]) -> str:
    return "bought before" if bought_before(begun, products) else "new"


def purchases_to_learn_from(worlds: Worlds) -> dict[str, list[str]]:
    """List each buyer's purchases before the date; a user's, before their first train task, too."""
    from pwagents.web.recommender import purchases_of_strangers

    world, date = worlds.learned, worlds.date
    first = {task.user_id: world.first_task(task.user_id, "train") for task in world.tasks["train"]}
    users = {
        user: [b.parent_asin for b in world.before(user, min(first[user], date))] for user in sorted(first)
    }
    return users | purchases_of_strangers(world, date)
