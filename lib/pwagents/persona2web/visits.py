"""The pages of one site: what each makes of a request, and what it leaves in the visitor's session."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pwagents.persona2web import pages
from pwagents.persona2web.filters import PAGE_SIZE, find, read_query
from pwagents.persona2web.session import SiteState, WebSession
from pwagents.persona2web.types import Domain, Item, Operation, Site

FEATURED = 2  # items of each department that a home page shows


@dataclass
class Reply:
    """What the server answers.

    Attributes:
        location: where to go instead; the status is then 303.
        session_id: of a session that was begun with this request; the visitor's browser keeps it.
        delay_s: how long the reply takes.
    """

    status: int
    body: str = ""
    location: str = ""
    session_id: str = ""
    delay_s: float = 0.0
    media_type: str = "text/html"


class PageError(Exception):
    """A request that gets a page which says what is wrong, after ``delay_s`` seconds."""

    def __init__(self, status: int, message: str, delay_s: float = 0.0):
        self.status, self.message, self.delay_s = status, message, delay_s
        super().__init__(message)


@dataclass
class Visit:
    """One request at a site, and what its page found out: this goes into the log."""

    site: Site
    domains: list[Domain]
    session: WebSession
    params: Mapping[str, str]
    suffix: str
    domain: str = ""
    applied: dict = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    operation: Operation | str = ""
    item_id: str = ""

    @property
    def state(self) -> SiteState:
        return self.session.sites[self.site.host]

    def item(self, item_id: str | None = None) -> Item:
        item_id = self.params.get("item", "") if item_id is None else item_id
        for item in self.site.items:
            if item.item_id == item_id:
                return item
        raise PageError(404, f"There is no “{item_id[:60]}” at {self.site.name}.")

    @property
    def operations(self) -> set[Operation]:
        """Of any department."""
        return {operation for domain in self.domains for operation in domain.operations}

    def domain_of(self, item: Item) -> Domain:
        return next(domain for domain in self.domains if domain.name == item.domain)


def _home(visit: Visit, _: str) -> Reply:
    featured = [
        item
        for domain in visit.domains
        for item in [item for item in visit.site.items if item.domain == domain.name][:FEATURED]
    ]
    visit.shown = tuple(item.item_id for item in featured)
    return Reply(200, pages.home(visit, featured))


def _search(visit: Visit, _: str) -> Reply:
    query = read_query(visit.params, visit.site, visit.domains)
    found = find(query, visit.site)
    shown = found[(query.page - 1) * PAGE_SIZE : query.page * PAGE_SIZE]
    if query.page > 1 and not shown:
        raise PageError(404, "There is no such page of results.")
    visit.domain = query.domain.name if query.domain else ""
    visit.applied, visit.shown = dict(query.applied), tuple(item.item_id for item in shown)
    visit.state.listed, visit.session.listing = visit.shown, visit.site.host
    return Reply(200, pages.results(visit, query, shown, len(found)))


def _choose(visit: Visit, _: str) -> Reply:
    query = read_query(visit.params, visit.site, visit.domains)
    return Reply(200, pages.choices(visit, query))


def _item(visit: Visit, item_id: str) -> Reply:
    item = visit.item(item_id)
    visit.shown, visit.item_id, visit.domain = (item.item_id,), item.item_id, item.domain
    if item.item_id not in visit.state.viewed:
        visit.state.viewed.append(item.item_id)
    return Reply(200, pages.item(visit, item))


def _offered(visit: Visit, operation: Operation, item: Item | None = None) -> None:
    if operation not in (visit.domain_of(item).operations if item else visit.operations):
        raise PageError(404, f"There is no such page at {visit.site.name}.")


def _add(visit: Visit, operation: Operation, held: list[str], page: str) -> Reply:
    item = visit.item()
    _offered(visit, operation, item)
    visit.operation, visit.item_id, visit.domain = operation, item.item_id, item.domain
    if item.item_id not in held:
        held.append(item.item_id)
    return Reply(303, location=page)


def _remove(visit: Visit, held: list[str], page: str) -> Reply:
    item = visit.item()
    if item.item_id not in held:
        raise PageError(404, f"“{item.title}” is not there any more.")
    held.remove(item.item_id)
    return Reply(303, location=page)


def _cart(visit: Visit, _: str) -> Reply:
    _offered(visit, "cart")
    return Reply(200, pages.cart(visit))


def _book(visit: Visit, item_id: str) -> Reply:
    item = visit.item(item_id)
    _offered(visit, "booking", item)
    return Reply(200, pages.book(visit, item))


def _bookings(visit: Visit, _: str) -> Reply:
    _offered(visit, "booking")
    return Reply(200, pages.bookings(visit))


def _compare(visit: Visit, _: str) -> Reply:
    _offered(visit, "compare")
    visit.shown = tuple(visit.state.compared)
    return Reply(200, pages.compare(visit))


def _account(visit: Visit, _: str) -> Reply:
    return Reply(200, pages.account(visit))


def _rename(visit: Visit, _: str) -> Reply:
    visit.session.visitor = " ".join(visit.params.get("name", "").split())[:80] or "Guest"
    return Reply(303, location="/account")


def _pay(visit: Visit, _: str) -> Reply:
    if not (visit.state.cart or visit.state.bookings):
        raise PageError(404, "There is nothing to pay for.")
    return Reply(200, pages.pay(visit))


def _confirm(visit: Visit, _: str) -> Reply:
    if not (visit.state.cart or visit.state.bookings):
        raise PageError(404, "There is nothing to pay for.")
    visit.session.paid = True
    return Reply(200, pages.paid(visit))


PAGES = {  # by method and first part of the path; a slash where an item follows
    ("GET", ""): _home,
    ("GET", "search"): _search,
    ("GET", "choose"): _choose,
    ("GET", "item/"): _item,
    ("GET", "cart"): _cart,
    ("POST", "cart"): lambda visit, _: _add(visit, "cart", visit.state.cart, "/cart"),
    ("POST", "uncart"): lambda visit, _: _remove(visit, visit.state.cart, "/cart"),
    ("GET", "book/"): _book,
    ("GET", "bookings"): _bookings,
    ("POST", "bookings"): lambda visit, _: _add(visit, "booking", visit.state.bookings, "/bookings"),
    ("POST", "cancel"): lambda visit, _: _remove(visit, visit.state.bookings, "/bookings"),
    ("GET", "compare"): _compare,
    ("POST", "compare"): lambda visit, _: _add(visit, "compare", visit.state.compared, "/compare"),
    ("POST", "uncompare"): lambda visit, _: _remove(visit, visit.state.compared, "/compare"),
    ("GET", "account"): _account,
    ("POST", "account"): _rename,
    ("GET", "pay"): _pay,
    ("POST", "pay"): _confirm,
}
