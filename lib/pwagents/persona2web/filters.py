"""What a page of results shows: wanted values of facets, search words, order, pages.

A site calls facets what it likes (``Site.labels``) and its forms name their fields after those words.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from pwagents.persona2web.domains import item_fits, value_text
from pwagents.persona2web.types import Domain, Facet, Item, Site, Value

PAGE_SIZE = 12
MAX_WORDS = 200  # characters of a search
RESERVED = {"in", "q", "sort", "page", "step", "open", "item"}  # fields that are no facets


class BadRequest(ValueError):
    """What a visitor sent makes no sense to the site; the message is for the visitor."""


@dataclass(frozen=True)
class Query:
    """What a visitor asked a site for.

    Attributes:
        domain: the department (sub-domain) that is looked through; None: all of the site's, without filters.
        applied: wanted values by facet.
        sort: a field's name, or empty: the site's own order.
    """

    domain: Domain | None = None
    words: str = ""
    applied: Mapping[str, Value] = field(default_factory=dict)
    sort: str = ""
    page: int = 1


def field_of(site: Site, facet: Facet) -> str:
    """The name of the facet's field in the site's forms: its label, made fit for an address."""
    return slug(site.labels[facet.name])


def slug(text: str) -> str:
    """A text in an address: lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")


def address(path: str, params: Mapping[str, str]) -> str:
    """A path with parameters, empty ones left out."""
    text = urlencode({name: value for name, value in params.items() if value})
    return f"{path}?{text}" if text else path


def read_query(params: Mapping[str, str], site: Site, domains: list[Domain]) -> Query:
    """What the parameters of a request ask for; unknown parameters are ignored.

    Args:
        domains: the site's departments; of one alone, nobody needs to name it.

    Raises:
        BadRequest: a value that the site does not offer, a page that is no number, a search that is too long.
    """
    words = " ".join(params.get("q", "").split())
    if len(words) > MAX_WORDS:
        raise BadRequest(f"A search has at most {MAX_WORDS} characters.")
    domain = read_department(params.get("in", ""), domains)
    applied: dict[str, Value] = {}
    for facet in domain.facets if domain else ():
        if text := params.get(field_of(site, facet)):
            offered = {value_text(value): value for value in facet.values}
            if text not in offered:
                raise BadRequest(f"“{text[:60]}” is no choice for {site.labels[facet.name]}.")
            applied[facet.name] = offered[text]
    sort, page = params.get("sort", ""), params.get("page", "1")
    if sort and sort not in {field_of(site, facet) for facet in (sortable(domain) if domain else ())}:
        raise BadRequest(f"Results cannot be sorted by “{sort[:60]}”.")
    if not (page.isascii() and page.isdigit() and 1 <= int(page[:6]) < 1000):
        raise BadRequest("There is no such page of results.")
    return Query(domain, words, applied, sort, int(page[:6]))


def params_of(site: Site, query: Query) -> dict[str, str]:
    """The parameters that :func:`read_query` makes ``query`` of, but for the page."""
    applied = {
        field_of(site, facet): value_text(query.applied[facet.name])
        for facet in (query.domain.facets if query.domain else ())
        if facet.name in query.applied
    }
    return {
        "in": slug(query.domain.name) if query.domain else "",
        "q": query.words,
        "sort": query.sort,
    } | applied


def read_department(name: str, domains: list[Domain]) -> Domain | None:
    """The department that a parameter names; None for all of several.

    Raises:
        BadRequest: the site has no such department.
    """
    if not name:
        return domains[0] if len(domains) == 1 else None
    for domain in domains:
        if slug(domain.name) == name:
            return domain
    raise BadRequest(f"There is no department “{name[:60]}” here.")


def sortable(domain: Domain) -> list[Facet]:
    """The facets that results can be sorted by: those that are numbers."""
    return [facet for facet in domain.facets if facet.kind in ("cap", "floor")]


def find(query: Query, site: Site) -> list[Item]:
    """The site's items that meet the query, in the order they are listed.

    An item is found where any word of the search is in its title or its values; more words come first.
    """
    found = [
        item
        for item in site.items
        if query.domain is None or (item.domain == query.domain.name and item_fits(item, query.applied))
    ]
    if words := set(_words(query.words)):
        hits = {item.item_id: len(words & set(_words(_item_text(item)))) for item in found}
        found = sorted((item for item in found if hits[item.item_id]), key=lambda item: -hits[item.item_id])
    for facet in sortable(query.domain) if query.sort else ():
        if query.sort == field_of(site, facet):
            sign = 1 if facet.kind == "cap" else -1
            found = sorted(found, key=lambda item, name=facet.name, sign=sign: sign * item.values[name])
    return found


def _item_text(item: Item) -> str:
    texts = (value for value in item.values.values() if isinstance(value, str))
    return " ".join([item.title, item.domain, *texts])


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
