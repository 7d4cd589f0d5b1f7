"""Made-up words, products and ids, none of the benchmark's: what the small base model's text is made of."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from pwagents.data.synthetic.shop import Domain, Item, describe, domains, made_up_id
from pwagents.schema import Product

_OTHERS = (
    "User The task has ended Error No product was found An earlier review is published open nothing search "
    "recommend Title Id Average Ratings Price Store Features Description Details Department Category"
)


class Maker:
    """Draws words, products and ids that no real product has.

    Args:
        taken: ids and titles of real products (:func:`ids_and_titles`).
    """

    def __init__(self, taken: Collection[str], generator: np.random.Generator):
        self.taken, self.generator = taken, generator

    def pick(self, options: Sequence) -> Any:
        """Return one of them, each as likely."""
        return options[int(self.generator.integers(len(options)))]

    def some(self, options: Sequence, share: float) -> list:
        """Return each of them with a probability."""
        return [option for option in options if self.generator.random() < share]

    def words(self, least: int, below: int) -> str:
        """Return from ``least`` to ``below`` - 1 words of the shop and of those who talk about it."""
        return " ".join(self.pick(_words()) for _ in range(int(self.generator.integers(least, below))))

    def product(self, domain: Domain) -> Product:
        """Return a product with an id and a title that no real product has."""
        while True:
            values = {slot: self.pick(values) for slot, values in domain.values.items()}
            item = Item(domain, self.pick(list(domain.types)), values, 1.0)
            product = describe(self.ids(1)[0], item, self.generator)
            if product.title not in self.taken:
                return product

    def ids(self, n: int) -> tuple[str, ...]:
        """Return ids that no real product has."""
        made: list[str] = []
        while len(made) < n:
            if (one := made_up_id(self.pick)) not in self.taken:
                made.append(one)
        return tuple(made)


def ids_and_titles(products: Mapping[str, Product]) -> frozenset[str]:
    """Return the ids and titles of products."""
    return frozenset(products) | {product.title for product in products.values()}


@cache
def shop_words() -> frozenset[str]:
    """Return the words of the shop's pages, reviews, requests and answers; none tells of a user or task."""
    sources = [
        files("pwagents.data.synthetic").joinpath(name).read_text("utf-8")
        for name in ("shop.yaml", "language.yaml")
    ]
    sources += [files("pwagents.users").joinpath("phrases.yaml").read_text("utf-8")]
    words = set(re.findall(r"[A-Za-z]+", " ".join(re.sub(r"#.*", "", text) for text in sources)))
    values = {value for domain in domains() for slot in domain.values for value in domain.values[slot]}
    words |= {value.capitalize() for value in values} | {word.lower() for word in words}
    slots = {slot.capitalize() for domain in domains() for slot in domain.slots}
    return frozenset(words | slots | {*_OTHERS.split()} | {str(number) for number in range(10, 100)})


@cache
def _words() -> tuple[str, ...]:
    return tuple(sorted(word for word in shop_words() if word.isalpha()))
