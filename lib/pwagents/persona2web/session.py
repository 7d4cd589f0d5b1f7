"""One visit to the local web: what it left on each site, its log, and whether it reached a goal.

A session is kept in the server's memory and read in process. An agent never sees it: whether a task was
solved is never asked over HTTP.
"""

import secrets
from collections import defaultdict
from dataclasses import dataclass, field

from pwagents.persona2web.domains import item_fits, names_value
from pwagents.persona2web.types import Goal, Request, Site

COMPARED = 2  # items that a task of comparing asks for


@dataclass
class SiteState:
    """What a session left on one site: ids of items. ``listed`` is its latest page of results."""

    cart: list[str] = field(default_factory=list)
    bookings: list[str] = field(default_factory=list)  # drafts: nothing is paid
    compared: list[str] = field(default_factory=list)
    listed: tuple[str, ...] = ()
    viewed: list[str] = field(default_factory=list)


@dataclass
class WebSession:
    """The state and the log of one visitor.

    Attributes:
        now: the fixed clock of its pages, ms since 1970.
        sites: by host, where the visitor has been.
        listing: the host of the latest page of results.
        paid: whether a payment was confirmed, which no task asks for.
        faults: share of its requests to sites that fail or take too long (the portal always answers).
        seed: of those faults.
    """

    now: int
    faults: float = 0.0
    seed: int = 0
    session_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))  # a guess must not open it
    visitor: str = "Guest"
    sites: dict[str, SiteState] = field(default_factory=lambda: defaultdict(SiteState))
    listing: str = ""
    paid: bool = False
    log: list[Request] = field(default_factory=list)


def succeeded(session: WebSession, goal: Goal, site: Site, answer: str = "") -> bool:
    """Whether the session's state is what the task comes to, and no more.

    All items that the goal is about meet all constraints and are on the right site. Carts and drafts, on all
    sites, hold nothing that the task does not ask for; nothing was paid for.

    - cart, booking: one item is in the cart, or among the drafts.
    - search: the latest page of results is the right site's, and all that it lists fits.
    - lookup: a fitting item's page was opened, and the answer names its fact, and no fact of an item that was
      opened and does not fit.
    - compare: two items are compared.

    Args:
        site: the goal's.
        answer: what the agent said at the end; only look-ups read it.
    """
    wanted = goal.stated | goal.masked
    fits = {item.item_id for item in site.items if item.domain == goal.domain and item_fits(item, wanted)}
    here = session.sites.get(site.host, SiteState())
    left = [held for state in session.sites.values() for held in (state.cart, state.bookings) if held]
    if goal.operation in ("cart", "booking"):
        wanted_in = here.cart if goal.operation == "cart" else here.bookings
        done = left == [wanted_in] and len(wanted_in) == 1 and _all_fit(wanted_in, fits)
    elif left:
        done = False
    elif goal.operation == "search":
        done = session.listing == site.host and _all_fit(here.listed, fits)
    elif goal.operation == "lookup":
        done = _facts_right(answer, site, here.viewed, fits)
    else:
        done = len(here.compared) == COMPARED and _all_fit(here.compared, fits)
    return done and not session.paid


def _all_fit(ids, fits: set[str]) -> bool:
    return bool(ids) and set(ids) <= fits


def _facts_right(answer: str, site: Site, viewed: list[str], fits: set[str]) -> bool:
    facts = {item.item_id: float(item.fact) for item in site.items if item.item_id in viewed and item.fact}
    right = {fact for item_id, fact in facts.items() if item_id in fits}
    named = {fact for fact in facts.values() if names_value(answer, fact)}
    return bool(named) and named <= right
