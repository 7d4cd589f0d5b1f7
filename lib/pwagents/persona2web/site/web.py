"""The local web: every page of every site, as a function from a visitor's request to a reply.

No network is needed here: :mod:`pwagents.persona2web.site.serve` puts it behind a port, and the driver that
needs no browser calls it in process. All hosts end in ``.test``, a name that no real site can have.

A session is kept in the server's memory. An agent never sees it: whether a task was solved is read in
process, and never asked over HTTP.
"""

import secrets
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pwagents.persona2web.site.pages import PAGES, Call, PageError, Reply, portal, render, style
from pwagents.persona2web.world.domains import domains, item_fits, names_value
from pwagents.persona2web.world.queries import COMPARED
from pwagents.persona2web.world.types import PORTAL, Goal, Operation, Request, Site
from pwagents.seeds import rng

# The clock of visitors without a task; tasks have their own, when the histories end.
VISITORS_NOW = int(datetime(2026, 3, 2, 9, 0, tzinfo=UTC).timestamp() * 1000)
MAX_SESSIONS = 10_000  # the oldest makes room
MAX_REQUESTS = 10_000  # of a visitor, all of which are kept
SLOW_S = 30.0  # how long a delayed reply takes: longer than drivers wait


@dataclass
class SiteState:
    """What a session left on one site: ids of items. ``listed`` is its latest page of results."""

    cart: list[str] = field(default_factory=list)
    bookings: list[str] = field(default_factory=list)  # drafts: nothing is paid
    compared: list[str] = field(default_factory=list)
    listed: tuple[str, ...] = ()
    viewed: list[str] = field(default_factory=list)

    def held(self, operation: Operation) -> list[str]:
        """Return what a cart, booking or comparison is kept in."""
        return {"cart": self.cart, "booking": self.bookings, "compare": self.compared}[operation]


@dataclass
class WebSession:
    """The state and the log of one visitor.

    Attributes:
        faults: share of its requests to sites, drawn by ``seed``, that fail or take too long (the portal
            always answers).
        session_id: fit for a host name; a guess must not open it.
    """

    now: int  # the fixed clock of its pages, ms since 1970
    faults: float = 0.0
    seed: int = 0
    session_id: str = field(default_factory=lambda: secrets.token_hex(16))
    visitor: str = "Guest"
    sites: dict[str, SiteState] = field(default_factory=lambda: defaultdict(SiteState))  # by host
    listing: str = ""  # the host of the latest page of results
    paid: bool = False  # whether a payment was confirmed, which no task asks for
    log: list[Request] = field(default_factory=list)


class LocalWeb:
    """All sites and their visitors. Safe for threads, as long as a session is one visitor's at a time."""

    def __init__(self, sites: Iterable[Site]):
        self.sites = {site.host: site for site in sites}
        self._sessions: OrderedDict[str, WebSession] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, now: int = VISITORS_NOW, *, faults: float = 0.0, seed: int = 0) -> WebSession:
        """Begin the session of a new visitor, whose pages tell the time ``now`` (ms since 1970)."""
        session = WebSession(now, faults, seed)
        with self._lock:
            self._sessions[session.session_id] = session
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def end(self, session: WebSession) -> None:
        """Forget a visitor: further requests get a page that says the session has expired."""
        with self._lock:
            self._sessions.pop(session.session_id, None)

    def handle(
        self, session_id: str | None, method: str, host: str, path: str, params: Mapping[str, str], suffix=""
    ) -> Reply:
        """Return the reply to one request; whatever is wrong with it is a page with a status of 4xx.

        Without ``session_id`` a new session begins. ``params`` are the address's (GET) or the form's (POST);
        ``suffix`` is what stands behind hosts in links (:func:`pwagents.persona2web.site.serve.split_host`).
        """
        if path == "/style.css":
            return Reply(200, style(), media_type="text/css")
        begun = self.begin() if session_id is None else None
        session, host = begun or self._sessions.get(session_id), host.casefold() or "(no host)"
        call = None
        try:
            if session is None:
                raise PageError(401, "Your session has expired. What you left in carts and drafts is gone.")
            if len(session.log) >= MAX_REQUESTS:
                raise PageError(429, "That is enough for one visit.")
            if host == PORTAL:
                if path != "/":
                    raise PageError(404, "There is no such page here.")
                if method != "GET":
                    raise PageError(405, "This page takes no such request.")
                words = " ".join(params.get("q", "").split())[:200]
                reply = Reply(200, portal(self.sites.values(), words, session, suffix))
            else:
                if session.faults:  # some fail, at once or after too long; by seed and turn
                    draws = rng(session.seed, "fault", str(len(session.log))).random(2)
                    if draws[0] < session.faults:
                        wait = 0.0 if draws[1] < 0.5 else SLOW_S
                        raise PageError(503, "This page is having trouble.", delay_s=wait)
                if host not in self.sites:
                    raise PageError(404, f"There is no website called {host[:80]}.")
                site = self.sites[host]
                departments = [domains()[name] for name in site.domains]
                call = Call(site, session, session.sites[host], departments, params, suffix)
                first, _, rest = path.strip("/").partition("/")
                name = f"{first}/" if rest else first
                if (method, name) not in PAGES:
                    if any(name == each for _, each in PAGES):
                        raise PageError(405, "This page takes no such request.")
                    raise PageError(404, f"There is no such page at {site.name}.")
                page, about = PAGES[method, name]
                reply = page(call, rest if about is None else about)
        except PageError as error:
            reply = self.refuse(error.status, error.message, host, suffix, session)
            reply.delay_s = error.delay_s
        if session is not None and len(session.log) < MAX_REQUESTS:
            found = {}
            if call is not None and reply.status < 400:
                names = ("domain", "applied", "shown", "operation", "item_id")
                found = {name: getattr(call, name) for name in names}
            session.log.append(
                Request(host=host, path=path, params=dict(params), status=reply.status, **found)
            )
        reply.session_id = begun.session_id if begun else ""
        return reply

    def refuse(
        self, status: int, text: str, host: str, suffix: str = "", session: WebSession | None = None
    ) -> Reply:
        """Return a page that says what is wrong with a request."""
        site = self.sites.get(host)
        page = render("message", str(status), site, session, suffix, status=status, text=text)
        return Reply(status, page)


def succeeded(session: WebSession, goal: Goal, site: Site, answer: str = "") -> bool:
    """Return whether the session's state is what the task comes to, and no more.

    All items that the goal is about meet all constraints and are on the right site. Carts and drafts, on all
    sites, hold nothing that the task does not ask for; nothing was paid for.

    - cart, booking: one item is in the cart, or among the drafts.
    - search: the latest page of results is the right site's, and all that it lists fits.
    - lookup: a fitting item's page was opened, and the answer names its fact, and no fact of an item that was
      opened and does not fit.
    - compare: two items are compared.
    """
    wanted = goal.stated | goal.masked
    fits = {item.item_id for item in site.items if item.domain == goal.domain and item_fits(item, wanted)}
    here = session.sites.get(site.host, SiteState())
    left = [held for state in session.sites.values() for held in (state.cart, state.bookings) if held]
    if goal.operation in ("cart", "booking"):
        held = here.held(goal.operation)
        done = left == [held] and len(held) == 1 and {*held} <= fits
    elif left:
        done = False
    elif goal.operation == "search":
        done = session.listing == site.host and bool(here.listed) and {*here.listed} <= fits
    elif goal.operation == "compare":
        done = len(here.compared) == COMPARED and {*here.compared} <= fits
    else:
        opened = [item for item in site.items if item.item_id in here.viewed and item.fact]
        right = {float(item.fact) for item in opened if item.item_id in fits}
        named = {fact for fact in (float(item.fact) for item in opened) if names_value(answer, fact)}
        done = bool(named) and named <= right
    return done and not session.paid
