"""What a belief state says that the user wants: what the offline teacher and the offline judge go by, and how
P_ctx,0 begins without a language model."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from pwagents.profiles.catalogue import (
    BANDS,
    TOPIC,
    Catalogue,
    attribute_of_word,
    spaced_words,
    stems,
    word_lists,
)
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import OfflineUpdater, Update, Updater, settle
from pwagents.schema import FUNCTION_OF, Behavior, Step
from pwagents.web.environment import BeliefState
from pwagents.words import content_words

_LEAST_SHARE = 0.01  # of the products in question that must have a trait for it to be one of theirs
_GROUPS = ("attributes", "asked")  # of words that name an attribute
_WORD = re.compile(r"[a-z]+")


class Wishes(NamedTuple):
    """What S_t holds for and against products.

    Args:
        words: what the instruction calls the product or the situation, in its order.
        stated: what the user said, in the instruction or in an answer.
        past: what history or earlier results speak for, but for topics and attributes that the user spoke of.
        avoided: what is to be avoided.
    """

    words: tuple[str, ...]
    stated: tuple[ProfileLine, ...]
    past: tuple[ProfileLine, ...]
    avoided: tuple[ProfileLine, ...]


class WishReader:
    """Reads belief states, and knows nothing but them and the public catalogue.

    Args:
        catalogue: the shop's products and values.
        updater: understands what users say.
    """

    def __init__(self, catalogue: Catalogue, updater: OfflineUpdater):
        self.catalogue, self.updater = catalogue, updater
        self._heard = lru_cache(maxsize=10_000)(self._hear)
        self._found = lru_cache(maxsize=10_000)(self._find)

    def __call__(self, state: BeliefState) -> Wishes:
        return self._wishes(state.instruction, state.profile or ContextualProfile())

    def _wishes(self, instruction: str, profile: ContextualProfile) -> Wishes:
        words, said = self._heard(instruction)
        # What was said in the session stands in the profile and overrides the instruction.
        now = [line for line in profile.lines if line.provenance == "stated"]
        stated = settle(ContextualProfile(lines=said), now).lines
        wanted = tuple(line for line in stated if line.positive)
        spoken_of = {line.about for line in wanted} | {TOPIC}
        said_values = {*words, *(line.value.lower() for line in stated)}
        past = [line for line in profile.lines if line.provenance != "stated"]
        return Wishes(
            words=words,
            stated=wanted,
            past=tuple(line for line in past if line.positive and line.about not in spoken_of),
            avoided=(
                *(line for line in stated if not line.positive),
                *(line for line in past if not line.positive and line.value.lower() not in said_values),
            ),
        )

    def begin(self, profile: ContextualProfile, instruction: str) -> ContextualProfile:
        """P_ctx,0 by rules: what retrieval found, what the instruction says, and its words for the product.

        Of what the past speaks for, it leaves out what no product in question has, and topics: they name the
        product and are no taste.
        """
        heard = self.updater.hear(profile, instruction)
        wishes = self._wishes(instruction, heard)
        left_out = {line for line in wishes.past if self.traits(line)} - {*self.applying(wishes)}
        past = (line for line in heard.lines if line.positive and line.provenance != "stated")
        left_out |= {line for line in past if line.about == TOPIC}
        kept = tuple(line for line in heard.lines if line not in left_out)
        return ContextualProfile(lines=kept, words=wishes.words)

    def values(self, lines: Iterable[ProfileLine]) -> list[str]:
        """The values of lines as a search understands them, each once: no amounts of money, no sentences."""
        return list(dict.fromkeys(value for line in lines for _, value in self.traits(line)))

    def traits(self, line: ProfileLine) -> list[tuple[str, str]]:
        """(attribute, value) of a line: what it says it is about, or the known values in its sentence."""
        if line.about == "price":
            return [("price", band) for band in BANDS if band in line.value.lower()]
        if line.about:
            return [(line.about, line.value)]
        return [(trait.about, trait.value) for _, trait in self.catalogue.find(line.text)]

    def applying(self, wishes: Wishes) -> list[ProfileLine]:
        """Of what the past speaks for, what products in question have."""
        found = self._found(wishes.words)
        return [line for line in wishes.past if found.intersection(self.traits(line))]

    def is_shop_word(self, word: str) -> bool:
        """Whether any page has the word (lower case) in title, description or attributes."""
        return word in self._pages

    def asked(self, session: Sequence[Step]) -> list[str]:
        """What the questions of a session were about."""
        return [
            self.updater.find_attribute(step.action.arguments["content"])
            for step in session
            if step.action.name == "respond" and not step.error
        ]

    def points(self, state: BeliefState) -> list[tuple[str, str]]:
        """(attribute, value) of what a review shall bring up: of what is stated, what is named with its
        attribute ("the citrus scent"), else all."""
        stated = [trait for line in self(state).stated for trait in self.traits(line)]
        words = {attribute_of_word(group).get(word) for word in stems(state.instruction) for group in _GROUPS}
        return [(about, value) for about, value in stated if about in words] or stated

    def _hear(self, instruction: str) -> tuple[tuple[str, ...], tuple[ProfileLine, ...]]:
        """The product's words in an instruction, and what it states."""
        said = self.updater.hear(ContextualProfile(), instruction).lines
        known = set(spaced_words(" ".join(value for line in said for _, value in self.traits(line))).split())
        known |= {word for group in _GROUPS for word in attribute_of_word(group)}
        known |= set(" ".join(word_lists()["price_words"].values()).split())
        words = [word for word in content_words(instruction) if word in self._pages and word not in known]
        return tuple(words), said

    def _find(self, words: tuple[str, ...]) -> frozenset[tuple[str, str]]:
        """The traits of the products that hold the most of ``words``, but for rare ones."""
        counts = Counter(asin for word in words for asin in self._pages.get(word, ()))
        most = max(counts.values(), default=0)
        asins = [asin for asin, n in counts.items() if n == most] or list(self.catalogue.products)
        traits = Counter(trait for asin in asins for trait in self.catalogue.traits(asin))
        return frozenset(tuple(trait) for trait, n in traits.items() if n >= _LEAST_SHARE * len(asins))

    @cached_property
    def _pages(self) -> dict[str, list[str]]:
        """Word of a title, a description or an attribute -> the products with it."""
        pages: dict[str, list[str]] = defaultdict(list)
        for asin, product in self.catalogue.products.items():
            values = (trait.value for trait in self.catalogue.traits(asin))
            for word in set(_WORD.findall(" ".join([product.title, *product.description, *values]).lower())):
                pages[word].append(asin)
        return dict(pages)


def whole_query(state: BeliefState) -> str:
    """A query that repeats what the contextual profile has as wanted; where it lacks the request's words, the
    request stands before that."""
    profile = state.profile or ContextualProfile()
    return profile.query if profile.words else f"{state.instruction} {profile.query}".strip()


def holds(text: str, value: str) -> bool:
    """Whether a text holds a value, as whole words; the s of a plural does not matter."""
    return f" {' '.join(singular(value))} " in f" {' '.join(singular(text))} "


def singular(text: str) -> list[str]:
    """The words of a text in lower case, without the s of a plural."""
    return [word.rstrip("s") for word in spaced_words(text).split()]


def has_result(session: Sequence[Step]) -> bool:
    """Whether a search, a recommendation or a review was made."""
    return any(not step.error and step.action.name in FUNCTION_OF.values() for step in session)


def earlier_review(history: Sequence[Behavior]) -> Behavior | None:
    """The behaviour whose review the agent is told: the last one with a text."""
    return next((b for b in reversed(history) if b.review.text.strip()), None)


BOUGHT = 5  # ids told, at most


class Recall:
    """Tells ids beside a profile's lines.

    Args:
        read: knows what lines and products have in common.
    """

    def __init__(self, read: WishReader):
        self.read = read

    def __call__(self, profile: ContextualProfile, bought: Sequence[str]) -> ContextualProfile:
        """The profile with ids: of the products that have the most stated values, the last :data:`BOUGHT`.

        Args:
            bought: ids of one interest, oldest first; one that was bought twice is told once.
        """
        stated = [line for line in profile.lines if line.positive and line.provenance == "stated"]
        wanted = {(about, value.lower()) for line in stated for about, value in self.read.traits(line)}
        fits = [len(wanted.intersection(self._traits(asin))) for asin in bought]
        best = [asin for asin, n in zip(bought, fits, strict=True) if n == max(fits)]
        return profile.model_copy(update={"bought": tuple(dict.fromkeys(reversed(best)))[:BOUGHT][::-1]})

    def _traits(self, asin: str) -> list[tuple[str, str]]:
        return [(trait.about, trait.value.lower()) for trait in self.read.catalogue.traits(asin)]

    def after(self, update: Updater, bought: Sequence[str]) -> Updater:
        """An update of one episode's profile, and then of its ids."""

        def updated(profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
            made = update(profile, instruction, session)
            return made._replace(profile=self(made.profile, bought))

        return updated
