"""Memory strategies: which of a user's past behaviors an agent sees, and which fields of them.

The five of PersonalWAB (6, A.2, 5.1): none, random, last, relevant, task-specific.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from pwagents.embedding import Embedder
from pwagents.schema import Behavior, Benchmark, Product, check_choice
from pwagents.seeds import rng
from pwagents.shop.environment import BeliefState

Strategy = Literal["none", "random", "last", "relevant", "task_specific"]
Entry = dict[str, Any]  # one remembered behavior: field name -> value

FIELDS_OF = {  # the fields that task-specific memory keeps (PUMA, 5.1)
    "search_product_by_query": ("title", "category", "price", "store"),
    "get_recommendations_by_history": ("title", "category", "parent_asin"),
    "add_product_review": ("rating", "text"),
}


@dataclass(frozen=True)
class Memory:
    """Recalls a user's past for an instruction.

    Args:
        strategy: which behaviors are recalled, and in which order. "last": latest first. "random": a sample,
            seeded by user and instruction. "relevant": by MiniLM cosine of instruction and behavior, best
            first. "task_specific": the same, then only the fields of the function at hand; for
            recommendations latest first (the published PUMA code).
        products: the catalog.
        embedder: needed by the last two.
        length: at most so many behaviors (PersonalWAB: 50 single-turn, 20 multi-turn).
        seed: of the random strategy.
        text_of: (position in the history, behavior) -> the text that is compared with an instruction; by
            default :func:`behavior_text`. With one, ties and order are the published function-calling
            agent's: of one time the earlier in the file first, recommendations oldest first.
    """

    strategy: Strategy
    products: Mapping[str, Product]
    embedder: Embedder | None = None
    length: int = 50
    seed: int = 0
    text_of: Callable[[int, Behavior], str] | None = None

    def __post_init__(self):
        check_choice("memory strategy", self.strategy, Strategy)
        if self.strategy in ("relevant", "task_specific") and self.embedder is None:
            raise ValueError(f"memory strategy {self.strategy!r} needs an embedder")

    def recall(self, state: BeliefState, function: str) -> list[Entry]:
        """Return behaviors as fields, in the strategy's order.

        Args:
            function: the function at hand. Only the task-specific strategy looks at it.
        """
        history, is_published = state.history, self.text_of is not None
        if self.strategy == "none" or not history:
            return []
        if self.strategy == "last":
            order = list(range(len(history)))
            # Reversed or not: that decides which of two at the same time comes first.
            order = order if is_published else order[::-1]
            order.sort(key=lambda i: history[i].timestamp, reverse=True)
        elif self.strategy == "random":
            order = rng(self.seed, "memory", state.user_id, state.instruction).permutation(len(history))
        else:
            text_of = self.text_of or (lambda _, one: behavior_text(one, self.products[one.parent_asin]))
            texts = [text_of(i, behavior) for i, behavior in enumerate(history)]
            order = closest_first(state.instruction, texts, self.embedder)
        entries = [memory_entry(history[i], self.products) for i in order[: self.length]]
        if self.strategy != "task_specific":
            return entries
        if function == "get_recommendations_by_history":
            entries.sort(key=itemgetter("timestamp"), reverse=not is_published)
        if is_published:
            return entries  # published forms choose their fields themselves
        return [{field: entry[field] for field in FIELDS_OF[function]} for entry in entries]


def closest_first(instruction: str, texts: Sequence[str], embedder: Embedder) -> list[int]:
    """Return positions of texts by MiniLM cosine with the instruction, best first; ties: the later first."""
    vectors = embedder.encode([instruction, *texts])
    cosines = np.round(vectors[1:] @ vectors[0], 6)  # so that batch sizes cannot decide a tie
    return np.lexsort((np.arange(len(texts)), cosines))[::-1].tolist()


def memory_entry(behavior: Behavior, products: Mapping[str, Product]) -> Entry:
    """Return a behavior with all fields that a memory may show."""
    product = products[behavior.parent_asin]
    shown = {name: getattr(product, name) for name in ("title", "parent_asin", "category", "price", "store")}
    review = {"rating": behavior.review.rating, "text": behavior.review.text}
    return {**shown, **review, "timestamp": behavior.timestamp}


def behavior_text(behavior: Behavior, product: Product) -> str:
    """Return what represents a behavior when it is compared with an instruction: product, then review.

    Departure: title, category and review; the published code embeds all that a prompt would show of it.
    """
    return f"{product.title}. {product.category}. {behavior.review.text}".strip()


def embed_behaviors(benchmark: Benchmark, embedder: Embedder, instructions: Iterable[str]) -> None:
    """Embed all behaviors and instructions in one batch, so that no episode waits for the model."""
    everything = [b for behaviors in benchmark.behaviors.values() for b in behaviors]
    texts = {behavior_text(b, benchmark.products[b.parent_asin]) for b in everything}
    embedder.encode(sorted({*texts, *instructions}), show_progress=True)
