"""The sub-domains of ``domains.yaml``: what users look for, on which sites, and what shows a preference.

Also here: what a value means, that is, when an item meets it (:func:`fits`) and when a text names it
(:func:`names_value`); and the sites with what they offer, made from a seed. On each site of a sub-domain
every pair of wanted values of two facets is met by some item, so that which site is right is for the history
to tell: a wrong one has fitting items, too.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np

from pwagents.persona2web.world.types import Domain, Facet, Item, Site, Value, value_text
from pwagents.seeds import rng
from pwagents.words import read_yaml

HOURS = {"morning": (6, 12), "afternoon": (12, 17), "evening": (17, 22)}  # from, and before
_WITHIN = (0.35, 0.55, 0.75, 0.92)  # where in the range of a value its example numbers lie


@cache
def domains() -> dict[str, Domain]:
    """Return each sub-domain by name, in the order of the file."""
    return {name: _domain(name, entry) for name, entry in _file()["domains"].items()}


@cache
def site_kinds() -> dict[str, tuple[str, str, str]]:
    """Return by host the name, template and skin of each site."""
    return {host: tuple(kind) for host, kind in _file()["sites"].items()}


def titles(domain: str) -> list[str]:
    """Return all titles that items of a sub-domain can have."""
    return [f"{first} {last}" for first in _file()["first"] for last in _file()["domains"][domain]["last"]]


def fact_numbers(domain: str) -> range:
    """Return the numbers that a look-up in a sub-domain can have for an answer; none without look-ups."""
    return range(*_file()["domains"][domain].get("fact_numbers", (0,)))


@cache
def facet_of(domain: str, name: str) -> Facet:
    """Return a facet by its name."""
    return next(facet for facet in domains()[domain].facets if facet.name == name)


def fits(facet: Facet, wanted: Value, value: Value) -> bool:
    """Return whether an item with ``value`` is what who wants ``wanted`` asked for."""
    if facet.kind == "cap":
        return value <= wanted
    if facet.kind == "floor":
        return value >= wanted
    if facet.kind == "window":
        start, end = HOURS[wanted]
        return start <= value < end
    return value == wanted


def item_fits(item: Item, wanted: dict[str, Value]) -> bool:
    """Return whether an item meets all wanted values (by facet)."""
    return all(fits(facet_of(item.domain, name), value, item.values[name]) for name, value in wanted.items())


def names_value(text: str, value: Value) -> bool:
    """Return whether a text holds the value: whole words in any case, a number as that number."""
    return values_pattern((value,)).search(text) is not None


@cache
def values_pattern(values: tuple[Value, ...]) -> re.Pattern[str]:
    """Return what finds any of the values in a text, as :func:`names_value` does."""
    return re.compile("|".join(map(_one_pattern, values)), re.IGNORECASE)


def _one_pattern(value: Value) -> str:
    text = re.escape(value_text(value))
    if isinstance(value, str):
        return rf"(?<!\w){text}(?!\w)"
    return rf"(?<![\d.,:]){text}(?:\.0+)?(?![\d:]|[.,]\d)"


def value_range(facet: Facet, value: Value) -> tuple[float, float]:
    """Return the numbers (from, and before) that point to one value of a cap, floor or window."""
    if facet.kind == "window":
        return HOURS[value]
    place = facet.values.index(value)
    if facet.kind == "floor":
        return value, facet.values[place + 1] if place + 1 < len(facet.values) else 5.0
    return facet.values[place - 1] if place else value / 2, value


def _file() -> dict[str, Any]:
    return read_yaml(__package__, "domains.yaml")


def _domain(name: str, entry: dict[str, Any]) -> Domain:
    facets = tuple(_facet(facet, values) for facet, values in entry["facets"].items())
    fields = {key: value for key, value in entry.items() if key not in ("facets", "last", "fact_numbers")}
    return Domain(name=name, facets=facets, **({"fact": ""} | fields))


def _facet(name: str, entry: dict[str, Any]) -> Facet:
    usual = f"{entry['stated'].split()[0]} my usual {name}"
    defaults = {"kind": "choice" if isinstance(entry["values"], dict) else "cap", "usual": usual}
    fields = defaults | {key: value for key, value in entry.items() if key not in ("values", "phrases")}
    bare = Facet(name=name, values=tuple(entry["values"]), evidence={}, **fields)
    if bare.kind == "choice":
        evidence = {value: tuple(text.split("; ")) for value, text in entry["values"].items()}
    else:
        evidence = {value_text(v): tuple(_number_phrases(bare, v, entry["phrases"])) for v in bare.values}
    return bare.model_copy(update={"evidence": evidence})


def _number_phrases(facet: Facet, value: Value, phrases: list[str]) -> Iterator[str]:
    start, end = value_range(facet, value)
    for phrase in phrases:
        for share in _WITHIN:
            number = start + share * (end - start)
            if facet.kind == "window":
                yield phrase.format(f"{int(number):02d}:{int(number * 60) % 60 // 5 * 5:02d}")
            elif facet.kind == "floor":
                yield phrase.format(f"{start + 0.1 + 0.1 * _WITHIN.index(share):.1f}")
            else:
                yield phrase.format(f"{number:.2f}" if "$" in phrase else f"{number:.0f}")


@cache
def make_sites(seed: int, edition: int = 0) -> dict[str, Site]:
    """Return each site, with all its items, by its host.

    Edition 0 is today's web. Another one is the web some months later: the same sites with other skins,
    labels, titles, prices and order. For each item of today one has the values that are wanted of it, so that
    every task can still be done.
    """
    sites, kinds = {}, site_kinds()
    for host, (name, template, _) in kinds.items():
        # Sites of a template change places: skins and labels go around.
        alike = [each for each, kind in kinds.items() if kind[1] == template]
        place, items, labels = alike.index(host) + edition, [], {}
        sold = [domain for domain in domains().values() if host in domain.hosts]
        for domain in sold:
            labels |= {facet.name: facet.labels[place % len(facet.labels)] for facet in domain.facets}
            today = rng(seed, "items", host, domain.name, "0")
            rows = _rows(domain, today)
            later = rng(seed, "items", host, domain.name, str(edition))
            items += _items(domain, host, rows, later if edition else today)
        skin, names = kinds[alike[place % len(alike)]][2], tuple(domain.name for domain in sold)
        about = {"name": name, "template": template, "skin": skin, "labels": labels}
        sites[host] = Site(host=host, domains=names, items=tuple(items), **about)
    return sites


def _items(
    domain: Domain, host: str, rows: list[dict[str, Value | None]], generator: np.random.Generator
) -> Iterator[Item]:
    names = generator.permutation(titles(domain.name))[: len(rows)]
    facts = generator.permutation(fact_numbers(domain.name))[: len(rows)]
    stem = f"{host.removesuffix('.test')}-{domain.name.replace(' ', '-')}"
    for i in generator.permutation(len(rows)):
        values = {facet.name: _value(facet, rows[i][facet.name], generator) for facet in domain.facets}
        about = {"item_id": f"{stem}-{i + 1}", "title": str(names[i]), "values": values}
        yield Item(host=host, domain=domain.name, fact=str(facts[i]) if domain.fact else "", **about)


def _rows(domain: Domain, generator: np.random.Generator) -> list[dict[str, Value | None]]:
    """Return for each item, by facet, the wanted value that its own points to (None: to no wanted value).

    Every pair of values of two facets is in some row: each row takes the first pair that is still missing,
    and values drawn at random for the other facets.
    """
    # Caps and floors can also be missed by all, or every item would meet the widest.
    values = {f.name: (*f.values, None) if f.kind in ("cap", "floor") else f.values for f in domain.facets}
    missing = [{a: x, b: y} for a, b in combinations(values, 2) for x, y in product(values[a], values[b])]
    generator.shuffle(missing)
    rows = []
    while missing:
        drawn = {name: choices[generator.integers(len(choices))] for name, choices in values.items()}
        rows.append(drawn | missing[0])
        missing = [pair for pair in missing if pair.items() - rows[-1].items()]
    return rows


def _value(facet: Facet, wanted: Value | None, generator: np.random.Generator) -> Value:
    """Return what the item has: a number in the range of ``wanted``, or beyond all wanted ones."""
    if facet.kind == "choice":
        return wanted
    if facet.kind == "window":
        return float(generator.integers(*value_range(facet, wanted)))
    if facet.kind == "floor":
        start, end = value_range(facet, wanted) if wanted else (facet.values[0] - 1, facet.values[0] - 0.1)
        return round(float(generator.uniform(start, end - 0.1)), 1)
    start, end = value_range(facet, wanted) if wanted else (facet.values[-1] + 1, 1.6 * facet.values[-1])
    number = float(generator.uniform(start + 0.05 * (end - start), end))
    return round(number, 2) if "$" in facet.stated else float(int(number) + (wanted is None))
