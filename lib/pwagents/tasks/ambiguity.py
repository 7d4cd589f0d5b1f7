"""How ambiguous an instruction is: how many products of the shop fit what it says.

What an instruction says of its target are those of its words that the target's page holds; a product fits
when its page holds all of them. So the number is 1 where the instruction singles the target out, and the
size of the catalogue where it says nothing. Words that no page needs to hold ("honest and to the point")
tell nothing about the target: with them, no product would fit, the target included.
"""

from array import array
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np
import pandas as pd

from pwagents.progress import progress
from pwagents.schema import Benchmark, Product, Split
from pwagents.shop.search import analyze, product_text
from pwagents.words import word_list


class WordIndex:
    """Which products hold which word: index terms of :func:`pwagents.shop.search.product_text`."""

    def __init__(self, products: Mapping[str, Product]):
        self._row = {asin: row for row, asin in enumerate(products)}
        terms_of = lru_cache(maxsize=None)(lambda word: frozenset(analyze(word)))
        holders: dict[str, array] = defaultdict(lambda: array("i"))
        for row, product in enumerate(progress(products.values(), "index of words")):
            words = set(product_text(product).split())
            for term in set().union(*map(terms_of, words)):
                holders[term].append(row)
        self._holders = {term: np.frombuffer(rows, np.intc) for term, rows in holders.items()}  # ascending

    def terms(self, instruction: str, target: str) -> list[str]:
        """The terms of an instruction that describe its target, the rarest first."""
        row = self._row[target]
        held = [t for t in dict.fromkeys(content_terms(instruction)) if self._hold(t, np.array([row])).any()]
        return sorted(held, key=lambda term: (len(self._holders[term]), term))

    def fitting(self, instruction: str, target: str) -> int:
        """Count the products that fit what the instruction says of its target: 1 to all of them."""
        rows = np.arange(len(self._row), dtype=np.intc)
        for term in self.terms(instruction, target):
            rows = rows[self._hold(term, rows)]
        return len(rows)

    def __len__(self) -> int:
        return len(self._row)

    def _hold(self, term: str, rows: np.ndarray) -> np.ndarray:
        """Whether each of some products holds a term."""
        holders = self._holders.get(term, np.array([-1]))
        places = np.searchsorted(holders, rows)
        return holders[np.minimum(places, len(holders) - 1)] == rows


def ambiguity(benchmarks: Mapping[str, Benchmark], index: WordIndex, split: Split = "test") -> pd.DataFrame:
    """Measure how ambiguous the instructions of each benchmark are, one row a task.

    In a review task the agent is shown the product; there the number says how much of it is repeated.

    Args:
        benchmarks: who wrote the instructions -> the benchmark with them, all over the products of ``index``.

    Returns:
        ``writer, type, task_id, user_id, words`` (of the instruction), ``said`` (terms that describe the
        target), ``fitting`` (products that fit them, the target included) and ``share`` (of all products).
    """
    rows = []
    for writer, benchmark in benchmarks.items():
        for task in benchmark.tasks[split]:
            text, target = task.instruction, task.target
            counts = len(text.split()), len(index.terms(text, target)), index.fitting(text, target)
            rows.append((writer, task.type, task.task_id, task.user_id, *counts))
    columns = ["writer", "type", "task_id", "user_id", "words", "said", "fitting"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(share=frame["fitting"] / len(index))


def content_terms(text: str) -> list[str]:
    """Index terms of a text, but for numbers, single letters, function words and words of asking."""
    empty = _asking_terms()
    return [term for term in analyze(text) if len(term) > 1 and not term.isdigit() and term not in empty]


@cache
def _asking_terms() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(term for word in ENGLISH_STOP_WORDS | word_list("asking") for term in analyze(word))
