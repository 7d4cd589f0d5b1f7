"""A visit to the local web, one page open at a time: what agents see and do through either driver.

Here also the driver that needs no browser. It reads pages from their HTML and follows links and forms itself;
it calls the local web in process, faster than Chromium, and gives the same observations.

Going back opens the earlier address again, in both drivers: a page that was left behind is fetched anew.
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urljoin, urlsplit

from lxml.html import HtmlElement

from pwagents.errors import InfrastructureError
from pwagents.persona2web.browser.page import Node, Page, chosen_option, observe
from pwagents.persona2web.site.web import LocalWeb, WebSession
from pwagents.persona2web.world.types import PORTAL, Architecture

START = f"http://{PORTAL}/"
WAIT_S = 15.0  # for a page
# Of the local web: no port, and no name that a browser knows to ask for by https alone.
_HOST = re.compile(r"(?=.{1,253}$)((?!xn--)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+test")


class ActionError(ValueError):
    """Why an action could not be carried out, in words for the agent."""


class Driver:
    """What both drivers share.

    Each has methods of its own to open an address (``_load``), to click, fill in, press Enter and choose an
    option (``_click``, ``_fill``, ``_enter``, ``_choose``), all of which leave ``page`` as it is then.

    Attributes:
        session: of the server, whose pages are visited; only judges read its state and log.
        site_fault: whether a page failed or did not come in time since the visit began.
    """

    kind: str
    session: WebSession
    page: Page

    def begin(self, session: WebSession, url: str = START) -> None:
        """Open a visit's first page, with nothing kept of the visit before."""
        self.session, self.site_fault, self._past, self.page = session, False, [], None
        try:
            self._load(url)
        except ActionError as error:
            raise InfrastructureError(f"{url}: {error}") from None

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
        elif node.role in ("textbox", "searchbox", "combobox"):
            wrong = "is not for clicking: write into it or choose from it"
            raise ActionError(f"{node.role} {element_id} {wrong}")
        else:
            self._move(lambda: self._click(node))

    def type(self, element_id: int, text: str, enter: bool = False) -> None:
        """Replace what a text field holds, and press Enter if so wished."""
        node = self._node(element_id)
        if node.role not in ("textbox", "searchbox"):
            raise ActionError(f"{node.role} {element_id} takes no text")
        self._fill(node, " ".join(text.split()))
        if enter:
            self._move(lambda: self._enter(self.page.elements[element_id]))

    def select(self, element_id: int, text: str) -> None:
        """Choose the option with this text from a list."""
        node = self._node(element_id)
        if node.role != "combobox":
            raise ActionError(f"{node.role} {element_id} has no options")
        wanted = " ".join(text.casefold().split())
        for option in node.children:
            if option.name.casefold() == wanted:
                self._choose(option)
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
        if not self.page.is_html:
            self._load(before)
            raise ActionError(f"that address is no page; {before} is open again")
        if self.page.url != before:
            self._past.append(before)

    def _late(self) -> None:
        """Say that a page did not come in time."""
        self.site_fault = True
        raise ActionError(f"the page did not come within {WAIT_S:g} seconds")


@dataclass(eq=False)
class HtmlDriver(Driver):
    """Visits pages of ``web`` without a browser."""

    web: LocalWeb
    kind = "html"

    def __reduce__(self) -> tuple:
        """Return another driver, with no page open, for another process."""
        return HtmlDriver, (self.web,)

    def _load(self, url: str, form: dict[str, str] | None = None) -> None:
        """Open an address, or send a form to it."""
        parts = urlsplit(url)
        path, method = unquote(parts.path) or "/", "GET" if form is None else "POST"
        params = dict(parse_qsl(parts.query, keep_blank_values=True)) if form is None else form
        reply = self.web.handle(self.session.session_id, method, parts.hostname, path, params)
        if reply.delay_s > WAIT_S:
            self._late()
        if reply.location:  # after a form; it leads to a page
            self._load(urljoin(url, reply.location))
        else:
            self.page = Page(url, reply.status, reply.body, reply.media_type == "text/html")
            self.site_fault |= reply.status >= 500

    def _click(self, node: Node) -> None:
        element = node.element
        if node.role == "link":
            self._load(urljoin(self.page.url, element.get("href")))
        elif node.role == "button":
            self._submit(element)
        elif node.role == "checkbox":
            element.checked = not element.checked
            self.page.read()
        elif node.role == "radio":
            for other in next(element.iterancestors("form")).iter("input"):
                if other.get("name") == element.get("name"):
                    other.checked = other is element
            self.page.read()

    def _fill(self, node: Node, text: str) -> None:
        node.element.set("value", text)
        self.page.read()

    def _enter(self, node: Node) -> None:
        form = next(node.element.iterancestors("form"))
        self._submit(next(form.iter("button"), node.element))

    def _choose(self, option: Node) -> None:
        for other in option.element.getparent().iter("option"):
            other.attrib.pop("selected", None)
        option.element.set("selected", "")
        self.page.read()

    def _submit(self, button: HtmlElement) -> None:
        form, fields = next(button.iterancestors("form")), {}
        # Not lxml's form_values(): it sends "on" for a radio button whose value is empty.
        for element in form.iter("input", "select", "button"):
            if not (name := element.get("name")):
                continue
            if element.tag == "select":
                chosen = chosen_option(element)
                fields[name] = chosen.get("value", chosen.text_content().strip())
            elif element.tag == "button":
                fields |= {name: element.get("value", "")} if element is button else {}
            elif element.get("type") not in ("radio", "checkbox"):
                fields[name] = element.get("value", "")
            elif "checked" in element.attrib:
                fields[name] = element.get("value", "on")
        url = urljoin(self.page.url, button.get("formaction") or form.get("action", ""))
        if form.get("method") == "post":
            self._load(url, fields)
        else:  # as a browser puts fields into an address
            pairs = (f"{quote_plus(k, safe='*')}={quote_plus(v, safe='*')}" for k, v in fields.items())
            self._load(f"{url.split('?')[0]}?{'&'.join(pairs).replace('~', '%7E')}")


# --- actions as text ---------------------------------------------------------------------------------------

# Name -> its arguments; those after a "?" may be left out. Actions that touch no page (note, stop, plans, the
# memory) are the agent's own.
FORMS: dict[Architecture, dict[str, tuple[str, ...]]] = {
    "occam": {"click": ("id",), "type": ("id", "text", "?enter"), "go_back": ()}
}
FORMS["indexed"] = {"click": ("id",), "type": ("id", "text", "?enter"), "select": ("id", "text")}
FORMS["indexed"] |= {"go_to": ("text",), "go_back": ()}
_TEXT = r"(?:[^\[\]]|\[[^\[\]]*\])*"  # holds no bracket, or pairs of them
_WORDS = {"id": "[number]", "text": "[text]", "?enter": "[1 for Enter]"}


@dataclass
class Visit:
    """One architecture's view of a driver, on which a visit has begun."""

    driver: Driver
    architecture: Architecture

    def observe(self) -> str:
        """Return the open page as text."""
        return observe(self.driver.page, self.architecture)

    def act(self, action: str) -> str:
        """Do one action, such as ``click [12]``; return why it could not be done, or an empty text."""
        try:
            name, arguments = read_action(action, self.architecture)
            getattr(self.driver, name)(*arguments)
        except ActionError as error:
            return str(error)
        return ""


def read_action(action: str, architecture: Architecture) -> tuple[str, list[int | str | bool]]:
    """Return name and arguments of an action; ActionError says what was expected instead.

    The last argument of ``type`` says whether to press Enter: ``[1]`` or ``[0]``, which is taken if it is
    left out. A text may hold brackets, as long as each that is opened is closed.
    """
    action = action.encode("utf-8", "replace").decode()  # a model's JSON can hold half a character
    forms, (name, texts) = FORMS[architecture], split_action(action)
    shapes = {each: " ".join([each, *map(_WORDS.get, form)]) for each, form in forms.items()}
    if name not in forms:
        known = ", ".join(shapes.values())
        raise ActionError(f"{action.strip()[:200]!r} is no action; actions are: {known}")
    least = sum(not kind.startswith("?") for kind in forms[name])
    if not least <= len(texts) <= len(forms[name]):
        raise ActionError(f"{action.strip()[:200]!r} has {len(texts)} arguments; write {shapes[name]}")
    arguments: list[int | str | bool] = []
    for kind, text in zip(forms[name], map(str.strip, texts), strict=False):
        if kind != "text" and not re.fullmatch(r"[0-9]{1,6}", text):
            wrong = f"[{text[:60]}] is no number of an element" if kind == "id" else "Enter is [1] or [0]"
            raise ActionError(wrong)
        arguments.append(text if kind == "text" else int(text) if kind == "id" else text == "1")
    return name, arguments


def split_action(action: str) -> tuple[str, list[str]]:
    """Return name, in small letters, and bracketed texts: ``Type [3][blue]`` is ("type", ["3", "blue"]).

    The name is empty where the text has no such form.
    """
    found = re.fullmatch(rf"\s*(\w+)((?:\s*\[{_TEXT}\])*)\s*", action)
    return (found[1].lower(), re.findall(rf"\[({_TEXT})\]", found[2])) if found else ("", [])
