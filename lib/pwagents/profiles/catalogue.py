"""What products are like, and what is usual in a shop: the measure for what is special about a user."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from pwagents.data.instructions import content_words, kind_of, short_store, word_list
from pwagents.project import read_yaml
from pwagents.schema import Product

BANDS = ("budget", "midrange", "premium")  # a third of the products of a kind each
TOPIC = "topic"  # what the other words of a title are about
_LEAST_GROUP = 8  # products that say what is usual among their like
_LEAST_USES = 3  # of a value in details, before it is recognised wherever it is read
_LONGEST = 3  # words of a value
_WORD = re.compile(r"[^\W_]+(?:[-'\u2019][^\W_]+)*")


class Trait(NamedTuple):
    """One thing that is true of a product: what it is about, and its value."""

    about: str
    value: str

    @property
    def text(self) -> str:
        """As a line of a profile: "color: navy"."""
        return f"{self.about}: {self.value}"


class Catalogue:
    """The products of a shop, their traits and how common these are. Read once; nothing in it changes.

    The traits of a product are its brand, its price band, the details that people have tastes in
    (``attributes.yaml``), values of such details wherever they stand in its title, and the title's other
    telling words (:data:`TOPIC`). Values and stores are learned from the catalogue itself.

    Args:
        products: parent_asin -> Product.
    """

    def __init__(self, products: Mapping[str, Product]):
        self.products = products
        self._stores = {name: None for p in products.values() if (name := short_store(p.store))}
        self._values = _vocabulary(products)
        self._prices, self._group_of = _price_groups(products)
        self._traits = {asin: tuple(self._read(product)) for asin, product in products.items()}
        # Counted by place: in each category, and in the whole shop ("").
        self._products: Counter[str] = Counter()
        self._with_trait: Counter[tuple[str, Trait]] = Counter()
        self._with_any: Counter[tuple[str, str]] = Counter()  # products that have any value of an attribute
        for asin, traits in self._traits.items():
            for place in (products[asin].category, ""):
                self._products[place] += 1
                self._with_trait.update((place, trait) for trait in traits)
                self._with_any.update((place, about) for about in {trait.about for trait in traits})

    def traits(self, asin: str) -> tuple[Trait, ...]:
        """The traits of a product, each once."""
        return self._traits[asin]

    def share(self, trait: Trait, category: str) -> float:
        """How common a trait is (0 to 1) among the category's products that have any value of its attribute;
        topics among all of them. A category of few products is too small to say: the whole shop does."""
        place = category if self._products[category] >= _LEAST_GROUP else ""
        among = self._products[place] if trait.about == TOPIC else self._with_any[place, trait.about]
        return max(1, self._with_trait[place, trait]) / max(1, among)  # never 0: it is divided by

    def is_used(self, trait: Trait) -> bool:
        """Whether any product has it."""
        return ("", trait) in self._with_trait

    def price_rank(self, asin: str) -> float | None:
        """Where a price stands (0 cheapest, 1 dearest) among products of its kind, else of its section or
        category; None without a price."""
        price = self.products[asin].price
        if price is None:
            return None
        prices = self._prices[self._group_of[asin]]
        return (bisect_left(prices, price) + bisect_right(prices, price)) / (2 * len(prices))

    def find(self, text: str) -> list[tuple[int, Trait]]:
        """The known values in a text, longest first where they overlap: (place of the first word, trait).

        A store counts only as it is written, capitals included: many are everyday words.
        """
        words = _WORD.findall(text)
        found, i = [], 0
        while i < len(words):
            for n in range(_LONGEST, 0, -1):
                trait = self._known(" ".join(words[i : i + n]))
                if trait and i + n <= len(words):
                    found.append((i, trait))
                    break
            i += n
        return found

    def _known(self, run: str) -> Trait | None:
        """The trait of which a run of words is the value."""
        is_store = run in self._stores and not run.islower()
        return self._values.get(run.lower()) or (Trait("brand", run) if is_store else None)

    def _read(self, product: Product) -> Iterator[Trait]:
        """The traits of a product."""
        traits = dict.fromkeys(_details(product))
        found = self.find(product.title)
        first = found[0][1] if found and found[0][0] == 0 else None  # titles often begin with the brand
        brand = short_store(product.store) or (first.value if first and first.about == "brand" else "")
        if brand:
            yield Trait("brand", brand)
        rank = self.price_rank(product.parent_asin)
        if rank is not None:
            yield Trait("price", BANDS[min(2, int(3 * rank))])
        traits |= dict.fromkeys(trait for _, trait in found if trait.about != "brand")
        yield from traits
        known = {word for trait in traits for word in trait.value.split()} | set(brand.lower().split())
        yield from (Trait(TOPIC, word) for word in content_words(product.title) if word not in known)


def section(product: Product) -> str:
    """The finest category that a page names: its category, and its department where there is one."""
    department = product.details.get("Department", "").strip().lower()
    return f"{product.category} > {department}" if department else product.category


def word_lists() -> dict:
    """The contents of ``attributes.yaml``."""
    return read_yaml(__package__, "attributes.yaml")


@cache
def attribute_of_word(group: str = "attributes") -> dict[str, str]:
    """Word -> the attribute that it names ("colour" -> "color"), for a group of ``attributes.yaml``."""
    return {word: about for about, text in word_lists()[group].items() for word in text.split()}


def stems(text: str) -> list[str]:
    """Words in lower case, without the s of a plural."""
    return [word.lower().rstrip("s") for word in _WORD.findall(text)]


def _details(product: Product) -> Iterator[Trait]:
    """The details that people have tastes in."""
    for key, text in product.details.items():
        about = next((attribute_of_word()[w] for w in stems(key) if w in attribute_of_word()), "")
        for value in re.split(r"[,;/(|]", text.lower())[:3] if about else ():
            value = " ".join(_WORD.findall(value))
            dull = value in word_lists()["dull_values"].split() or any(c.isdigit() for c in value)
            if len(value) > 1 and not dull and len(value.split()) <= _LONGEST:
                yield Trait(about, value)


def _vocabulary(products: Mapping[str, Product]) -> dict[str, Trait]:
    """Value -> its trait, for values that details name often enough and mostly of one attribute."""
    uses: dict[str, Counter] = defaultdict(Counter)
    for product in products.values():
        for trait in _details(product):
            uses[trait.value][trait.about] += 1
    known = {}
    for value, abouts in uses.items():
        about, count = min(abouts.items(), key=lambda item: (-item[1], item[0]))
        if count >= max(_LEAST_USES, 0.6 * abouts.total()) and value not in word_list("stop_words"):
            known[value] = Trait(about, value)
    return known


def _price_groups(products: Mapping[str, Product]) -> tuple[dict[tuple, list[float]], dict[str, tuple]]:
    """Sorted prices by group, and each product's group: the finest that has enough of them."""
    prices: dict[tuple, list[float]] = defaultdict(list)
    groups_of = {}
    for asin, product in products.items():
        if product.price is not None:
            place = section(product)
            groups_of[asin] = [(place, kind_of(product)), (place,), (product.category, ""), ()]
            for group in groups_of[asin]:
                prices[group].append(product.price)
    for group in prices.values():
        group.sort()
    chosen = {
        asin: next((group for group in groups if len(prices[group]) >= _LEAST_GROUP), ())
        for asin, groups in groups_of.items()
    }
    return dict(prices), chosen
