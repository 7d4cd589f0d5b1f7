"""Traits of products and how common they are in a shop, and how texts name them."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from pwagents.profiles.clusters import section
from pwagents.schema import Product
from pwagents.words import content_words, kind_of, read_yaml, short_store, word_list

BANDS = ("budget", "midrange", "premium")  # a third of the products of a kind each
WORD_LISTS = read_yaml(__package__, "catalogue.yaml")
TOPIC = "topic"  # what the other words of a title are about
_LEAST_GROUP = 8  # products, for a group to compare with
_LEAST_USES = 3  # of a value in details, before it is recognized in any text
_LONGEST = 3  # words of a value
_WORD = re.compile(r"[^\W_]+(?:[-'\u2019][^\W_]+)*")
# Where the scope of a "not" ends; "anything but" is itself a "not".
_CLAUSE_END = re.compile(r"[.!?;,:]\s|(?<!anything) but\b|\brather\b", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(not|no|never|without|avoid|hate|dislike|except|instead of|anything but)\b|n't\b", re.IGNORECASE
)
# Words of pages and of questions -> the attributes that they name: "colour" -> "color".
_DETAILS = {word: about for about, words in WORD_LISTS["attributes"].items() for word in words.split()}
_NAMED_BY = _DETAILS | {x: about for about, words in WORD_LISTS["asked"].items() for x in words.split()}


class Trait(NamedTuple):
    """One property of a product: an attribute and its value."""

    about: str
    value: str

    @property
    def text(self) -> str:
        """Return the trait as a line of a profile: "color: navy"."""
        return f"{self.about}: {self.value}"


class Catalogue:
    """The products of a shop (by id), their traits and how common these are. All is read once.

    The traits of a product are its brand, its price band, the details that people have preferences about
    (``catalogue.yaml``), values of such details in its title, and the title's other content words
    (:data:`TOPIC`). Which values and stores exist is learned from the catalogue itself.
    """

    def __init__(self, products: Mapping[str, Product]):
        self.products = products
        self._stores = {name for product in products.values() if (name := short_store(product.store))}
        # Values that details name often enough, and mostly of one attribute.
        uses: dict[str, Counter[str]] = defaultdict(Counter)
        for product in products.values():
            for trait in _read_details(product):
                uses[trait.value][trait.about] += 1
        self._values: dict[str, Trait] = {}
        for value, abouts in uses.items():
            about, count = min(abouts.items(), key=lambda item: (-item[1], item[0]))
            if count >= max(_LEAST_USES, 0.6 * abouts.total()) and value not in word_list("stop_words"):
                self._values[value] = Trait(about, value)
        # A product's price is compared with the finest group of similar products that is large enough.
        prices: dict[tuple[str, ...], list[float]] = defaultdict(list)
        groups: dict[str, list[tuple[str, ...]]] = {}
        for asin, product in products.items():
            if product.price is not None:
                place = section(product)
                groups[asin] = [(place, kind_of(product)), (place,), (product.category, ""), ()]
                for group in groups[asin]:
                    prices[group].append(product.price)
        for group in prices.values():
            group.sort()
        self._similar_prices = {
            asin: next((prices[group] for group in own if len(prices[group]) >= _LEAST_GROUP), prices[()])
            for asin, own in groups.items()
        }
        self._traits = {asin: tuple(self._read(product)) for asin, product in products.items()}
        # Products of each category, and of the whole shop (""): with a trait, with any value of an attribute
        # ("color"), and all of them ("").
        self._counts: Counter[tuple[str, Trait | str]] = Counter()
        for asin, traits in self._traits.items():
            for place in (products[asin].category, ""):
                self._counts.update((place, key) for key in {"", *traits, *(t.about for t in traits)})

    def traits(self, asin: str) -> tuple[Trait, ...]:
        """Return the traits of a product, each once."""
        return self._traits[asin]

    def share(self, trait: Trait, category: str) -> float:
        """Return a trait's share (0 to 1) of the category's products that have any value of its attribute.

        A topic's share is of all products of the category. For a category with few products, the whole shop
        counts in its place.
        """
        place = category if self._counts[category, ""] >= _LEAST_GROUP else ""
        among = self._counts[place, "" if trait.about == TOPIC else trait.about]
        return max(1, self._counts[place, trait]) / max(1, among)  # never 0: it is divided by

    def is_used(self, trait: Trait) -> bool:
        """Return whether any product has the trait."""
        return ("", trait) in self._counts

    def price_rank(self, asin: str) -> float | None:
        """Return a price's rank among similar products (0 cheapest, 1 dearest); None without a price."""
        price = self.products[asin].price
        if price is None:
            return None
        prices = self._similar_prices[asin]
        return (bisect_left(prices, price) + bisect_right(prices, price)) / (2 * len(prices))

    def find(self, text: str) -> list[Trait]:
        """Return the traits whose values a text names, in its order; of overlapping values the longest.

        A store counts only with its capitals: many are everyday words.
        """
        words = _WORD.findall(text)
        traits, start = [], 0
        while start < len(words):
            for end in range(min(start + _LONGEST, len(words)), start, -1):
                run = " ".join(words[start:end])
                is_store = run in self._stores and not run.islower()
                if trait := self._values.get(run.lower()) or (Trait("brand", run) if is_store else None):
                    traits.append(trait)
                    break
            start = end  # after the value, or after one word that is none
        return traits

    def find_attribute(self, question: str) -> str:
        """Return the first attribute that a question names or has a value of; else topics, if it is open."""
        words = _stems(question)
        named = [_NAMED_BY[word] for word in words if word in _NAMED_BY]
        named += [trait.about for trait in self.find(question)]
        is_open = set(words) & set(WORD_LISTS["open_words"].split())
        return next(iter(named), TOPIC if is_open else "")

    def find_topics(self, text: str) -> list[str]:
        """Return the words of a text that titles use and that belong to no known value."""
        taken = {word for trait in self.find(text) for word in trait.value.lower().split()}
        words = (word for word in content_words(text) if word not in taken)
        return [word for word in dict.fromkeys(words) if self.is_used(Trait(TOPIC, word))]

    def _read(self, product: Product) -> Iterator[Trait]:
        in_title, words = self.find(product.title), " ".join(_WORD.findall(product.title))
        brand = short_store(product.store)
        if not brand and in_title and in_title[0].about == "brand":  # titles often begin with it
            brand = in_title[0].value if f"{words} ".startswith(f"{in_title[0].value} ") else ""
        if brand:
            yield Trait("brand", brand)
        rank = self.price_rank(product.parent_asin)
        if rank is not None:
            yield Trait("price", BANDS[min(2, int(3 * rank))])
        values = [*_read_details(product), *(trait for trait in in_title if trait.about != "brand")]
        yield from dict.fromkeys(values)
        used = {word for trait in values for word in trait.value.split()} | set(brand.lower().split())
        yield from (Trait(TOPIC, word) for word in content_words(product.title) if word not in used)


def find_bands(text: str) -> list[str]:
    """Return the price bands that a text names: "premium" of "something luxury"."""
    words = set(_stems(text))
    return [band for band, names in WORD_LISTS["price_words"].items() if words & set(names.split())]


def split_clauses(text: str) -> list[tuple[str, bool]]:
    """Split a text where the scope of a "not" ends; return each clause with whether it has no "not"."""
    return [(clause, not _NEGATION.search(clause)) for clause in _CLAUSE_END.split(f"{text} ")]


def affirmed(text: str) -> str:
    """Return the clauses of a text without a "not": "in navy" of "Anything but black, in navy"."""
    return " ".join(clause for clause, positive in split_clauses(text) if positive)


def denied(text: str) -> str:
    """Return the clauses of a text with a "not": "Anything but black" of "Anything but black, in navy"."""
    return " ".join(clause for clause, positive in split_clauses(text) if not positive)


def expresses(manner: str, text: str) -> bool:
    """Return whether a text has a phrase for a manner: "indifferent", "dissatisfied" or "unknown"."""
    return any(re.search(phrase, text, re.IGNORECASE) for phrase in WORD_LISTS["phrases"][manner])


def _stems(text: str) -> list[str]:
    """Split a text into words in lower case, without the s of a plural; hyphenated words stay whole."""
    return [word.lower().rstrip("s") for word in _WORD.findall(text)]


@lru_cache(maxsize=100_000)  # the same values and reviews are asked for again and again
def spaced_words(text: str) -> str:
    """Return the words of a text in lower case, a space around each, so that ``in`` finds whole words."""
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return f" {' '.join(words)} "


def _read_details(product: Product) -> Iterator[Trait]:
    """Yield the details that people have preferences about."""
    dull = WORD_LISTS["dull_values"].split()
    for key, text in product.flat_details.items():
        about = next((_DETAILS[word] for word in _stems(key) if word in _DETAILS), "")
        for part in re.split(r"[,;/(|]", text.lower())[:3] if about else ():
            value = " ".join(words := _WORD.findall(part))
            is_dull = value in dull or len(value) < 2 or any(c.isdigit() for c in value)
            if len(words) <= _LONGEST and not is_dull:
                yield Trait(about, value)
