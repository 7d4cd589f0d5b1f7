"""PUMA's memory (PersonalWAB, 5.1): what step 2 is told of a user's past, as one line of plain text.

The paper's memory ranks all of the past by MiniLM cosine with the instruction (equation 2), takes the first
hundred, tells of each the fields that the function needs, and cuts the text to a number of tokens. So do the
published ``PUMA/utils.py`` and ``PUMA/prepare_param_data.py``.

Two switches are ours. ``memory: interest`` keeps those of the hundred that share the section (the finest
category that pages name) of the closest one. ``hint: recurring`` adds the word that recurs in that section.

Departures: 1. equal cosines are ordered by time, the later first (the code's order is undefined). 2. Prices
are numbers here, so "12" is told as "12.0".
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pwagents.agents.memory import closest_first
from pwagents.agents.offline import words
from pwagents.embedding import Embedder
from pwagents.llm.prompts import write_product
from pwagents.profiles.clusters import section
from pwagents.puma.methods import Method
from pwagents.schema import FUNCTION_OF, Behavior, Product
from pwagents.shop.environment import BeliefState
from pwagents.words import word_list

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEARCH, RECOMMEND, REVIEW = FUNCTION_OF["search"], FUNCTION_OF["recommend"], FUNCTION_OF["review"]
RETRIEVED = 100  # behaviours of the past, at most (the script's --mem_length)
# A word recurs that stands in so many purchases of a section, and in such a share of them.
RECURRING, RECURRING_SHARE = 2, 0.4


class Recall(NamedTuple):
    """What is remembered for a task.

    Args:
        text: the items, joined by "|" and cut.
        ids: of a recommendation: the products of the items that the cut left whole, in their order.
        hint: the word that recurs; empty where there is none, or the method gives no hint.
    """

    text: str
    ids: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class TaskMemory:
    """Retrieves a user's past for an instruction and tells it as text.

    Args:
        tokenizer: of the model that reads the text; it must be a fast one.
        texts: forms of a record and of an item, by the names of the published constants.
    """

    products: Mapping[str, Product]
    embedder: Embedder
    tokenizer: "PreTrainedTokenizerBase"
    texts: Mapping[str, str]
    _closest: dict[tuple[str, int, str], list[Behavior]] = field(default_factory=dict, compare=False)

    def prepare(self, states: Sequence[BeliefState]) -> None:
        """Embed instructions and records in one go, so that no :meth:`retrieve` has to wait for the model."""
        longest = {state.user_id: state.history for state in sorted(states, key=lambda s: len(s.history))}
        texts = {record for history in longest.values() for record in self._records(history)}
        self.embedder.encode(sorted(texts | {state.instruction for state in states}), show_progress=True)

    def retrieve(self, state: BeliefState) -> list[Behavior]:
        """Rank the past by closeness of the whole record to the instruction; the first hundred."""
        history = state.history
        if not history:
            return []
        # Every variant asks for the same: a user's history is known by its length.
        key = state.user_id, len(history), state.instruction
        if key not in self._closest:
            order = closest_first(state.instruction, self._records(history), self.embedder)
            self._closest[key] = [history[i] for i in order[:RETRIEVED]]
        return self._closest[key]

    def items(self, behaviors: Sequence[Behavior], function: str) -> list[str]:
        """Tell behaviours by the fields that matter to the function; uncut."""
        name = {SEARCH: "TS_SEARCH_PROMPT", RECOMMEND: "TS_REC_PROMPT", REVIEW: "TS_REV_PROMPT"}[function]
        return [self._tell(name, behavior) for behavior in behaviors]

    def recall(self, state: BeliefState, function: str, method: Method) -> Recall:
        """Remember for a task what ``method`` remembers."""
        if method.memory == "none" or not state.history:
            return Recall("")
        chosen = self.retrieve(state)
        hint = self.recurring(state) if method.hint == "recurring" and function == SEARCH else ""
        if method.memory == "interest" and function != REVIEW:
            chosen = self._interest(chosen)
        if function == RECOMMEND:
            chosen = sorted(chosen, key=lambda behavior: behavior.timestamp, reverse=True)
        items = self.items(chosen, function)
        ids = [behavior.parent_asin for behavior in chosen]
        if function == RECOMMEND and method.ids == "number":
            # Each product once, called by its place.
            first = {asin: place for place, asin in reversed(list(enumerate(ids)))}
            ids = list(dict.fromkeys(ids))
            items = [items[first[asin]].replace(asin, str(n)) for n, asin in enumerate(ids, start=1)]
        # Joined and cut as published: tokenise, truncate, decode. An item is whole up to white space at its
        # end, which the last token need not cover.
        read = self.tokenizer(
            "|".join(items), truncation=True, max_length=method.memory_tokens, return_offsets_mapping=True
        )
        text = self.tokenizer.decode(read["input_ids"], skip_special_tokens=True)
        end = max((end for _, end in read["offset_mapping"]), default=0)
        n_whole = sum(len("|".join(items[: i + 1]).rstrip()) <= end for i in range(len(items)))
        return Recall(text, tuple(ids[:n_whole]) if function == RECOMMEND else (), hint)

    def recurring(self, state: BeliefState) -> str:
        """Find the word that recurs in the section of the closest purchase."""
        bought = [self.products[b.parent_asin] for b in self._interest(self.retrieve(state))]
        return recurring_word(state.instruction, bought)

    def _interest(self, retrieved: Sequence[Behavior]) -> list[Behavior]:
        """Keep those of the first one's section."""
        sections = [section(self.products[behavior.parent_asin]) for behavior in retrieved]
        return [b for b, own in zip(retrieved, sections, strict=True) if own == sections[0]]

    def _records(self, history: Sequence[Behavior]) -> list[str]:
        """Tell all of each behaviour, with its place: what the instruction is compared with."""
        texts = [self._tell("HISTORY_PROMPT", behavior, place) for place, behavior in enumerate(history)]
        # MiniLM reads as many tokens, and a word has one at least: texts that it reads alike become equal.
        return [" ".join(text.split()[: self.embedder.max_tokens]) for text in texts]

    def _tell(self, form: str, behavior: Behavior, place: int = 0) -> str:
        review = {"RATING": str(behavior.review.rating), "TEXT": behavior.review.text}
        product, time = self.products[behavior.parent_asin], str(behavior.timestamp)
        return write_product(self.texts[form], product, place, **review, TIMESTAMP=time)


def recurring_word(instruction: str, bought: Sequence[Product]) -> str:
    """Find the word that recurs the most in titles and stores, and that the instruction does not say.

    Stop words do not count; what was bought twice counts twice. Of equally frequent words it is the first.

    Returns:
        The word as it is first written there, since a model copies what it reads; empty where none recurs.
    """
    ignored = {*words(instruction), *word_list("stop_words")}
    texts = [f"{product.title} {product.store or ''}" for product in bought]
    counts = Counter(word for text in texts for word in dict.fromkeys(words(text)) if word not in ignored)
    enough = max(RECURRING, RECURRING_SHARE * len(bought))
    recurring = next((word for word, n in counts.most_common(1) if n >= enough), "")
    written = re.findall(r"[^\W\d_]+", " ".join(texts))
    return next((word for word in written if word.lower() == recurring), "")
