"""What notebook 04 works with, made from its settings: two shops, the memory, labels and what they are worth.

worlds = load_worlds(settings)
study = PumaStudy(worlds, settings, make_base(settings, worlds))
labels, counts = study.labels("published")              what the train tasks teach
recall = study.recall(study.begun[0], settings.method)  what is remembered for one of them
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from pwagents.embedding import Embedder
from pwagents.schema import Protocol, Task
from pwagents.shop.environment import Environment, Shop
from pwagents.shop.search import build_search_engine
from pwagents.llm.folder import read_tokenizer
from pwagents_old.lm.base import base_model
from pwagents_old.lm.exercises import ExerciseText
from pwagents_old.puma.agent import call_of
from pwagents_old.puma.labels import (
    Begun,
    Label,
    begin_tasks,
    bought_before,
    carry_out,
    make_labels,
    query_writer,
)
from pwagents_old.puma.memory import REVIEW, SEARCH, Recall, TaskMemory
from pwagents_old.puma.prompts import load_prompts
from pwagents_old.puma.settings import LabelKind, Method, PumaNotebook
from pwagents_old.puma.worlds import Worlds, purchases_to_learn_from


def make_base(settings: PumaNotebook, worlds: Worlds) -> Path:
    """Return the folder of the model that all trainings start from; the small one is made.

    Raises:
        DataError: with ``stored_runs_only``, a model that is not there.
    """
    models, only = settings.output_dir / "models", settings.stored_runs_only
    text = partial(ExerciseText, worlds.products, settings.seed)
    return base_model(settings.base, models, text, settings.seed, stored_only=only)


class PumaStudy:
    """A shop to learn in and one to be tested in, and what is learned from in the first.

    Leak-free, the recommender of the shop to learn in is trained on :func:`purchases_to_learn_from`;
    published, it is the published one, where its files are there.

    Args:
        base: the folder of the model that all trainings start from. Its tokenizer cuts the memory.

    Attributes:
        shop: the one to be tested in, as of notebook 03.
        learning_shop: where train tasks are played.
        seed: of data, shops and samples of tasks, whatever the seed of trainings.
    """

    def __init__(self, worlds: Worlds, settings: PumaNotebook, base: Path):
        from pwagents.shop.sasrec import Recommender, RecommendersByTime  # imports torch

        self.worlds, self.settings, self.base, self.seed = worlds, settings, base, settings.seed
        shop, seed, cache = settings.shop, settings.seed, settings.output_dir / "cache"
        self.shop = Shop.open(worlds.tested, shop, seed, cache, settings.data)
        recommender = self.shop.published if self.protocol == "published" else None
        if recommender is None:
            bought = purchases_to_learn_from(worlds)
            recommender = Recommender.fit(bought, shop.recommender, seed, cache_dir=cache)
        engine = build_search_engine(worlds.learned.products, shop.search_engine, cache)
        # A reported score is computed alone, to the last bit; the many candidates of DPO are not reported.
        at_once = Embedder(cache, max_tokens=512, batch_size=64)
        always = RecommendersByTime([0], [recommender])
        self.learning_shop = Shop(worlds.learned, engine, always, at_once, shop.observation)

        self.prompts = load_prompts(settings.study.official_repo)
        embedder = Embedder(cache, shop.max_tokens, batch_size=64)
        self.memory = TaskMemory(worlds.products, embedder, read_tokenizer(base), self.prompts.texts)
        self._labels: dict[LabelKind, tuple[list[Label], Counter]] = {}

    @property
    def protocol(self) -> Protocol:
        """What may be known, in training and at the test."""
        return self.settings.study.protocol

    def start(self, task: Task) -> Environment:
        """Begin a train task in the shop to learn in."""
        return Environment(self.learning_shop, task, protocol=self.protocol, split="train")

    def begin_test(self, task: Task, protocol: Protocol) -> Environment:
        """Begin a test task in the shop to be tested in."""
        return Environment(self.shop, task, protocol=protocol)

    @cached_property
    def begun(self) -> list[Begun]:
        """The train tasks that can be evaluated, with their belief states; all texts are embedded."""
        begun = begin_tasks(self.worlds.train_tasks, self.start)
        self.memory.prepare([each.state for each in begun])
        return begun

    def recall(self, begun: Begun, method: Method) -> Recall:
        """Remember for a train task, by the function that it really asks for."""
        return self.memory.recall(begun.state, begun.function, method)

    def labels(self, kind: LabelKind) -> tuple[list[Label], Counter]:
        """Label the train tasks, and count what became of them, by ``(type, outcome)``."""
        if kind not in self._labels:
            players, replies = self.settings.players, self.settings.output_dir / "runs" / "replies.sqlite"
            write_queries = query_writer(players, replies, self.memory, self.prompts)
            self._labels[kind] = make_labels(kind, self.begun, self.memory, write_queries)
        return self._labels[kind]

    def worth_of_labels(self, kinds: Sequence[LabelKind]) -> pd.DataFrame:
        """Measure the mean result accuracy that labels reach on their train tasks.

        Returns:
            One row a task type and whether the target was bought before ("all", "bought before", "new"), a
            column a kind, the instruction alone as the query before them, and how many ``tasks`` there are:
            those that every kind labels.
        """
        sets = {kind.replace("_", "-"): self.labels(kind)[0] for kind in kinds}
        shared = set.intersection(*({label.begun.task.task_id for label in made} for made in sets.values()))
        sets = {
            kind: [each for each in made if each.begun.task.task_id in shared] for kind, made in sets.items()
        }
        first = next(iter(sets))
        searches = [label for label in sets[first] if label.begun.function == SEARCH]
        alone = [label._replace(parameter=label.begun.state.instruction) for label in searches]
        reviews = {label.parameter for label in sets[first] if label.begun.function == REVIEW}
        self.learning_shop.embedder.encode(sorted(reviews), show_progress=True)  # in one go
        rows = []
        for name, labels in {"instruction alone": alone, **sets}.items():
            for begun, parameter in labels:
                result = carry_out(begun, call_of(begun.function, parameter), self.start)
                again = "bought before" if bought_before(begun, self.memory.products) else "new"
                targets = ["all"] if begun.function == REVIEW else ["all", again]
                rows += [(begun.task.type, target, name, result) for target in targets]
        frame = pd.DataFrame(rows, columns=["task", "target", "label", "result"])
        groups = frame.groupby(["task", "target", "label"], sort=False)["result"]
        means = groups.mean().unstack().reindex(columns=["instruction alone", *sets])
        return means.assign(tasks=groups.size().unstack()[first]).astype({"tasks": int}).reset_index()
