"""A plain agent without a language model: the measure that every other method has to beat."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pwagents.agents.memory import Entry, Memory
from pwagents.schema import Action, Task
from pwagents.web.episode import BeliefState
from pwagents.web.functions import FUNCTION_OF


class FunctionClassifier:
    """Which function an instruction asks for: logistic regression on word n-grams.

    Trained on the instructions of the train split; the part that PUMA (5) gives to a fine-tuned LLaMA-2.
    """

    def __init__(self, train_tasks: Sequence[Task]):
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        self._pipeline = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10.0, max_iter=1000)
        )
        self._pipeline.fit([t.instruction for t in train_tasks], [FUNCTION_OF[t.type] for t in train_tasks])

        self._known: dict[str, str] = {}  # every memory strategy asks for the same instructions

    def __call__(self, instruction: str) -> str:
        if instruction not in self._known:
            self._known[instruction] = str(self._pipeline.predict([instruction])[0])
        return self._known[instruction]


class PlainAgent:
    """One call a task: function by classifier, parameters by :func:`plain_arguments`.

    It does not look at observations, so in the multi-turn track it stops after its call.
    """

    def __init__(self, identify: FunctionClassifier, memory: Memory):
        self.identify, self.memory = identify, memory

    def __call__(self, state: BeliefState) -> Action:
        if state.session:
            return Action(name="stop")
        function = self.identify(state.instruction)
        entries = self.memory.recall(state, function)
        return Action(name=function, arguments=plain_arguments(function, state.instruction, entries))


CONSIDERED = 10  # remembered products that the rules look at
ADDED_WORDS = 3  # at most, to a query


def plain_arguments(function: str, instruction: str, entries: list[Entry]) -> dict[str, Any]:
    """Parameters by simple rules from instruction and memory.

    - search: the instruction and the words that recur in the first ``CONSIDERED`` remembered products;
    - recommend: those products, oldest first;
    - review: the first remembered review; without memory, the instruction itself.
    """
    if function == "search_product_by_query":
        return {"query": _query(instruction, entries)}
    if function == "get_recommendations_by_history":
        return {"product_sequence": [e["parent_asin"] for e in _oldest_first(entries[:CONSIDERED])]}
    texts = [e["text"] for e in entries if e["text"]]
    return {"review": texts[0] if texts else instruction}


def _query(instruction: str, entries: list[Entry]) -> str:
    said = set(words(instruction))
    counts = Counter(
        word
        for entry in entries[:CONSIDERED]
        for word in sorted({*words(entry["title"]), *words(entry["store"] or "")} - said)
    )
    recurring = sorted((word for word, n in counts.items() if n > 1), key=lambda word: (-counts[word], word))
    return " ".join([instruction, *recurring[:ADDED_WORDS]])


def _oldest_first(entries: list[Entry]) -> list[Entry]:
    if entries and "timestamp" not in entries[0]:
        return entries[::-1]  # task-specific memory keeps no times, but is latest first
    return sorted(entries, key=lambda entry: entry["timestamp"])


def words(text: str) -> list[str]:
    """The words of three letters and more, in lower case."""
    return re.findall(r"[^\W\d_]{3,}", text.lower())
