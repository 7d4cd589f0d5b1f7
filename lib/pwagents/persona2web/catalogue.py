"""The sites and what they offer, made from a seed.

On each site of a sub-domain every pair of wanted values of two facets is met by some item, so that which site
is right is for the history to tell: a wrong one has fitting items, too.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product

import numpy as np

from pwagents.persona2web.domains import domains, fact_numbers, site_kinds, titles, value_range
from pwagents.persona2web.types import Domain, Facet, Item, Site, Value
from pwagents.seeds import rng


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
