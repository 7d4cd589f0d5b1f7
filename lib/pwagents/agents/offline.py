"""Rule-based agents, without a language model.

:class:`RuleAgent` is a baseline of its own, the one that every method has to beat. :class:`OfflinePolicy`
takes the language model's place in any prompting method, so that all of them run without a download or a key.
Both take a call's parameters from the same simple rules (:func:`rule_arguments`).
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from pwagents.agents.memory import Entry, Memory
from pwagents.schema import FUNCTION_OF, Action, Task
from pwagents.shop.environment import CODE as ENVIRONMENT
from pwagents.shop.environment import BeliefState

# The modules that decide an episode of a rule-based agent, for the keys of stored ones.
CODE = (*ENVIRONMENT, "agents.memory", "agents.offline")


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
        self._answers: dict[str, str] = {}  # every memory strategy asks for the same instructions

    def __call__(self, instruction: str) -> str:
        if instruction not in self._answers:
            self._answers[instruction] = str(self._pipeline.predict([instruction])[0])
        return self._answers[instruction]


@dataclass(frozen=True)
class RuleAgent:
    """One call a task: the function by a classifier, its parameters by :func:`rule_arguments`.

    It does not look at observations, so in the multi-turn track it stops after its call.

    Args:
        identify: instruction -> the function it asks for.
        memory: recalls what the parameters are made from.
    """

    identify: Callable[[str], str]
    memory: Memory

    def __call__(self, state: BeliefState) -> Action:
        if state.session:
            return Action(name="stop")
        function = self.identify(state.instruction)
        entries = self.memory.recall(state, function)
        return Action(name=function, arguments=rule_arguments(function, state.instruction, entries))


CONSIDERED = 10  # remembered products that the rules look at
ADDED_WORDS = 3  # at most, to a query


def rule_arguments(function: str, instruction: str, entries: list[Entry]) -> dict[str, Any]:
    """Take a call's parameters from instruction and memory, by simple rules.

    - search: the instruction and the words that recur in the first ``CONSIDERED`` remembered products;
    - recommend: those products, oldest first;
    - review: the first remembered review; without memory, the instruction itself.
    """
    recent = entries[:CONSIDERED]
    if function == "search_product_by_query":
        stated = set(words(instruction))
        counts = Counter(
            word
            for entry in recent
            for word in {*words(entry["title"]), *words(entry["store"] or "")} - stated
        )
        recurring = sorted(word for word, n in counts.items() if n > 1)  # ties: in the alphabet's order
        recurring.sort(key=counts.get, reverse=True)
        return {"query": " ".join([instruction, *recurring[:ADDED_WORDS]])}
    if function == "get_recommendations_by_history":
        # Task-specific memory keeps no times, but is latest first.
        is_dated = bool(recent) and "timestamp" in recent[0]
        oldest_first = sorted(recent, key=itemgetter("timestamp")) if is_dated else recent[::-1]
        return {"product_sequence": [entry["parent_asin"] for entry in oldest_first]}
    texts = [entry["text"] for entry in entries if entry["text"]]
    return {"review": texts[0] if texts else instruction}


def words(text: str) -> list[str]:
    """Split a text into its words of three letters and more, in lower case."""
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


@dataclass(frozen=True)
class OfflinePolicy:
    """Takes a language model's place in any method: acts by :func:`rule_arguments` and talks where it may.

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

    identify: Callable[[str], str]

    def act(self, state: BeliefState, entries: list[Entry], allowed: tuple[str, ...]) -> Action:
        """Choose the next call.

        Args:
            entries: what the method's memory recalls.
            allowed: the functions the method may call.
        """
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        possible = [function for function in FUNCTION_OF.values() if function in allowed]
        function = possible[0] if len(possible) == 1 else self.identify(state.instruction)
        tries = [i for i, step in enumerate(state.session) if step.action.name in possible]

        # Read the user's answers: the words that may describe a product, each with the step of its first use.
        ignored = {*ENGLISH_STOP_WORDS, *words(_SAYS_NOTHING), *words(state.instruction)}
        answers: dict[str, int] = {}
        for i, step in enumerate(state.session):
            for word in words(step.observation.text) if step.is_talk else ():
                if word not in ignored:
                    answers.setdefault(word, i)

        # Ask: before the first search what the instruction leaves open, after each try whether it is right.
        question = ""
        if "respond" in allowed and not state.session and function == "search_product_by_query":
            stated = state.instruction.lower()
            is_stated = {attribute: attribute in stated for attribute in ATTRIBUTES}
            is_stated["brand"] |= any((entry.get("store") or "\n").lower() in stated for entry in entries)
            left_open = [attribute for attribute in ATTRIBUTES if not is_stated[attribute]]
            question = f"Which {left_open[0]} would you like?" if left_open else ""
        elif "respond" in allowed and 0 < len(tries) < TRIES and state.session[-1].action.name != "respond":
            question = "Is this what you had in mind?"
        if question:
            return Action(name="respond", arguments={"content": question})

        # Stop where nothing new was said since the last try.
        if tries and "stop" in allowed and max(answers.values(), default=-1) <= tries[-1]:
            return Action(name="stop")

        # Act on all that was said; entries that share more words with the answers come first.
        if answers:
            shared = [len(answers.keys() & words(" ".join(map(str, entry.values())))) for entry in entries]
            order = sorted(range(len(entries)), key=shared.__getitem__, reverse=True)
            entries = [entries[i] for i in order]
        instruction = " ".join([state.instruction, *answers])
        return Action(name=function, arguments=rule_arguments(function, instruction, entries))
