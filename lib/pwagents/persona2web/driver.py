"""A visit to the local web, one page open at a time: what agents see and do through either driver.

Going back opens the earlier address again, in both drivers: a page that was left behind is fetched anew.
"""

import re
from abc import ABC, abstractmethod
from urllib.parse import quote, unquote, urlsplit

from pwagents.errors import InfrastructureError
from pwagents.persona2web.page import Node, Page
from pwagents.persona2web.session import WebSession
from pwagents.persona2web.sites import PORTAL

START = f"http://{PORTAL}/"
WAIT_S = 15.0  # for a page
# Of the local web: no port, and no name that a browser knows to ask for by https alone.
_HOST = re.compile(r"(?=.{1,253}$)((?!xn--)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+test")


class ActionError(ValueError):
    """Why an action could not be carried out, in words for the agent."""


class Driver(ABC):
    """What both drivers share.

    Attributes:
        kind: "html" or "chromium".
        session: of the server, whose pages are visited; only judges read its state and log.
        page: the open page.
        site_fault: whether a page failed or did not come in time since the visit began.
    """

    kind: str
    session: WebSession
    page: Page

    def begin(self, session: WebSession, url: str = START) -> None:
        """Open a visit's first page, with nothing kept of the visit before.

        Raises:
            InfrastructureError: it does not come in time.
        """
        self.session, self.site_fault, self._past = session, False, []
        self._begin()
        try:
            self._load(url)
        except ActionError as error:
            raise InfrastructureError(f"{url}: {error}") from None
        self._read()

    def go_to(self, url: str) -> None:
        """Open an address; ``http://`` may be left out. Both drivers are given the same form of it."""
        address = url.strip() if "://" in url else f"http://{url.strip()}"
        try:
            parts = urlsplit(address)
        except ValueError:
            raise ActionError(f"{url!r} is no address") from None
        host, path = parts.netloc.lower(), unquote(parts.path) or "/"
        if parts.scheme != "http" or not _HOST.fullmatch(host) or {".", ".."} & set(path.split("/")):
            raise ActionError(f"{url!r} is no address of a website: one looks like http://{PORTAL}/")
        path = quote(path, safe="/:@!$&'()*+,;=~")
        query = quote(parts.query, safe="/%:@!$&()*+,;=?~")
        self._move(lambda: self._load(f"http://{host}{path}{'?' if query else ''}{query}"))

    def go_back(self) -> None:
        """Open the page before this one again."""
        if not self._past:
            raise ActionError("there is no page to go back to")
        url = self._past[-1]
        self._move(lambda: self._load(url))
        self._past = self._past[:-1] if self._past[-1] == url else self._past[:-2]

    def click(self, element_id: int) -> None:
        """Follow a link, press a button, choose a radio button or an option, tick a box."""
        node = self._node(element_id)
        if node.role == "option":
            self._choose(node)
            self._read()
        elif node.role in ("textbox", "searchbox", "combobox"):
            raise ActionError(
                f"{node.role} {element_id} is not for clicking: write into it or choose from it"
            )
        else:
            self._move(lambda: self._click(node))

    def type(self, element_id: int, text: str, enter: bool = False) -> None:
        """Replace what a text field holds, and press Enter if so wished."""
        node = self._node(element_id)
        if node.role not in ("textbox", "searchbox"):
            raise ActionError(f"{node.role} {element_id} takes no text")
        self._fill(node, " ".join(text.split()))
        if enter:
            self._move(lambda: self._enter(node))
        else:
            self._read()

    def select(self, element_id: int, text: str) -> None:
        """Choose the option with this text from a list."""
        node = self._node(element_id)
        if node.role != "combobox":
            raise ActionError(f"{node.role} {element_id} has no options")
        wanted = " ".join(text.casefold().split())
        for option in node.children:
            if option.name.casefold() == wanted:
                self._choose(option)
                self._read()
                return
        names = ", ".join(option.name for option in node.children)
        raise ActionError(f"{element_id} has no option {text!r}; it has: {names}")

    def _node(self, element_id: int) -> Node:
        if element_id not in self.page.elements:
            raise ActionError(f"there is no element [{element_id}] on this page")
        return self.page.elements[element_id]

    def _move(self, action) -> None:
        before = self.page.url
        action()
        self._read()
        if not self.page.is_html:
            self._load(before)
            self._read()
            raise ActionError(f"that address is no page; {before} is open again")
        if self.page.url != before:
            self._past.append(before)

    def _read(self) -> None:
        self._look()
        self.site_fault |= self.page.status >= 500

    def _late(self) -> None:
        """A page did not come in time."""
        self.site_fault = True
        raise ActionError(f"the page did not come within {WAIT_S:g} seconds")

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _load(self, url: str) -> None: ...

    @abstractmethod
    def _click(self, node: Node) -> None: ...

    @abstractmethod
    def _fill(self, node: Node, text: str) -> None: ...

    @abstractmethod
    def _enter(self, node: Node) -> None:
        """Press Enter in a text field."""

    @abstractmethod
    def _choose(self, option: Node) -> None: ...

    @abstractmethod
    def _look(self) -> None:
        """Set ``page`` to what is now open."""
