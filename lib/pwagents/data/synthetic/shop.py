"""The synthetic shop: domains, attributes and the seeded products made of them."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from pwagents.schema import Product
from pwagents.seeds import rng
from pwagents.words import read_yaml

BASIC_SLOTS = ("brand", "tier")  # the slots that every domain has, before its own four
CONSONANTS, VOWELS = "BCDFGHJKLMNPQRSTVWXZ", "AEIOU"
SYLLABLES = tuple(c + v for c in CONSONANTS for v in VOWELS)  # "B0" and three of them make an id


@dataclass(frozen=True)
class Domain:
    """One possible interest of a user: a corner of the shop with its own attributes.

    ``values`` maps each slot (brand, tier and four of the domain's own) to the values it can take;
    ``types`` maps each product type to its usual price in dollars.
    """

    name: str
    category: str
    scenario: str
    consumable: bool
    types: dict[str, float]
    values: dict[str, tuple[str, ...]]

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(self.values)


@dataclass(frozen=True)
class Item:
    """What a product really is: its domain, its type and one value a slot. Agents see its text alone."""

    domain: Domain
    type: str
    values: dict[str, str]
    popularity: float  # mean 1; with twice the popularity, an equally fitting product sells twice as often

    @property
    def head(self) -> str:
        """Name the last word of the type, which other domains may use too ("mat", "brush")."""
        return self.type.split()[-1]


class Shelf:
    """All items of one type, as arrays: what a shopper looks over at once.

    Attributes:
        asins: (n,) ids.
        codes: (slots, n) integers, the index of each value in ``domain.values[slot]``.
        log_popularity: (n,) floats.
    """

    def __init__(self, domain: Domain, items: dict[str, Item]):
        self.domain = domain
        self.asins = list(items)
        codes = [[v.index(i.values[slot]) for i in items.values()] for slot, v in domain.values.items()]
        self.codes = np.array(codes)
        self.log_popularity = np.log([i.popularity for i in items.values()])

    def matches(self, wish: dict[str, str]) -> np.ndarray:
        """Count in how many slots each item has the wished value, (n,)."""
        wished = [self.domain.values[slot].index(value) for slot, value in wish.items()]
        return (self.codes == np.array(wished)[:, None]).sum(axis=0)

    def disliked(self, dislikes: frozenset[str]) -> np.ndarray:
        """Count how many values of each item are among ``dislikes``, (n,)."""
        counts = np.zeros(len(self.asins), int)
        for values, codes in zip(self.domain.values.values(), self.codes, strict=True):
            for value in dislikes.intersection(values):
                counts += codes == values.index(value)
        return counts


def make_shelves(items: dict[str, Item]) -> dict[str, Shelf]:
    """Put the items of each type on a shelf: type -> Shelf."""
    by_type: dict[str, dict[str, Item]] = {}
    for asin, item in items.items():
        by_type.setdefault(item.type, {})[asin] = item
    return {type_: Shelf(next(iter(group.values())).domain, group) for type_, group in by_type.items()}


@cache
def shared_heads() -> frozenset[str]:
    """List the heads that several product types have ("a new mat": for baking, for the bath, for yoga?)."""
    heads = [type_.split()[-1] for domain in domains() for type_ in domain.types]
    return frozenset(head for head in heads if heads.count(head) > 1)


def language() -> dict:
    """Read the phrases of ``language.yaml``."""
    return read_yaml(__package__, "language.yaml")


@cache
def domains() -> tuple[Domain, ...]:
    """Read the domains of ``shop.yaml``, in the order of the file."""
    shop = read_yaml(__package__, "shop.yaml")
    brands = dict(zip(shop["categories"], shop["brands"], strict=True))
    made = []
    for fields in map(dict, shop["domains"]):
        slots = {"brand": brands[fields["category"]], "tier": shop["tiers"], **fields.pop("slots")}
        fields = {"consumable": False} | fields
        made.append(Domain(**fields, values={slot: tuple(values) for slot, values in slots.items()}))
    return tuple(made)


def make_items(n_products: int, seed: int) -> dict[str, Item]:
    """Make ``n_products`` different items, spread evenly over domains and types: parent_asin -> Item.

    No two items agree in type and all values, so each product has a query that finds it. Popularity is
    log-normal: a few products are well known and most are not, as in real shops.

    Raises:
        ValueError: more products than the shop has combinations.
    """
    kinds = [(domain, type_) for domain in domains() for type_ in domain.types]
    capacity = min(int(np.prod([len(v) for v in domain.values.values()])) for domain in domains())
    if n_products > len(kinds) * capacity:
        raise ValueError(
            f"n_products is {n_products}; the shop has at most {len(kinds) * capacity} different ones"
        )
    generator = rng(seed, "synthetic", "items")
    # Words of three syllables ("B0KATOMI") in no order: a few tokens each, and none tells of its product.
    base = len(SYLLABLES)
    numbers = generator.choice(base**3, size=n_products, replace=False)
    asins = [
        "B0" + SYLLABLES[x // base**2] + SYLLABLES[x // base % base] + SYLLABLES[x % base] for x in numbers
    ]
    popularity = generator.lognormal(0.0, 1.0, n_products) / np.exp(0.5)  # exp(1/2) is this law's mean
    seen = set()
    items = {}
    for i, asin in enumerate(asins):
        domain, type_ = kinds[i % len(kinds)]
        values = _draw_values(domain, generator)
        while (key := (type_, *values.values())) in seen:
            values = _draw_values(domain, generator)
        seen.add(key)
        items[asin] = Item(domain, type_, values, float(popularity[i]))
    return items


def _draw_values(domain: Domain, generator: np.random.Generator) -> dict[str, str]:
    picks = generator.integers(0, [len(values) for values in domain.values.values()])
    return {slot: values[i] for (slot, values), i in zip(domain.values.items(), picks, strict=True)}


def describe(asin: str, item: Item, generator: np.random.Generator) -> Product:
    """Write the product page of an item: all that agents, and the search engine, ever see of it."""
    tier_factor = read_yaml(__package__, "shop.yaml")["tiers"][item.values["tier"]]
    price = item.domain.types[item.type] * tier_factor * generator.uniform(0.85, 1.15)
    facts = language()["facts"] | (language()["care_facts"] if "scent" in item.values else {})
    own = {slot: value for slot, value in item.values.items() if slot not in BASIC_SLOTS}
    # Every value stands in the text, the tier in the description alone, so a query can ask for any of them.
    # The average rating is chance; the number of ratings hints at the popularity.
    first, second, third, fourth = (f"{v} pack" if slot == "pack" else v for slot, v in own.items())
    return Product(
        parent_asin=asin,
        title=f"{item.values['brand']} {fourth} {second} {item.type}, {first}, {third}",
        category=item.domain.category,
        price=round(price) - 0.01,
        store=item.values["brand"],
        average_rating=round(min(max(generator.normal(4.2, 0.3), 1.0), 5.0), 1),
        rating_number=int(1 + item.popularity * generator.integers(20, 200)),
        features=tuple(facts[slot].format(v=value) for slot, value in own.items()),
        description=(f"A {item.values['tier']} {item.type} for {item.domain.scenario}.",),
        details={"Department": item.domain.name} | {slot.capitalize(): value for slot, value in own.items()},
    )
