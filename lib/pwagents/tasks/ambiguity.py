"""How ambiguous an instruction is: how many products of the shop fit it.

An instruction describes its target by those of its words that are on the target's page; a product fits if all
of these are on its page. The number is 1 if the instruction identifies the target, and the size of the
catalogue if it says nothing. Words that are not on the page ("honest and to the point") do not count: with
them no product would fit, not even the target.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache

import pandas as pd

from pwagents.progress import progress
from pwagents.schema import Benchmark, Product
from pwagents.shop.search import analyze, product_text
from pwagents.words import word_list


class WordIndex:
    """The products that have each index term of :func:`pwagents.shop.search.product_text`."""

    def __init__(self, products: Mapping[str, Product]):
        self._size = len(products)
        self._holders: dict[str, set[str]] = defaultdict(set)  # a term -> ids of products
        terms_of = lru_cache(maxsize=None)(lambda word: frozenset(analyze(word)))
        for asin, product in progress(products.items(), "index of words"):
            for term in set().union(*map(terms_of, set(product_text(product).split()))):
                self._holders[term].add(asin)

    def terms(self, instruction: str, target: str) -> list[str]:
        """Return the terms of an instruction that describe its target, each once."""
        terms = dict.fromkeys(content_terms(instruction))
        return [term for term in terms if target in self._holders.get(term, ())]

    def fitting(self, instruction: str, target: str) -> int:
        """Return how many products have all terms by which an instruction describes its target (1 to all)."""
        holders = [self._holders[term] for term in self.terms(instruction, target)]
        return len(set.intersection(*holders)) if holders else self._size

    def __len__(self) -> int:
        return self._size


def ambiguity(benchmarks: Mapping[str, Benchmark], index: WordIndex) -> pd.DataFrame:
    """Return how ambiguous the instructions of the test tasks are, one row for each benchmark and task.

    In a review task the agent sees the product; there the number says how much of it is repeated.

    Args:
        benchmarks: writer -> the benchmark with its instructions; all have the products of ``index``.

    Returns:
        ``writer, type, task_id, user_id, words`` (of the instruction), ``said`` (terms that describe the
        target), ``fitting`` (products that fit them, the target included) and ``share`` (of all products).
    """
    rows = []
    for writer, benchmark in benchmarks.items():
        for task in benchmark.tasks["test"]:
            text, target = task.instruction, task.target
            counts = len(text.split()), len(index.terms(text, target)), index.fitting(text, target)
            rows.append((writer, task.type, task.task_id, task.user_id, *counts))
    columns = ["writer", "type", "task_id", "user_id", "words", "said", "fitting"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(share=frame["fitting"] / len(index))


def content_terms(text: str) -> list[str]:
    """Return a text's index terms without numbers, single letters, function words and words of asking."""
    empty = _asking_terms()
    return [term for term in analyze(text) if len(term) > 1 and not term.isdigit() and term not in empty]


@cache
def _asking_terms() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(term for word in ENGLISH_STOP_WORDS | word_list("asking") for term in analyze(word))
