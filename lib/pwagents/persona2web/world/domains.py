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

from pwagents.persona2web.world.types import Domain, Facet, Item, Site, Value
from pwagents.seeds import rng
from pwagents.words import read_yaml

HOURS = {"morning": (6, 12), "afternoon": (12, 17), "evening": (17, 22)}  # from, and before
_WITHIN = (0.35, 0.55, 0.75, 0.92)  # where in the range of a value its example numbers lie


@cache
def domains() -> dict[str, Domain]:
    """Name -> sub-domain, in the order of the file."""
    return {name: _domain(name, entry) for name, entry in _file()["domains"].items()}


def site_kinds() -> dict[str, tuple[str, str, str]]:
    """Host -> name, template and skin of each site."""
    return {host: tuple(kind) for host, kind in _file()["sites"].items()}


def titles(domain: str) -> list[str]:
    """All titles that items of a sub-domain can have."""
    return [f"{first} {last}" for first in _file()["first"] for last in _file()["domains"][domain]["last"]]


def fact_numbers(domain: str) -> range:
    """The numbers that a look-up in a sub-domain can have for an answer; none where it has no look-ups."""
    return range(*_file()["domains"][domain].get("fact_numbers", (0,)))


def facet_of(domain: str, name: str) -> Facet:
    """A facet by its name.

    Raises:
        KeyError: there is no such sub-domain, or it has no such facet.
    """
    return _facets(domain)[name]


@cache
def _facets(domain: str) -> dict[str, Facet]:
    return {facet.name: facet for facet in domains()[domain].facets}


def value_text(value: Value) -> str:
    """A value as pages and texts show it: numbers without needless zeros."""
    return value if isinstance(value, str) else f"{value:g}"


def fits(facet: Facet, wanted: Value, value: Value) -> bool:
    """Whether an item with ``value`` is what who wants ``wanted`` asked for."""
    if facet.kind == "cap":
        return value <= wanted
    if facet.kind == "floor":
        return value >= wanted
    if facet.kind == "window":
        start, end = HOURS[wanted]
        return start <= value < end
    return value == wanted


def item_fits(item: Item, wanted: dict[str, Value]) -> bool:
    """Whether an item meets all wanted values (by facet)."""
    return all(fits(facet_of(item.domain, name), value, item.values[name]) for name, value in wanted.items())


def names_value(text: str, value: Value) -> bool:
    """Whether a text holds the value as an exact string: whole words in any case, a number as that number."""
    return values_pattern((value,)).search(text) is not None


@cache
def values_pattern(values: tuple[Value, ...]) -> re.Pattern[str]:
    """What finds any of the values in a text, as :func:`names_value` does."""
    return re.compile("|".join(map(_one_pattern, values)), re.IGNORECASE)


def _one_pattern(value: Value) -> str:
    text = re.escape(value_text(value))
    if isinstance(value, str):
        return rf"(?<!\w){text}(?!\w)"
    return rf"(?<![\d.,:]){text}(?:\.0+)?(?![\d:]|[.,]\d)"


def value_range(facet: Facet, value: Value) -> tuple[float, float]:
    """The numbers (from, and before) that point to one value of a cap, floor or window."""
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
    """Host -> site, with all its items.

    Args:
        edition: 0 for today's web. Another one is the web some months later: the same sites with other skins,
            labels and stock.
    """
    kinds = site_kinds()
    skins = {host: _skin(host, edition) for host in kinds}
    return {
        host: Site(
            host=host,
            name=name,
            domains=tuple(domain.name for domain in domains().values() if host in domain.hosts),
            template=template,
            skin=skins[host],
            labels=dict(_labels(host, edition)),
            items=tuple(
                item
                for domain in domains().values()
                if host in domain.hosts
                for item in _items(domain, host, rng(seed, "items", host, domain.name, str(edition)))
            ),
        )
        for host, (name, template, _) in kinds.items()
    }


def _place(host: str) -> tuple[int, list[str]]:
    """A site's place among those of its template, and their skins."""
    kinds = site_kinds()
    alike = [each for each, kind in kinds.items() if kind[1] == kinds[host][1]]
    return alike.index(host), [kinds[each][2] for each in alike]


def _skin(host: str, edition: int) -> str:
    place, skins = _place(host)
    return skins[(place + edition) % len(skins)]


def _labels(host: str, edition: int) -> Iterator[tuple[str, str]]:
    place, _ = _place(host)
    for domain in domains().values():
        if host in domain.hosts:
            for facet in domain.facets:
                yield facet.name, facet.labels[(place + edition) % len(facet.labels)]


def _items(domain: Domain, host: str, generator: np.random.Generator) -> Iterator[Item]:
    rows = _rows(domain, generator)
    names = generator.permutation(titles(domain.name))[: len(rows)]
    facts = generator.permutation(fact_numbers(domain.name))[: len(rows)]
    stem = f"{host.removesuffix('.test')}-{domain.name.replace(' ', '-')}"
    for i in generator.permutation(len(rows)):
        values = {facet.name: _value(facet, rows[i][facet.name], generator) for facet in domain.facets}
        yield Item(
            item_id=f"{stem}-{i + 1}",
            host=host,
            domain=domain.name,
            title=str(names[i]),
            values=values,
            fact=str(facts[i]) if domain.fact else "",
        )


def _rows(domain: Domain, generator: np.random.Generator) -> list[dict[str, Value | None]]:
    """For each item, by facet, the wanted value that its own points to (None: to no wanted value).

    Every pair of values of two facets is in some row: each row takes the first pair that is still missing,
    and values drawn at random for the other facets.
    """
    values = {facet.name: _wanted(facet) for facet in domain.facets}
    missing = [{a: x, b: y} for a, b in combinations(values, 2) for x, y in product(values[a], values[b])]
    generator.shuffle(missing)
    rows = []
    while missing:
        drawn = {name: choices[generator.integers(len(choices))] for name, choices in values.items()}
        rows.append(drawn | missing[0])
        missing = [pair for pair in missing if pair.items() - rows[-1].items()]
    return rows


def _wanted(facet: Facet) -> tuple[Value | None, ...]:
    """The wanted values; caps and floors can also be missed by all, or every item would meet the widest."""
    return (*facet.values, None) if facet.kind in ("cap", "floor") else facet.values


def _value(facet: Facet, wanted: Value | None, generator: np.random.Generator) -> Value:
    """What the item has: a number in the range that points to ``wanted``, or beyond all wanted ones."""
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
