"""What notebook 04 works with: who is trained on and tested, two shops, memory, labels, and the variants.

Published, all train tasks are learned from and all test tasks are played. Leak-free, one date parts them:
nothing from it on is learned from, and a user whose first test task lies before it is not tested
(:func:`pwagents.data.splits.parting_date`).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from pwagents.data import load_benchmark
from pwagents.data.splits import parting_date, sample_tasks
from pwagents.embedding import Embedder
from pwagents.llm.folder import read_tokenizer
from pwagents.llm.local_model import LocalModel
from pwagents.llm.make import Models
from pwagents.puma.labels import Begun, Label, begin_tasks, make_labels
from pwagents.puma.memory import Method, Prompts, Recall, TaskMemory
from pwagents.schema import Benchmark, Product, Protocol, Task
from pwagents.settings import LabelKind, PumaNotebook, PumaStudySettings
from pwagents.shop.environment import Environment, Shop, open_search
from pwagents.store import made

# Variants by their names in tables: PUMA is the paper's; PUMA+, ours, has three switches more. The ablations
# are named as in PersonalWAB's Table 5.
PUMA, PLUS = "PUMA", "PUMA+"
NO_MEMORY, NO_SFT, NO_DPO = "w/o Task-specific Memory", "w/o SFT", "w/o DPO"
UNTUNED = "w/o SFT and DPO"
# A row of its own where all else is leak-free: every published setting that needs no clone of the repository.
NO_WORDS = "PUMA, as published, without the official words"
AS_PUBLISHED = {"protocol": "published", "labels": "published", "pad_counts": True}
_PLUS = {"memory": "interest", "ids": "number", "hint": "recurring"}  # what PUMA+ changes of PUMA


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
        """Return the products of both."""
        return {**self.learned.products, **self.tested.products}


def load_worlds(settings: PumaNotebook) -> Worlds:
    """Load the benchmark, and further users of its source to learn from, where the settings want any.

    Raises:
        ValueError: there is no train task, as the source has no further users, or none lies before the test.
        DataError, ValueError: see :func:`pwagents.data.load_benchmark`.
    """
    data, study, seed = settings.data, settings.study, settings.seed
    tested, _ = load_benchmark(data, seed, study.protocol)
    learned, train_tasks, test_tasks = tested, tested.tasks["train"], tested.tasks["test"]
    if study.training_users:
        more = data.changed(n_users=data.n_users + study.training_users)
        learned, _ = load_benchmark(more, seed, study.protocol)
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
    from pwagents.shop.sasrec import purchases_of_strangers  # imports torch

    world, date = worlds.learned, worlds.date
    first = {task.user_id: world.first_task(task.user_id, "train") for task in world.tasks["train"]}
    users = {
        user: [b.parent_asin for b in world.before(user, min(first[user], date))] for user in sorted(first)
    }
    return users | purchases_of_strangers(world, date)


class Study:
    """A shop to learn in and one to be tested in, and what is learned from in the first.

    Leak-free, the recommender of the shop to learn in is trained on :func:`purchases_to_learn_from`;
    published, it is the published one, if its files are there.

    Args:
        base: the folder of the model that all trainings start from. Its tokenizer cuts the memory.

    Attributes:
        shop: the one to be tested in, as of notebook 03.
        learning_shop: where train tasks are played.
        base_name: of the base model, with a hash of what is in its folder.
        seed: of data, shops and samples of tasks, whatever the seed of trainings.
    """

    def __init__(self, worlds: Worlds, settings: PumaNotebook, base: Path, prompts: Prompts):
        from pwagents.shop.sasrec import Recommender, RecommendersByTime  # imports torch

        self.worlds, self.settings, self.prompts, self.seed = worlds, settings, prompts, settings.seed
        self.base, self.base_name = base, LocalModel(base).name
        shop, seed, cache = settings.shop, settings.seed, settings.output_dir / "cache"
        self.shop = Shop.open(worlds.tested, shop, seed, cache, settings.data, self.protocol)
        recommender = self.shop.published if self.protocol == "published" else None
        if recommender is None:
            bought = purchases_to_learn_from(worlds)
            recommender = Recommender.fit(bought, shop.recommender, seed, cache_dir=cache)
        learned = worlds.learned.products
        engine, searched = open_search(learned, shop.search_engine, cache, settings.data, self.protocol)
        # A reported score is computed alone, to the last bit; the many candidates of DPO are not reported.
        at_once = Embedder(cache, max_tokens=512, batch_size=64)
        always = RecommendersByTime([0], [recommender])
        parts = (engine, always, at_once, shop.observation, self.shop.published, searched)
        self.learning_shop = Shop(worlds.learned, *parts)
        embedder = Embedder(cache, shop.max_tokens, batch_size=64)
        self.memory = TaskMemory(worlds.products, embedder, read_tokenizer(base), prompts.texts)
        self._labels: dict[LabelKind, tuple[list[Label], Counter]] = {}

    def with_trainings(self, settings: PumaNotebook, base: Path) -> "Study":
        """Return the study with trainings of other settings and from another base model.

        Data, shops, labels and test tasks stay: what differs from seed to seed is chance of the trainings.
        """
        other = copy(self)
        other.settings, other.base, other.base_name = settings, base, LocalModel(base).name
        return other

    @property
    def made(self) -> Callable[..., Path]:
        """Return :func:`pwagents.store.made` for the folder of all models."""
        only = self.settings.stored_runs_only
        return partial(made, self.settings.output_dir / "models", stored_only=only)

    @property
    def protocol(self) -> Protocol:
        """Return what may be known, in training and at the test."""
        return self.settings.study.protocol

    @cached_property
    def begun(self) -> list[Begun]:
        """Return the train tasks that can be evaluated, with their belief states; all texts are embedded."""
        start = partial(Environment, self.learning_shop, protocol=self.protocol, split="train")
        begun = begin_tasks(self.worlds.train_tasks, start)
        self.memory.prepare([each.state for each in begun])
        return begun

    def labels(self, kind: LabelKind) -> tuple[list[Label], Counter]:
        """Return the labels of a kind and their outcomes (:func:`pwagents.puma.labels.make_labels`)."""
        if kind not in self._labels:
            writer, model = self.settings.players.label_writer, None
            if writer != "offline":
                replies = self.settings.output_dir / "runs" / "replies.sqlite"
                model = Models(self.settings.players, replies)(writer)
            self._labels[kind] = make_labels(kind, self.begun, self.memory, self.prompts, model)
        return self._labels[kind]

    def recall(self, begun: Begun, method: Method) -> Recall:
        """Remember for a train task, by the function that it really asks for."""
        return self.memory.recall(begun.state, begun.function, method)

    def prompt(self, begun: Begun, method: Method) -> str:
        """Write the prompt of step 2 for a train task."""
        return self.prompts.parameter(begun.state, begun.function, self.recall(begun, method))

    def name_of(self, folder: Path) -> str:
        """Name a model for records; a trained one's folder is named by what it was made from."""
        return self.base_name if folder == self.base else folder.name


def with_memory(tokens: int) -> str:
    """Name the variant with a memory of another length."""
    return f"{PUMA}, {tokens} tokens"


def make_variants(study: PumaStudySettings) -> dict[str, Method]:
    """Return the variants that are trained, by their names in tables; PUMA is the first."""
    puma = Method(memory_tokens=study.memory_tokens, labels=study.labels, pad_counts=study.pad_counts)
    methods = {PUMA: puma, PLUS: puma.changed(**_PLUS), NO_DPO: puma.changed(dpo=False)}
    if study.variants == "few":
        return methods
    other: LabelKind = "leak_free" if study.labels == "published" else "published"
    padding = f"padding {'not ' * study.pad_counts}learned"
    return methods | {
        NO_MEMORY: puma.changed(memory="none"),
        NO_SFT: puma.changed(sft=False),
        UNTUNED: puma.changed(sft=False, dpo=False),
        f"{PUMA}, {other.replace('_', '-')} labels": puma.changed(labels=other),
        f"{PUMA}, {padding}": puma.changed(pad_counts=not study.pad_counts),
        f"{PUMA} + interest memory": puma.changed(memory="interest"),
        f"{PUMA} + numbers for ids": puma.changed(ids="number"),
        f"{PUMA} + recurring word": puma.changed(hint="recurring"),
        **{with_memory(n): puma.changed(memory_tokens=n) for n in study.memory_lengths},
    }
