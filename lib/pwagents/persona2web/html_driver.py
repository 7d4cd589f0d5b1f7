"""The driver that needs no browser: it reads pages from their HTML and follows links and forms itself.

It calls the local web in process, faster than Chromium, and gives the same observations.
"""

from urllib.parse import parse_qsl, quote_plus, unquote, urljoin, urlsplit

from pwagents.persona2web import driver
from pwagents.persona2web.driver import Driver
from pwagents.persona2web.markup import Element, parse_html
from pwagents.persona2web.page import Node, Page
from pwagents.persona2web.sites import LocalWeb


class HtmlDriver(Driver):
    """Visits pages of ``web`` without a browser."""

    kind = "html"

    def __init__(self, web: LocalWeb):
        self.web = web

    def __reduce__(self) -> tuple:
        """For another process: another driver, with no page open."""
        return HtmlDriver, (self.web,)

    def _begin(self) -> None:
        self.page = None

    def _load(self, url: str) -> None:
        self._request("GET", url, {})

    def _request(self, method: str, url: str, form: dict[str, str]) -> None:
        parts = urlsplit(url)
        params = form if method == "POST" else dict(parse_qsl(parts.query, keep_blank_values=True))
        path = unquote(parts.path) or "/"
        reply = self.web.handle(self.session.session_id, method, parts.hostname, path, params)
        if reply.delay_s > driver.WAIT_S:
            self._late()
        if reply.location:  # after a form; it leads to a page
            self._load(urljoin(url, reply.location))
            return
        is_html = reply.media_type == "text/html"
        title, body = parse_html(reply.body) if is_html else ("", Element("body", {}))
        self.page = Page(url, title, reply.status, body, is_html)

    def _click(self, node: Node) -> None:
        element = node.element
        if node.role == "link":
            self._load(urljoin(self.page.url, element.attrs["href"]))
        elif node.role == "button":
            self._submit(element)
        elif node.role == "checkbox":
            element.checked = not element.checked
        elif node.role == "radio":
            for other in element.closest("form").descendants():
                if other.attrs.get("name") == element.attrs["name"]:
                    other.checked = other is element

    def _fill(self, node: Node, text: str) -> None:
        node.element.value = text

    def _enter(self, node: Node) -> None:
        form = node.element.closest("form")
        button = next((e for e in form.descendants() if e.tag == "button"), None)
        self._submit(button or node.element)

    def _choose(self, option: Node) -> None:
        for other in option.element.closest("select").descendants():
            other.selected = other is option.element

    def _submit(self, button: Element) -> None:
        form = button.closest("form")
        fields = {}
        for element in form.descendants():
            name, kind = element.attrs.get("name", ""), element.attrs.get("type", "text")
            if not name:
                continue
            if element.tag == "input" and (kind not in ("radio", "checkbox") or element.checked):
                fields[name] = element.value
            elif element.tag == "select":
                chosen = next(option for option in element.descendants() if option.selected)
                fields[name] = chosen.attrs.get("value", "".join(chosen.children).strip())
            elif element is button and element.tag == "button":
                fields[name] = element.attrs.get("value", "")
        action = button.attrs.get("formaction") or form.attrs.get("action", "")
        url = urljoin(self.page.url, action)
        if form.attrs.get("method") == "post":
            self._request("POST", url, fields)
        else:
            self._load(f"{url.split('?')[0]}?{_encode(fields)}")

    def _look(self) -> None:
        self.page.changed()


def _encode(fields: dict[str, str]) -> str:
    """Fields as a browser puts them into an address."""
    return "&".join(f"{_quote(name)}={_quote(value)}" for name, value in fields.items())


def _quote(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")
