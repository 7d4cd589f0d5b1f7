"""The local web's pages as HTML: Jinja templates with escaping on, no script, one style sheet.

Sites differ in template (what they sell: words and pictures), in skin (how one filters: all at once
beside, above or behind a link to the results, step by step, or one tab at a time), in colours and in
labels of facets.
"""

import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from pwagents.persona2web.facet_text import facts_of, filters_of
from pwagents.persona2web.filters import (
    PAGE_SIZE,
    RESERVED,
    BadRequest,
    Query,
    address,
    field_of,
    params_of,
    slug,
    sortable,
)
from pwagents.persona2web.types import Domain, Item, Site
from pwagents.words import read_yaml

SKINS = ("sidebar", "topbar", "drawer", "steps", "tabs")
PALETTES, PICTURES = 9, 10  # of style.css
A_STEP = 2  # facets on one page of the skin "steps"


@cache
def style() -> str:
    return files("pwagents.persona2web").joinpath("templates/style.css").read_text("utf-8")


@cache
def looks() -> dict:
    """Words and pictures of pages.yaml."""
    return read_yaml("pwagents.persona2web", "pages.yaml")


@cache
def _jinja() -> Environment:
    jinja = Environment(
        loader=PackageLoader("pwagents.persona2web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters["slug"] = slug
    jinja.globals |= {
        "address": address,
        "picture": lambda item: zlib.crc32(item.item_id.encode()) % PICTURES,
    }
    return jinja


def check_site(site: Site, domains: list[Domain]) -> None:
    """Refuse a site that these pages cannot show.

    Raises:
        ValueError: names the site and what is wrong with it.
    """
    if site.template not in looks()["templates"]:
        raise ValueError(
            f"site {site.host}: template {site.template!r} is none of {list(looks()['templates'])}"
        )
    if site.skin not in SKINS:
        raise ValueError(f"site {site.host}: skin {site.skin!r} is none of {', '.join(SKINS)}")
    for domain in domains:
        fields = [field_of(site, facet) for facet in domain.facets]
        if len(set(fields)) < len(fields) or RESERVED & set(fields) or "" in fields:
            raise ValueError(f"site {site.host}, {domain.name}: labels {fields} are not different words")


def _render(name: str, site: Site | None, session, suffix: str, **values) -> str:
    palette = zlib.crc32(site.host.encode()) % PALETTES if site else PALETTES
    shared = {
        "site": site,
        "palette": palette,
        "look": looks()["templates"][site.template] if site else None,
        "words": looks()["skins"][site.skin] if site else None,
        "state": session.sites[site.host] if site and session else None,
        "domains": (),
        "operations": (),
        "department": None,
        "session": session,
        "suffix": suffix,
        "today": _day(session.now) if session else "",
    }
    return _jinja().get_template(name).render(shared | values)


def _day(now: int) -> str:
    """The clock as sites show it, in English whatever the machine's language: "Mon 2 Mar 2026, 09:00"."""
    time = datetime.fromtimestamp(now / 1000, UTC)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[time.weekday()]
    month = "JanFebMarAprMayJunJulAugSepOctNovDec"[3 * time.month - 3 : 3 * time.month]
    return f"{day} {time.day} {month} {time.year}, {time:%H:%M}"


def _page(name: str, visit, **values) -> str:
    def facts(item: Item) -> list[tuple[str, str]]:
        return facts_of(visit.site, visit.domain_of(item), item)

    shared = {"domains": visit.domains, "operations": visit.operations, "facts": facts}
    return _render(name, visit.site, visit.session, visit.suffix, **(shared | values))


def _held(visit, ids: Iterable[str]) -> list[Item]:
    return [visit.item(item_id) for item_id in ids]


def portal(sites: Iterable[Site], words: str, session, suffix: str) -> str:
    """All sites by kind; those of which a word of the search is in the name, the kind or the domain."""
    wanted = words.casefold().split()
    groups: dict[str, list[Site]] = {}
    for site in sites:
        kind = looks()["templates"][site.template]["kind"]
        text = f"{site.name} {site.host} {' '.join(site.domains)} {kind}".casefold()
        if not wanted or any(word in text for word in wanted):
            groups.setdefault(kind, []).append(site)
    return _render("portal.html", None, session, suffix, groups=groups, words_searched=words, looks=looks())


def home(visit, featured: list[Item]) -> str:
    """A welcome with popular items, and a shelf for each department: the values of its first facet."""
    shelves = []
    for domain in visit.domains:
        first = filters_of(visit.site, Query(domain))[0]
        shelves.append({"domain": domain, "label": first["label"], "options": first["options"]})
    return _page("home.html", visit, featured=featured, shelves=shelves)


def results(visit, query: Query, shown: list[Item], total: int) -> str:
    site, domain, filters = visit.site, query.domain, filters_of(visit.site, query)
    orders = [("", "Recommended")]
    for facet in sortable(domain) if domain else ():
        end = "lowest" if facet.kind == "cap" else "highest"
        orders.append((field_of(site, facet), f"{site.labels[facet.name]}: {end} first"))
    opened = visit.params.get("open", "")
    return _page(
        "results.html",
        visit,
        department=domain,
        query=query,
        params=params_of(site, query),
        filters=filters,
        opened=opened,
        tab=next((one for one in filters if one["name"] == opened), filters[0] if filters else None),
        orders=orders,
        shown=shown,
        total=total,
        pages=-(-total // PAGE_SIZE),
    )


def choices(visit, query: Query) -> str:
    """One page of the form of the skin "steps".

    Raises:
        BadRequest: no department is named, or there is no such step.
    """
    filters, number = filters_of(visit.site, query), visit.params.get("step", "1")
    steps = [filters[start : start + A_STEP] for start in range(0, len(filters), A_STEP)]
    if number not in map(str, range(1, len(steps) + 1)):
        raise BadRequest("There is no such step.")
    now, params = steps[int(number) - 1], params_of(visit.site, query)
    kept = {
        name: value for name, value in params.items() if value and name not in {one["name"] for one in now}
    }
    return _page(
        "choices.html",
        visit,
        department=query.domain,
        now=now,
        kept=kept,
        step=int(number),
        steps=len(steps),
        params=params,
    )


def item(visit, item: Item) -> str:
    domain = visit.domain_of(item)
    others = [other for other in visit.site.items if other.domain == item.domain and other != item]
    near = sorted(others, key=lambda other: -sum(other.values[n] == v for n, v in item.values.items()))
    return _page("item.html", visit, item=item, domain=domain, near=near[:3])


def cart(visit) -> str:
    return _page("cart.html", visit, items=_held(visit, visit.state.cart))


def book(visit, item: Item) -> str:
    return _page("book.html", visit, item=item)


def bookings(visit) -> str:
    return _page("bookings.html", visit, items=_held(visit, visit.state.bookings))


def compare(visit) -> str:
    held = _held(visit, visit.state.compared)
    rows: dict[str, dict[str, str]] = {}
    for item in held:
        for label, text in facts_of(visit.site, visit.domain_of(item), item):
            rows.setdefault(label, {})[item.item_id] = text
    return _page("compare.html", visit, items=held, rows=rows)


def account(visit) -> str:
    return _page("account.html", visit, viewed=_held(visit, visit.state.viewed[-5:][::-1]))


def pay(visit) -> str:
    return _page("pay.html", visit, items=_held(visit, [*visit.state.cart, *visit.state.bookings]))


def paid(visit) -> str:
    return _page("paid.html", visit)


def message(status: int, text: str, site: Site | None, session, suffix: str) -> str:
    """A page that says what is wrong with a request."""
    return _render("message.html", site, session, suffix, status=status, text=text)
