"""Facets and values as visitors of a site read them: with units, in facts of an item, in filters."""

import re

from pwagents.persona2web.domains import value_text
from pwagents.persona2web.filters import Query, address, field_of, params_of
from pwagents.persona2web.types import Domain, Facet, Item, Site, Value


def _measure(facet: Facet, value: Value) -> str:
    """A value with its unit: "$45", "4.5 stars", "14:30"."""
    if facet.kind == "window":
        return f"{int(value):02d}:{round(value % 1 * 60):02d}"
    if isinstance(value, str):
        return value
    before, after = re.search(r"(\$?)\{\} ?(stars|minutes)?", facet.stated).groups("")
    number = f"{value:,.2f}" if before and value % 1 else f"{value:,g}"
    return f"{before}{number} {after}".rstrip()


def wish_text(facet: Facet, value: Value) -> str:
    """How a filter shows a choice: "Up to $45", "4 stars or more", "morning"."""
    if isinstance(value, str):
        return value
    text = _measure(facet, value)
    return f"Up to {text}" if facet.kind == "cap" else f"{text} or more"


def facts_of(site: Site, domain: Domain, item: Item) -> list[tuple[str, str]]:
    """What an item's page says of it: the site's label of each facet, and the item's value."""
    return [(site.labels[facet.name], _measure(facet, item.values[facet.name])) for facet in domain.facets]


def filters_of(site: Site, query: Query) -> list[dict]:
    """Each facet of a department with its choices; ``href``: to the results with that choice as well."""
    kept, filters = params_of(site, query), []
    for facet in query.domain.facets if query.domain else ():
        name, chosen = field_of(site, facet), query.applied.get(facet.name)
        options = [
            {
                "value": value_text(value),
                "text": wish_text(facet, value),
                "chosen": value == chosen,
                "href": address("/search", kept | {"open": name, name: value_text(value)}),
            }
            for value in facet.values
        ]
        filters.append(
            {
                "name": name,
                "label": site.labels[facet.name],
                "kind": facet.kind,
                "options": options,
                "chosen": "" if chosen is None else value_text(chosen),
                "text": "" if chosen is None else wish_text(facet, chosen),
                "without": address("/search", kept | {name: ""}),
                "open": address("/search", kept | {"open": name}),
            }
        )
    return filters
