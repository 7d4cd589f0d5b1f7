"""What notebook 04 works with, made from its settings: who learns and who is tested, shops, memories, labels.

worlds = load_worlds(settings)
study = PumaStudy(worlds, PumaModels(settings, base, worlds.learned.content_hash))
items = remember(worlds.train_tasks, study.start, study.memory(256))     train tasks and what is remembered
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import pandas as pd

from pwagents.data import load_benchmark
from pwagents.data.splits import parting_date
from pwagents.embedding import Embedder
from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.puma.agent import SEARCH, TaskMemory
from pwagents.puma.labels import (
    Example,
    QueryWriter,
    bought_before,
    leak_free_labels,
    query_writer,
    remember,
)
from pwagents.puma.pairs import Pair, score_parameters
from pwagents.puma.settings import PumaNotebook
from pwagents.puma.train import PumaModels
from pwagents.schema import Benchmark, Product, Task
from pwagents.settings import plain
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine

# Names of agents in tables; the ablations are called as in PersonalWAB's Table 5.
FULL, NO_MEMORY, NO_SFT, NO_DPO = "PUMA", "w/o Task-specific Memory", "w/o SFT", "w/o DPO"
UNTUNED = "w/o SFT and DPO"
REVIEW_TOKENS = 512  # as long as the published scorer reads a review


@dataclass(frozen=True)
class Worlds:
    """Who is tested and who is trained on.

    Args:
        tested: the benchmark.
        learned: whose train tasks are learned from; the benchmark, or a larger one of which it is a part.
        tasks: test tasks of the one, of users whose first test task is not before ``date``.
        train_tasks: of the other, all before ``date``.
        date: in milliseconds; nothing from then on is learned from
            (:func:`pwagents.data.splits.parting_date`).
        n_left_out: test tasks and train tasks on the wrong side of ``date``.
    """

    tested: Benchmark
    learned: Benchmark
    tasks: list[Task]
    train_tasks: list[Task]
    date: int
    n_left_out: tuple[int, int]

    @property
    def products(self) -> dict[str, Product]:
        """Of both."""
        return self.learned.products | self.tested.products

    def __str__(self) -> str:
        """What is learned from and tested, in a line or two."""
        users = {task.user_id for task in self.train_tasks}
        trained = f"{len(self.train_tasks):,} train tasks of {len(users):,} users"
        told = f"{trained}, {len(self.tasks):,} test tasks"
        n_test, n_train = self.n_left_out
        if not n_test and not n_train:
            return told
        date = datetime.fromtimestamp(self.date / 1000, UTC)
        return (
            f"{told}\nleft out: {n_train:,} train tasks from {date:%Y-%m-%d} on, and {n_test:,} test tasks "
            "of users whose first one lies before"
        )


def load_worlds(settings: PumaNotebook) -> Worlds:
    """The benchmark, and further users of its source to learn from, where the settings want any.

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
    test_tasks = tested.tasks["test"]
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


class PumaStudy:
    """Two shops, one to learn in and one to be tested in, and what is learned from in the first.

    Its recommenders are trained when it is made. The one of the shop to learn in knows what lies before each
    user's first train task: what parameters achieve there must not come from a recommender that has seen the
    answer.

    Args:
        models: the trainings. Their settings are the study's, and their tokenizer measures the memory.

    Attributes:
        learning_shop: where train tasks are played.
        engine, embedder: the search engine, and what scores reviews, of the shop to be tested in.
    """

    def __init__(self, worlds: Worlds, models: PumaModels):
        from pwagents.web.recommender import (
            Recommender,  # these import torch
            RecommendersByTime,
        )

        self.worlds, self.models, self.settings = worlds, models, models.settings
        shop, seed, cache = self.settings.shop, self.settings.seed, self.settings.output_dir / "cache"
        self.engine, learning_engine = (
            build_search_engine(world.products, engine=shop.search_engine, cache_dir=cache)
            for world in (worlds.tested, worlds.learned)
        )
        self._recommenders = RecommendersByTime.fit(
            worlds.tested, shop.recommender, seed, shop.rec_dates, cache_dir=cache
        )
        bought = _learned_from(worlds.learned, worlds.date)
        recommender = Recommender.fit(bought, shop.recommender, seed, cache_dir=cache)
        # A reported score is computed alone, to the last bit; the many candidates of DPO are not reported.
        self.embedder = Embedder(cache, REVIEW_TOKENS)
        at_once = Embedder(cache, REVIEW_TOKENS, batch_size=64)
        self.learning_shop = Shop(worlds.learned, learning_engine, recommender, at_once, shop.observation)
        self._memory_embedder = Embedder(cache, shop.max_tokens, batch_size=64)

    @property
    def other_preferences(self) -> dict[str, PumaModels]:
        """The variants of DPO, among all variants: the agent's name -> trainings with such preferences."""
        if self.settings.study.variants == "few":
            return {}
        return {
            f"{FULL}, {name}": replace(self.models, settings=replace(self.settings, dpo=dpo))
            for name, dpo in self.settings.dpo.varied.items()
        }

    def start(self, task: Task) -> WebEnvironment:
        """Begin a train task in the shop to learn in; the past ends before the user's first one."""
        environment = WebEnvironment(self.learning_shop)
        environment.reset(task, self.worlds.learned.history(task, "train"))
        return environment

    def memory(self, tokens: int) -> TaskMemory:
        """A memory of so many tokens of the base model's tokenizer."""
        return TaskMemory(self.worlds.products, self._memory_embedder, tokens, self.models.count)

    @cached_property
    def write_queries(self) -> QueryWriter:
        """Who writes the queries of the labels."""
        return query_writer(self.settings.players, self.settings.output_dir / "runs" / "replies.sqlite")

    def worth_of_labels(self, labels: Sequence[Example]) -> pd.DataFrame:
        """Mean result accuracy that labels reach on their train tasks, beside the instruction as the query.

        One row a task type and whether the target was bought before ("all", "bought before", "new"), with the
        number of ``tasks``.
        """
        alone = [
            example._replace(arguments={"query": example.item.state.instruction})
            for example in labels
            if example.item.function == SEARCH
        ]
        sets = {"instruction alone": alone, "label": labels}
        parts = [self._scored(examples).assign(label=name) for name, examples in sets.items()]
        scored = pd.concat(parts)
        everything = pd.concat([scored.assign(target="all"), scored[scored["task"] != "review"]])
        by = ["task", "target"]
        means = everything.pivot_table("result", by, "label", sort=False).reindex(columns=list(sets))
        counted = everything[everything["label"] == "label"].groupby(by).size()
        return means.assign(tasks=counted).reset_index()

    def _scored(self, examples: Sequence[Example]) -> pd.DataFrame:
        """What labels achieve: ``task, target, result``."""
        items = [example.item for example in examples]
        arguments = [[example.arguments] for example in examples]
        scored = score_parameters(items, arguments, self.start, self.learning_shop.embedder)
        rows = []
        for item, many in zip(items, scored, strict=True):
            target = "bought before" if bought_before(item, self.worlds.products) else "new"
            rows += [(item.task.type, target, candidate.score) for candidate in many]
        return pd.DataFrame(rows, columns=["task", "target", "result"])

    def labels_of_variants(self, labels: Sequence[Example]) -> dict[str, list[Example]]:
        """What step 2 of each variant is fine-tuned on, by the variant's name.

        Of few variants, the full agent alone. Another length of the memory, and none, have labels of their
        own, since they are made from what is remembered.

        Args:
            labels: of the full agent.
        """
        examples = {FULL: list(labels)}
        if self.settings.study.variants == "few":
            return examples
        tasks = [label.item.task for label in labels]
        lengths = {with_memory(tokens): tokens for tokens in self.settings.study.memory_lengths}
        for name, tokens in (lengths | {NO_MEMORY: 0}).items():
            remembered = remember(tasks, self.start, self.memory(tokens))
            examples[name], _ = leak_free_labels(remembered, self.worlds.products, self.write_queries)
        return examples

    def sample_pairs(
        self, models: PumaModels, writer: Path, examples: Sequence[Example]
    ) -> tuple[list[Pair], Counter]:
        """Preference pairs from a model's own answers to some of the tasks it was fine-tuned on.

        Args:
            models: the trainings, whose settings say how many tasks, and how to sample; which tasks, the
                study's seed says, so that they are the same with every seed of a pipeline.
            writer: the folder of the model.
        """
        seed, n = self.settings.seed, models.settings.dpo.train_tasks
        items = sample_tasks([example.item for example in examples], n, seed)
        # The recommender, which scores, is trained with the seed.
        shop = {"data": self.worlds.learned.content_hash, "shop": plain(self.settings.shop), "seed": seed}
        return models.pairs(writer, items, self.start, self.learning_shop.embedder, shop)

    def shop_for(self, task: Task) -> Shop:
        """The shop of a test task; its recommender knows what lies before the user's first one."""
        tested = self.worlds.tested
        recommender = self._recommenders.at(tested.first_task(task.user_id))
        return Shop(tested, self.engine, recommender, self.embedder, self.settings.shop.observation)


def with_memory(tokens: int) -> str:
    """The name of the agent with a memory of another length."""
    return f"{FULL}, {tokens} tokens"


def _learned_from(world: Benchmark, date: int) -> dict[str, list[str]]:
    """Buyer -> the ids of what they bought before ``date`` and, as users, their first train task."""
    from pwagents.web.recommender import purchases_of_strangers

    first = {task.user_id: world.first_task(task.user_id, "train") for task in world.tasks["train"]}
    users = {
        user: [b.parent_asin for b in world.before(user, min(first[user], date))] for user in sorted(first)
    }
    return users | purchases_of_strangers(world, date)
