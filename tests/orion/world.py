"""Orion's episodes in a small world, nothing in it trained: profiles by counting, reviews by shared words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pwagents.orion.teacher import OfflineTeacher
from pwagents.orion.wishes import Recall, WishReader
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import OfflineUpdater
from pwagents.schema import FUNCTION_OF, Benchmark, Task
from pwagents.users.rules import RuleUser
from pwagents.web.environment import Context, UserSimulator, WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine

SPLIT = "train"


class WordOverlap:
    """Stands in for the embedder: the share of words that two texts have in common."""

    def cosine(self, text: str, other: str) -> float:
        words, others = set(text.lower().split()), set(other.lower().split())
        return len(words & others) / len(words | others)


class Repeats:
    """Recommends what was bought, the last first."""

    def recommend(self, product_sequence: list[str], k: int = 10) -> list[str]:
        return list(dict.fromkeys(reversed(product_sequence)))[:k]


@dataclass(frozen=True)
class Setting:
    """Starts episodes as a study does."""

    shop: Shop
    context_of: Callable[[Task], Context]
    user: UserSimulator
    update: OfflineUpdater
    recall: Recall

    def start(self, task: Task) -> WebEnvironment:
        environment = WebEnvironment(self.shop, "multi_turn", self.user)
        history, context = self.shop.benchmark.history(task, SPLIT), self.context_of(task)
        update = self.recall.after(self.update, context.bought)
        environment.reset(task, history, context, update)
        return environment


def make_setting(benchmark: Benchmark, catalogue: Catalogue, user=None) -> Setting:
    """Starts episodes of the train tasks; the user is the rule-based one unless another is given."""
    shop = Shop(benchmark, build_search_engine(benchmark.products), Repeats(), WordOverlap(), "compact")
    updater = OfflineUpdater(catalogue)
    read = WishReader(catalogue, updater)
    recall = Recall(read)
    known: dict[str, Context] = {}

    def context_of(task: Task) -> Context:
        if task.task_id not in known:
            known[task.task_id] = _context(benchmark, catalogue, read, recall, task)
        return known[task.task_id]

    return Setting(shop, context_of, user or RuleUser(benchmark.products), updater, recall)


def make_teacher(setting: Setting, catalogue: Catalogue, seed=0, questions=None) -> OfflineTeacher:
    identify = _identifier(setting.shop.benchmark)
    read = WishReader(catalogue, setting.update)
    return OfflineTeacher(setting.shop.search_engine, read, seed, identify.__getitem__, questions)


def _context(
    benchmark: Benchmark, catalogue: Catalogue, read: WishReader, recall: Recall, task: Task
) -> Context:
    history = benchmark.history(task, SPLIT)
    whole = OfflineProfiler(catalogue).write_global([history])[0]
    lines = [ProfileLine.of(text, True, "history") for text in whole.positive]
    lines += [ProfileLine.of(text, False, "history") for text in whole.negative]
    begun = read.begin(ContextualProfile(lines=tuple(lines)), task.instruction)
    bought = () if task.type == "review" else tuple(b.parent_asin for b in history)
    return Context(recall(begun, bought), bought)


def _identifier(benchmark: Benchmark) -> Mapping[str, str]:
    """A classifier that is never wrong, to keep tests about other things short."""
    tasks = [task for split in benchmark.tasks.values() for task in split]
    return {task.instruction: FUNCTION_OF[task.type] for task in tasks}
