"""The sites' pages: what each makes of a request, what it shows, and what it leaves in the visitor's session.

HTML by Jinja (``pages.html``) with escaping on, no script, one style sheet. Sites differ in template (what
they sell: words and pictures), in skin (how one filters: all at once beside, above or behind a link to the
results, step by step, or one tab at a time), in colors, and in what they call facets: forms name their
fields after those labels.
"""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from pwagents.persona2web.world.domains import domains, item_fits
from pwagents.persona2web.world.types import Domain, Facet, Item, Operation, Site, Value, value_text
from pwagents.words import read_yaml

PAGE_SIZE = 12
FEATURED = 2  # items of each department that a home page shows
A_STEP = 2  # facets on one page of the skin "steps"
MAX_WORDS = 200  # characters of a search
SORTED = {"cap": 1, "floor": -1}  # kinds of facets that results can be sorted by: up or down
PALETTES, PICTURES = 9, 10  # of style.css


class PageError(Exception):
    """A page that says what is wrong, to the visitor, after so many seconds."""

    def __init__(self, status: int, message: str, delay_s: float = 0.0):
        super().__init__(message)
        self.status, self.message, self.delay_s = status, message, delay_s


@dataclass
class Reply:
    """What the server answers: a page, or where to go instead (status 303), after so many seconds.

    ``session_id`` is that of a session that began with this request; the visitor's browser keeps it.
    """

    status: int
    body: str = ""
    media_type: str = "text/html"
    location: str = ""
    session_id: str = ""
    delay_s: float = 0.0


@dataclass
class Call:
    """One request at a site in a :class:`pwagents.persona2web.site.web.WebSession`, and what its page found.

    The latter goes into the log. ``suffix`` is what stands behind hosts in links.
    """

    site: Site
    session: "WebSession"  # noqa: F821 (its module imports this one)
    state: "SiteState"  # noqa: F821
    departments: Sequence[Domain]
    params: Mapping[str, str]
    suffix: str = ""
    domain: str = ""
    applied: Mapping[str, Value] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    operation: Operation | str = ""
    item_id: str = ""

    def item(self, item_id: str) -> Item:
        """Return an item of the site."""
        for item in self.site.items:
            if item.item_id == item_id:
                return item
        raise PageError(404, f"There is no “{item_id[:60]}” at {self.site.name}.")

    def render(self, page: str, title: str = "", **values) -> Reply:
        """Return a page of the site."""
        shared = {"domains": self.departments}
        return Reply(200, render(page, title, self.site, self.session, self.suffix, **shared, **values))

    def held(self, page: str, title: str, ids: Iterable[str], **values) -> Reply:
        """Return a page of the site that shows items."""
        return self.render(page, title, items=[self.item(item_id) for item_id in ids], **values)


# --- HTML ------------------------------------------------------------------------------------------------


@cache
def style() -> str:
    """Return the sites' style sheet."""
    return files(__package__).joinpath("style.css").read_text("utf-8")


@cache
def looks() -> dict:
    """Return the words and pictures of ``pages.yaml``."""
    return read_yaml(__package__, "pages.yaml")


@cache
def _template():
    spaces = {"trim_blocks": True, "lstrip_blocks": True}
    loader = PackageLoader(__package__, ".")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, **spaces)
    jinja.filters["slug"] = slug
    jinja.globals |= {"address": address, "facts": facts_of}
    jinja.globals["picture"] = lambda item: zlib.crc32(item.item_id.encode()) % PICTURES
    return jinja.get_template("pages.html")


def render(page: str, title: str, site: Site | None, session, suffix: str, **values) -> str:
    """Return a page of ``pages.html``: without a site the portal's, without a session a lost visitor's."""
    today = ""
    if session:  # in English whatever the machine's language: "Mon 2 Mar 2026, 09:00"
        time = datetime.fromtimestamp(session.now / 1000, UTC)
        day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[time.weekday()]
        month = "JanFebMarAprMayJunJulAugSepOctNovDec"[3 * time.month - 3 : 3 * time.month]
        today = f"{day} {time.day} {month} {time.year}, {time:%H:%M}"
    shared = {
        "page": page,
        "title": title,
        "site": site,
        "session": session,
        "suffix": suffix,
        "today": today,
    }
    shared |= {"palette": PALETTES, "look": None, "words": None, "state": None}
    shared |= {"domains": (), "department": None, "query": Query()}
    if site:
        shared["palette"] = zlib.crc32(site.host.encode()) % PALETTES
        shared |= {"look": looks()["templates"][site.template], "words": looks()["skins"][site.skin]}
        shared["state"] = session.sites[site.host] if session else None
    return _template().render(shared | values)


def portal(sites: Iterable[Site], words: str, session, suffix: str) -> str:
    """Return the page of all sites by kind, or of those whose name, kind or domains have a searched word."""
    wanted, groups = words.casefold().split(), {}
    for site in sites:
        kind = looks()["templates"][site.template]["kind"]
        text = f"{site.name} {site.host} {' '.join(site.domains)} {kind}".casefold()
        if not wanted or any(word in text for word in wanted):
            groups.setdefault(kind, []).append(site)
    return render("portal", "", None, session, suffix, groups=groups, searched=words, looks=looks())


# --- facets and values as visitors read them ---------------------------------------------------------------


def slug(text: str) -> str:
    """Return a text as it stands in an address: lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")


def address(path: str, params: Mapping[str, str]) -> str:
    """Return a path with parameters, empty ones left out."""
    text = urlencode({name: value for name, value in params.items() if value})
    return f"{path}?{text}" if text else path


def show_value(facet: Facet, value: Value, as_choice: bool = False) -> str:
    """Return a value with its unit: "$45", "14:30"; as a filter's choice "Up to $45", "4 stars or more"."""
    if isinstance(value, str):
        return value
    if facet.kind == "window":
        return f"{int(value):02d}:{round(value % 1 * 60):02d}"
    before, after = re.search(r"(\$?)\{\} ?(stars|minutes)?", facet.stated).groups("")
    number = f"{value:,.2f}" if before and value % 1 else f"{value:,g}"
    text = f"{before}{number} {after}".rstrip()
    return text if not as_choice else f"Up to {text}" if facet.kind == "cap" else f"{text} or more"


def facts_of(site: Site, item: Item) -> list[tuple[str, str]]:
    """Return what an item's page says of it: the site's label of each facet, and the item's value."""
    facets = domains()[item.domain].facets
    return [(site.labels[facet.name], show_value(facet, item.values[facet.name])) for facet in facets]


# --- what a visitor asks for --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """What a visitor asked a site for: a department (sub-domain; None: all), words, wanted values by facet.

    ``sort`` is a facet of numbers, or None for the site's own order.
    """

    domain: Domain | None = None
    words: str = ""
    applied: Mapping[str, Value] = field(default_factory=dict)
    sort: Facet | None = None
    page: int = 1

    def params(self, site: Site) -> dict[str, str]:
        """Return the parameters that :func:`read_query` makes this of, but for the page."""
        named = {slug(site.labels[name]): value_text(value) for name, value in self.applied.items()}
        department = slug(self.domain.name) if self.domain else ""
        sort = slug(site.labels[self.sort.name]) if self.sort else ""
        return {"in": department, "q": self.words, "sort": sort} | named


def read_query(call: Call) -> Query:
    """Return what the parameters of a request ask for; unknown parameters are ignored, wrong ones refused."""
    params, site = call.params, call.site
    words = " ".join(params.get("q", "").split())
    if len(words) > MAX_WORDS:
        raise PageError(400, f"A search has at most {MAX_WORDS} characters.")
    name, departments = params.get("in", ""), {slug(each.name): each for each in call.departments}
    if name and name not in departments:
        raise PageError(400, f"There is no department “{name[:60]}” here.")
    # Of one department alone, nobody needs to name it.
    domain = departments[name] if name else call.departments[0] if len(departments) == 1 else None
    applied: dict[str, Value] = {}
    by, sort = params.get("sort", ""), None
    for facet in domain.facets if domain else ():
        label = site.labels[facet.name]
        if by == slug(label) and facet.kind in SORTED:
            sort = facet
        if text := params.get(slug(label)):
            offered = {value_text(value): value for value in facet.values}
            if text not in offered:
                raise PageError(400, f"“{text[:60]}” is no choice for {label}.")
            applied[facet.name] = offered[text]
    if by and not sort:
        raise PageError(400, f"Results cannot be sorted by “{by[:60]}”.")
    page = params.get("page", "1")
    if not (page.isascii() and page.isdigit() and 1 <= int(page[:6]) < 1000):
        raise PageError(400, "There is no such page of results.")
    return Query(domain, words, applied, sort, int(page[:6]))


def find(query: Query, site: Site) -> list[Item]:
    """Return the site's items that meet the query, in the order they are listed.

    An item is found where any word of the search is in its title or its values; more words come first.
    """
    found, domain = list(site.items), query.domain
    if domain:
        found = [item for item in found if item.domain == domain.name and item_fits(item, query.applied)]
    if words := set(re.findall(r"\w+", query.words.casefold())):
        hits = {}
        for item in found:
            texts = [item.title, item.domain, *(v for v in item.values.values() if isinstance(v, str))]
            hits[item.item_id] = len(words & set(re.findall(r"\w+", " ".join(texts).casefold())))
        found = sorted((item for item in found if hits[item.item_id]), key=lambda item: -hits[item.item_id])
    if query.sort:
        found = sorted(found, key=lambda item: SORTED[query.sort.kind] * item.values[query.sort.name])
    return found


def filters_of(site: Site, query: Query) -> list[dict]:
    """Return each facet of a department with its choices, each with a link to the results of it."""
    kept, filters = query.params(site), []
    for facet in query.domain.facets if query.domain else ():
        label, chosen = site.labels[facet.name], query.applied.get(facet.name)
        name = slug(label)
        options = []
        for value in facet.values:
            said = {"value": value_text(value), "text": show_value(facet, value, as_choice=True)}
            href = address("/search", kept | {"open": name, name: said["value"]})
            options.append(said | {"chosen": value == chosen, "href": href})
        one = {"name": name, "label": label, "kind": facet.kind, "options": options}
        one["chosen"] = "" if chosen is None else value_text(chosen)
        one["text"] = "" if chosen is None else show_value(facet, chosen, as_choice=True)
        one["without"] = address("/search", kept | {name: ""})
        filters.append(one | {"open": address("/search", kept | {"open": name})})
    return filters


# --- the pages ------------------------------------------------------------------------------------------


def _home(call: Call, _: str) -> Reply:
    featured, shelves = [], []
    for domain in call.departments:
        featured += [item for item in call.site.items if item.domain == domain.name][:FEATURED]
        first = filters_of(call.site, Query(domain))[0]
        shelves.append({"domain": domain, "label": first["label"], "options": first["options"]})
    call.shown = tuple(item.item_id for item in featured)
    return call.render("home", featured=featured, shelves=shelves)


def _search(call: Call, _: str) -> Reply:
    site, query = call.site, read_query(call)
    found, filters, opened = find(query, site), filters_of(site, query), call.params.get("open", "")
    shown = found[(query.page - 1) * PAGE_SIZE : query.page * PAGE_SIZE]
    if query.page > 1 and not shown:
        raise PageError(404, "There is no such page of results.")
    call.domain, call.applied = query.domain.name if query.domain else "", dict(query.applied)
    call.state.listed = call.shown = tuple(item.item_id for item in shown)
    call.session.listing = site.host
    orders = [("", "Recommended")]
    for facet in query.domain.facets if query.domain else ():
        if facet.kind in SORTED:
            label, end = site.labels[facet.name], "lowest" if SORTED[facet.kind] > 0 else "highest"
            orders.append((slug(label), f"{label}: {end} first"))
    tab = next((one for one in filters if one["name"] == opened), filters[0] if filters else None)
    about = {"department": query.domain, "query": query, "params": query.params(site), "filters": filters}
    about |= {"opened": opened, "tab": tab, "orders": orders, "shown": shown, "total": len(found)}
    return call.render("results", "Results", pages=-(-len(found) // PAGE_SIZE), **about)


def _choose(call: Call, _: str) -> Reply:
    """Show one page of the form of the skin "steps"."""
    query, number = read_query(call), call.params.get("step", "1")
    filters = filters_of(call.site, query)
    steps = [filters[start : start + A_STEP] for start in range(0, len(filters), A_STEP)]
    if number not in map(str, range(1, len(steps) + 1)):
        raise PageError(400, "There is no such step.")
    step, params = int(number), query.params(call.site)
    now = steps[step - 1]
    asked = {one["name"] for one in now}
    kept = {name: value for name, value in params.items() if value and name not in asked}
    about = {"now": now, "kept": kept, "step": step, "steps": len(steps), "params": params}
    return call.render("choices", f"Step {step} of {len(steps)}", department=query.domain, **about)


def _item(call: Call, item_id: str) -> Reply:
    item = call.item(item_id)
    call.shown, call.item_id, call.domain = (item.item_id,), item.item_id, item.domain
    if item.item_id not in call.state.viewed:
        call.state.viewed.append(item.item_id)
    others = [other for other in call.site.items if other.domain == item.domain and other != item]
    near = sorted(others, key=lambda other: -sum(other.values[n] == v for n, v in item.values.items()))
    return call.render("item", item.title, item=item, domain=domains()[item.domain], near=near[:3])


def _add(call: Call, operation: Operation) -> Reply:
    """Put an item into the cart, the drafts or the comparison."""
    item = call.item(call.params.get("item", ""))
    if operation not in domains()[item.domain].operations:
        raise PageError(404, f"There is no such page at {call.site.name}.")
    call.operation, call.item_id, call.domain = operation, item.item_id, item.domain
    held = call.state.held(operation)
    if item.item_id not in held:
        held.append(item.item_id)
    return Reply(303, location=_PAGE_OF[operation])


def _remove(call: Call, operation: Operation) -> Reply:
    item, held = call.item(call.params.get("item", "")), call.state.held(operation)
    if item.item_id not in held:
        raise PageError(404, f"“{item.title}” is not there any more.")
    held.remove(item.item_id)
    return Reply(303, location=_PAGE_OF[operation])


def _held(call: Call, operation: Operation) -> Reply:
    """Show what the visitor put into the cart, the drafts or the comparison."""
    if not any(operation in domain.operations for domain in call.departments):
        raise PageError(404, f"There is no such page at {call.site.name}.")
    held, words = call.state.held(operation), looks()["skins"][call.site.skin]
    if operation != "compare":
        page = _PAGE_OF[operation].strip("/")
        return call.held(page, words[page], held)
    call.shown, rows = tuple(held), {}
    for item_id in held:
        for label, text in facts_of(call.site, call.item(item_id)):
            rows.setdefault(label, {})[item_id] = text
    return call.held("compare", "Compare", held, rows=rows)


def _book(call: Call, item_id: str) -> Reply:
    item = call.item(item_id)
    if "booking" not in domains()[item.domain].operations:
        raise PageError(404, f"There is no such page at {call.site.name}.")
    return call.held("book", looks()["skins"][call.site.skin]["book"], [item_id], item=item)


def _account(call: Call, method: str) -> Reply:
    if method == "GET":
        return call.held("account", "Account", call.state.viewed[-5:][::-1])
    call.session.visitor = " ".join(call.params.get("name", "").split())[:80] or "Guest"
    return Reply(303, location="/account")


def _pay(call: Call, method: str) -> Reply:
    held = [*call.state.cart, *call.state.bookings]
    if not held:
        raise PageError(404, "There is nothing to pay for.")
    if method == "GET":
        return call.held("pay", "Payment", held)
    call.session.paid = True
    return call.render("paid", "Thank you")


_PAGE_OF = {"cart": "/cart", "booking": "/bookings", "compare": "/compare"}
# By method and first part of the path; a slash where an item follows. Each gets what stands here behind it,
# or else the rest of the path.
_read = {"": _home, "search": _search, "choose": _choose, "item/": _item, "book/": _book}
PAGES = {("GET", name): (page, None) for name, page in _read.items()}
for _method in ("GET", "POST"):
    PAGES |= {(_method, "account"): (_account, _method), (_method, "pay"): (_pay, _method)}
for _operation, _undo in {"cart": "uncart", "booking": "cancel", "compare": "uncompare"}.items():
    _page = _PAGE_OF[_operation].strip("/")
    PAGES |= {("GET", _page): (_held, _operation), ("POST", _page): (_add, _operation)}
    PAGES["POST", _undo] = (_remove, _operation)
