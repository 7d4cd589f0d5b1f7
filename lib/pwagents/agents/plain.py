"""Agents without a language model.

:class:`PlainAgent` is a baseline of its own, the one that every method has to beat. :class:`OfflinePolicy`
stands in for the language model in any prompting method, so that all of them run without a download or a key.
Both take a call's parameters from the same simple rules (:func:`plain_arguments`).
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pwagents.agents.memory import Entry, Memory
from pwagents.schema import Action, Task
from pwagents.web.episode import BeliefState
from pwagents.web.functions import FUNCTION_OF


class FunctionClassifier:
    """Which function an instruction asks for: logistic regression on word n-grams.

    Trained on the instructions of the train split; the part that PUMA (5) gives to a fine-tuned LLaMA-2.
    Where all of them ask for one function, so will everything else.
    """

    def __init__(self, train_tasks: Sequence[Task]):
        from sklearn.dummy import DummyClassifier
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        functions = [FUNCTION_OF[task.type] for task in train_tasks]
        several = len(set(functions)) > 1
        model = LogisticRegression(C=10.0, max_iter=1000) if several else DummyClassifier()
        self._pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), model)
        self._pipeline.fit([task.instruction for task in train_tasks], functions)

        self._known: dict[str, str] = {}  # every memory strategy asks for the same instructions

    def __call__(self, instruction: str) -> str:
        if instruction not in self._known:
            self._known[instruction] = str(self._pipeline.predict([instruction])[0])
        return self._known[instruction]


class PlainAgent:
    """One call a task: the function by a classifier, its parameters by :func:`plain_arguments`.

    It does not look at observations, so in the multi-turn track it stops after its call.

    Args:
        identify: instruction -> the function it asks for.
        memory: recalls what the parameters are made from.
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


# What the offline policy can ask about, most telling first; all of it stands in the text that is searched.
ATTRIBUTES = ("brand", "color", "material")
TRIES = 3
# Besides the stop words, what an answer holds that describes no product.
_SAYS_NOTHING = """
add ahead already answers best brand bring came care carry close clue color content disappointed don done
either enough exactly finally fine good great happy idea isn just know leave let like likes looking looks
love material matter matters mean mention mind new oh okay perfect picture pity please prefer preferably
preference product really right said satisfied say sorry stop sure thank thanks think told touch trust try
usually want way wish worth yes yet
"""


class OfflinePolicy:
    """Takes a language model's place in any method: acts by :func:`plain_arguments` and talks where it may.

    It sees what the method lets an agent see (the belief state, what the memory recalls) and does what the
    method allows. Neither the method's name nor its prompt reaches it, so methods with the same memory and
    the same functions are one and the same to it.

    Before a search it asks about the first of ``ATTRIBUTES`` that the instruction leaves open. After each try
    it asks whether the result is right, and tries again, ``TRIES`` times in all, as long as the answer brings
    new words. What was answered joins the query, and of what the memory recalls, that comes first which the
    answers speak of.

    Args:
        identify: instruction -> the function it asks for. Not asked where the method allows only one.
    """

    def __init__(self, identify: Callable[[str], str]):
        self.identify = identify

    def act(self, state: BeliefState, entries: list[Entry], allowed: tuple[str, ...]) -> Action:
        """The next call.

        Args:
            entries: what the method's memory recalls.
            allowed: the functions the method may call.
        """
        possible = [function for function in FUNCTION_OF.values() if function in allowed]
        function = possible[0] if len(possible) == 1 else self.identify(state.instruction)
        tries = [i for i, step in enumerate(state.session) if step.action.name in possible]
        question = _question(state, entries, function, len(tries)) if "respond" in allowed else ""
        if question:
            return Action(name="respond", arguments={"content": question})
        if tries and "stop" in allowed and not _answers(state, since=tries[-1]):
            return Action(name="stop")
        told = _answers(state)
        arguments = plain_arguments(
            function, " ".join([state.instruction, *told]), _spoken_of_first(entries, told)
        )
        return Action(name=function, arguments=arguments)


def _question(state: BeliefState, entries: list[Entry], function: str, tries: int) -> str:
    """What to ask now; empty for nothing."""
    if tries == 0:
        attribute = _open_attribute(state.instruction, entries)
        asks = function == "search_product_by_query" and attribute and not state.session
        return f"Which {attribute} would you like?" if asks else ""
    asked = state.session[-1].action.name == "respond"
    return "Is this what you had in mind?" if tries < TRIES and not asked else ""


def _open_attribute(instruction: str, entries: list[Entry]) -> str | None:
    """The first attribute that the instruction does not name, nor (for the brand) a remembered value of."""
    said = instruction.lower()
    named = {attribute for attribute in ATTRIBUTES if attribute in said}
    if any((entry.get("store") or "\n").lower() in said for entry in entries):
        named.add("brand")
    return next((attribute for attribute in ATTRIBUTES if attribute not in named), None)


def _answers(state: BeliefState, since: int = -1) -> list[str]:
    """The words of the user's answers that may describe a product and were not said before, in order.

    ``since``: only words that came up after this step.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    known = {*ENGLISH_STOP_WORDS, *words(_SAYS_NOTHING), *words(state.instruction)}
    new: dict[str, int] = {}
    for i, step in enumerate(state.session):
        if step.action.name == "respond" and not step.error:
            for word in words(step.observation.text):
                if word not in known:
                    new.setdefault(word, i)
    return [word for word, i in new.items() if i > since]


def _spoken_of_first(entries: list[Entry], told: list[str]) -> list[Entry]:
    """The entries, those first that hold the most of the ``told`` words."""

    def shared(entry: Entry) -> int:
        return len(set(told).intersection(words(" ".join(map(str, entry.values())))))

    return sorted(entries, key=lambda entry: -shared(entry)) if told else entries
