"""The local web: every page of every site, as a function from a visitor's request to a reply.

No network is needed here: :mod:`pwagents.persona2web.serve` puts it behind a port, for a browser, and
:mod:`pwagents.persona2web.html_driver` calls it in process. All hosts end in ``.test``, a name that no real
site can have; pages hold no script, and say so to the browser.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pwagents.persona2web import pages
from pwagents.persona2web.domains import domains
from pwagents.persona2web.filters import BadRequest
from pwagents.persona2web.session import WebSession
from pwagents.persona2web.types import Domain, Request, Site
from pwagents.persona2web.visits import PAGES, PageError, Reply, Visit
from pwagents.seeds import rng

PORTAL = "start.test"  # where every episode begins: it lists and searches the sites
# The clock of visitors without a task; tasks have their own, when the histories end.
VISITORS_NOW = int(datetime(2026, 3, 2, 9, 0, tzinfo=UTC).timestamp() * 1000)
MAX_SESSIONS = 10_000  # the oldest makes room
MAX_REQUESTS = 10_000  # of a visitor, all of which are kept
SLOW_S = 30.0  # how long a delayed reply takes: longer than drivers wait


class LocalWeb:
    """All sites and their visitors. Safe for threads, as long as a session is one visitor's at a time."""

    def __init__(self, sites: Iterable[Site]):
        self.sites = {site.host: site for site in sites}
        for site in self.sites.values():
            pages.check_site(site, _departments(site))
        self._sessions: OrderedDict[str, WebSession] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, now: int = VISITORS_NOW, *, faults: float = 0.0, seed: int = 0) -> WebSession:
        """A new visitor, whose pages tell the time ``now`` (ms since 1970)."""
        session = WebSession(now, faults, seed)
        with self._lock:
            self._sessions[session.session_id] = session
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def end(self, session: WebSession) -> None:
        """Forget a visitor: further requests with its cookie get a page that says the session has expired."""
        with self._lock:
            self._sessions.pop(session.session_id, None)

    def handle(
        self,
        session_id: str | None,
        method: str,
        host: str,
        path: str,
        params: Mapping[str, str],
        suffix: str = "",
    ) -> Reply:
        """The reply to one request; whatever is wrong with it is a page with a status of 4xx.

        Args:
            session_id: the visitor's cookie; None where there is none: a new session begins.
            host: without a port.
            params: of the address (GET) or of the form's body (POST).
            suffix: what stands behind hosts in links (see :func:`pwagents.persona2web.serve.split_host`).
        """
        if path == "/style.css":
            return Reply(200, pages.style(), media_type="text/css")
        begun = self.begin() if session_id is None else None
        session = begun or self._sessions.get(session_id)
        reply = self._reply(session, method, host.casefold() or "(no host)", path, params, suffix)
        reply.session_id = begun.session_id if begun else ""
        return reply

    def refuse(self, status: int, text: str, host: str, suffix: str = "") -> Reply:
        """A page for a request that cannot be handled at all."""
        return Reply(status, pages.message(status, text, self.sites.get(host), None, suffix))

    def _reply(self, session, method, host, path, params, suffix) -> Reply:
        site, visit = self.sites.get(host), None
        try:
            if session is None:
                raise PageError(401, "Your session has expired. What you left in carts and drafts is gone.")
            if len(session.log) >= MAX_REQUESTS:
                raise PageError(429, "That is enough for one visit.")
            if host == PORTAL:
                reply = self._portal(method, path, params, session, suffix)
            else:
                _fail_by_chance(session)
                if site is None:
                    raise PageError(404, f"There is no website called {host[:80]}.")
                visit = Visit(site, _departments(site), session, params, suffix)
                reply = self._site(visit, method, path)
        except BadRequest as error:
            reply = Reply(400, pages.message(400, str(error), site, session, suffix))
        except PageError as error:
            page = pages.message(error.status, error.message, site, session, suffix)
            reply = Reply(error.status, page, delay_s=error.delay_s)
        if session is not None and len(session.log) < MAX_REQUESTS:
            session.log.append(_logged(visit, host, path, params, reply.status))
        return reply

    def _portal(self, method: str, path: str, params, session: WebSession, suffix: str) -> Reply:
        if path != "/":
            raise PageError(404, "There is no such page here.")
        if method != "GET":
            raise PageError(405, "This page takes no such request.")
        words = " ".join(params.get("q", "").split())
        return Reply(200, pages.portal(self.sites.values(), words[:200], session, suffix))

    def _site(self, visit: Visit, method: str, path: str) -> Reply:
        first, _, rest = path.strip("/").partition("/")
        page = PAGES.get((method, f"{first}/" if rest else first))
        if page is None:
            if any(name == (f"{first}/" if rest else first) for _, name in PAGES):
                raise PageError(405, "This page takes no such request.")
            raise PageError(404, f"There is no such page at {visit.site.name}.")
        return page(visit, rest)


def _departments(site: Site) -> list[Domain]:
    return [domains()[name] for name in site.domains]


def _fail_by_chance(session: WebSession) -> None:
    """Fail, at once or after too long, at the session's share of requests; by seed and turn.

    Raises:
        PageError: this request is one of them.
    """
    if not session.faults:
        return
    draws = rng(session.seed, "fault", str(len(session.log))).random(2)
    if draws[0] < session.faults:
        raise PageError(503, "This page is having trouble.", delay_s=0.0 if draws[1] < 0.5 else SLOW_S)


def _logged(visit: Visit | None, host: str, path: str, params, status: int) -> Request:
    found = {}
    if visit is not None and status < 400:
        found = {
            "domain": visit.domain,
            "applied": dict(visit.applied),
            "shown": visit.shown,
            "operation": visit.operation,
            "item_id": visit.item_id,
        }
    return Request(host=host, path=path, params=dict(params), status=status, **found)
