"""A plain agent without a language model: the measure that every other method has to beat."""

import re
from collections import Counter
from collections.abc import Sequence

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
    """One call a task: function by classifier, parameters by simple rules from instruction and memory.

    - search: the instruction and the words that recur in the first ``considered`` remembered products;
    - recommend: those products, oldest first;
    - review: the first remembered review; without memory, the instruction itself.

    It does not look at observations, so in the multi-turn track it stops after its call.
    """

    considered = 10
    added_words = 3

    def __init__(self, identify: FunctionClassifier, memory: Memory):
        self.identify, self.memory = identify, memory

    def __call__(self, state: BeliefState) -> Action:
        if state.session:
            return Action(name="stop")
        function = self.identify(state.instruction)
        entries = self.memory.recall(state, function)
        return Action(name=function, arguments=self._arguments(function, state, entries))

    def _arguments(self, function: str, state: BeliefState, entries: list[Entry]) -> dict:
        if function == "search_product_by_query":
            return {"query": self._query(state.instruction, entries)}
        if function == "get_recommendations_by_history":
            return {"product_sequence": [e["parent_asin"] for e in _oldest_first(entries[: self.considered])]}
        texts = [e["text"] for e in entries if e["text"]]
        return {"review": texts[0] if texts else state.instruction}

    def _query(self, instruction: str, entries: list[Entry]) -> str:
        said = set(_words(instruction))
        counts = Counter(
            word
            for entry in entries[: self.considered]
            for word in sorted({*_words(entry["title"]), *_words(entry["store"] or "")} - said)
        )
        recurring = sorted(
            (word for word, n in counts.items() if n > 1), key=lambda word: (-counts[word], word)
        )
        return " ".join([instruction, *recurring[: self.added_words]])


def _oldest_first(entries: list[Entry]) -> list[Entry]:
    if entries and "timestamp" not in entries[0]:
        return entries[::-1]  # task-specific memory keeps no times, but is latest first
    return sorted(entries, key=lambda entry: entry["timestamp"])


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]{3,}", text.lower())
