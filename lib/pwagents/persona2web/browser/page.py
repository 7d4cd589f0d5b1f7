"""A page as an agent sees it: a tree of roles, names and properties, and its text in two forms.

Our pages hold no script and no style that hides: HTML says it all. What is typed or chosen stands in the
elements' attributes (``value``, ``checked``, ``selected``): the driver that needs no browser writes it there,
and :data:`LIVE` does so in Chromium. So one reading serves both drivers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml.html import HtmlElement, document_fromstring

from pwagents.persona2web.world.types import Architecture

# In Chromium: put what was typed and chosen into the attributes, so that the page's HTML holds it.
LIVE = """() => {
  for (const each of document.querySelectorAll('input')) {
    each.setAttribute('value', each.value);
    each.toggleAttribute('checked', each.checked);
  }
  for (const each of document.querySelectorAll('option')) each.toggleAttribute('selected', each.selected);
  const status = performance.getEntriesByType('navigation')[0].responseStatus;
  return {url: location.href, status, is_html: document.contentType === 'text/html'};
}"""
MAX_ROWS = 500
INTERACTIVE = {"link", "button", "textbox", "searchbox", "combobox", "option", "radio", "checkbox"}
_INPUTS = {"search": "searchbox", "radio": "radio", "checkbox": "checkbox", "text": "textbox"}
_ROLES = {name: name for name in ("button", "option", "main", "table", "article")}
_ROLES |= {"select": "combobox", "nav": "navigation", "aside": "complementary", "header": "banner"}
_ROLES |= {"footer": "contentinfo", "ul": "list", "ol": "list", "li": "listitem", "tr": "row", "td": "cell"}
_ROLES |= {"fieldset": "group", "p": "paragraph"} | {f"h{level}": "heading" for level in range(1, 7)}
_CELLS = {"cell", "columnheader", "rowheader"}
_NAMED_BY_CONTENT = {"link", "button", "heading", "option"} | _CELLS
_UNSEEN = {"svg", "script", "style", "template", "link", "meta"}
_NAMES_OTHERS = {"label", "legend", "caption"}  # their text is the name of a control, a group, a table
_INLINE = {"a", "b", "i", "em", "strong", "span", "small", "label", "button", "input", "select", "br"}
_LIFTED = {"list", "listitem", "paragraph", "page", "row", "article"} | _CELLS


@dataclass(eq=False)
class Node:
    """A part of a page as assistive software sees it; "text" is the role of what is only read.

    ``id`` counts the interactive nodes of the page; it is None of any other. ``is_passive``: nothing in it
    can be acted on.
    """

    role: str
    name: str
    element: HtmlElement | None = None
    properties: dict[str, str | bool] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)
    id: int | None = None
    is_passive: bool = True


class Page:
    """A loaded page: its tree (``root``), and its interactive nodes by id; what is no HTML has none."""

    def __init__(self, url: str, status: int, html: str, is_html: bool = True):
        tree = document_fromstring(html if is_html else "<title></title><body></body>")
        self.url, self.status, self.is_html, self.body = url, status, is_html, tree.body
        self.title = " ".join(tree.findtext("head/title").split())
        self.read()

    def read(self) -> None:
        """Work out roles, names and ids: anew, once something was typed or chosen."""
        by_id = {element.get("id"): element for element in self.body.iter() if element.get("id")}
        self._labels: dict[HtmlElement, str] = {}
        for label in self.body.iter("label"):
            control = by_id.get(label.get("for", ""))
            control = next(label.iter("input", "select"), None) if control is None else control
            if control is not None:
                self._labels[control] = _text(label)
        self.elements: dict[int, Node] = {}
        self.root = Node("page", self.title, self.body, children=self._children(self.body))
        ahead = [self.root]
        while ahead:
            node = ahead.pop()
            ahead += reversed(node.children)
            if node.role in INTERACTIVE:
                node.id = len(self.elements) + 1
                self.elements[node.id] = node

    def _children(self, element: HtmlElement) -> list[Node]:
        """Return the nodes inside an element; neighboring texts are one."""
        nodes: list[Node] = []
        text = ""
        for part in (*self._parts(element), None):
            if isinstance(part, str):
                text += part
                continue
            if line := " ".join(text.split()):
                nodes.append(Node("text", line))
            text = ""
            if part is not None:
                nodes.append(part)
        return nodes

    def _parts(self, element: HtmlElement) -> Iterator[str | Node | None]:
        """Yield texts, nodes, and None where a line ends, inside an element."""
        names_another = element.tag in _NAMES_OTHERS
        for text, child in _pieces(element):
            if child is None:
                if not names_another:
                    yield text
            elif role := _role(child):
                yield self._node(child, role)
            elif child.tag in _INLINE:
                yield from self._parts(child)
            else:
                yield from (None, *self._parts(child), None)

    def _node(self, element: HtmlElement, role: str) -> Node:
        """Return an element as a node, with its name, its properties and what it holds."""
        name = element.get("aria-label", "").strip() or self._labels.get(element)
        if name is None and role in ("group", "table"):
            name = next((_text(each) for each in element if each.tag in ("legend", "caption")), "")
        elif name is None:
            name = _text(element) if role in _NAMED_BY_CONTENT else element.get("placeholder", "")
        properties: dict[str, str | bool] = {}
        if role in ("textbox", "searchbox"):
            properties["value"] = element.get("value", "")
        elif role == "combobox":
            properties["value"] = " ".join(_text(chosen_option(element)).split())
        elif role in ("radio", "checkbox") and "checked" in element.attrib:
            properties["checked"] = True
        elif role == "option" and chosen_option(element.getparent()) is element:
            properties["selected"] = True
        elif element.get("aria-current") == "true":
            properties["current"] = True
        children = self._children(element)
        is_passive = all(child.is_passive and child.role not in INTERACTIVE for child in children)
        if role in _NAMED_BY_CONTENT and is_passive:
            children = []  # what it holds is its name
        return Node(role, " ".join(name.split()), element, properties, children, is_passive=is_passive)


def _pieces(element: HtmlElement) -> Iterator[tuple[str, HtmlElement | None]]:
    """Yield what is read inside an element, in order: a text, or an element that is not hidden."""
    yield element.text or "", None
    for child in element:
        hidden = "hidden" in child.attrib or child.get("aria-hidden") == "true"
        if not hidden and child.get("type") != "hidden" and child.tag not in _UNSEEN:
            yield "", child
        yield child.tail or "", None


def _role(element: HtmlElement) -> str:
    """Return the element's role; empty where it has none of its own (a div, a span)."""
    tag = element.tag
    if role := element.get("role"):
        return role
    if tag == "a":
        return "link" if "href" in element.attrib else ""
    if tag == "input":
        return _INPUTS.get(element.get("type", "text"), "")
    if tag == "th":
        return "rowheader" if element.get("scope") == "row" else "columnheader"
    if tag == "section":
        return "region" if "aria-label" in element.attrib else ""
    return _ROLES.get(tag, "")


def chosen_option(select: HtmlElement) -> HtmlElement:
    """Return the option that a list holds: the last one that is selected, or else the first."""
    options = [*select.iter("option")]
    return next((option for option in reversed(options) if "selected" in option.attrib), options[0])


def _text(element: HtmlElement) -> str:
    """Return the text that is read inside an element, with the spaces it has in the HTML."""
    parts = []
    for text, child in _pieces(element):
        if child is None:
            parts.append(text)
        elif child.tag not in ("input", "select"):
            parts.append(_text(child) if child.tag in _INLINE else f" {_text(child)} ")
    return "".join(parts)


# --- a page as text ----------------------------------------------------------------------------------------


def observe(page: Page, architecture: Architecture) -> str:
    """Return the page as text: a row for its title and address, then its content, at most 500 rows.

    Both forms show the whole page. (Browser-Use shows what is in the window, which needs a layout that the
    HTML alone does not have.) Square brackets mark ids and nothing else: those in a page's own text become
    round ones, and a text is always one line, so that no text can pass for an element.
    """
    rows = [*(_occam(page.root, 0) if architecture == "occam" else _indexed(page.root))]
    if len(rows) >= MAX_ROWS:
        rows = [*rows[: MAX_ROWS - 2], f"({len(rows) - (MAX_ROWS - 2)} more rows are not shown)"]
    return "\n".join([f"page {_safe(page.title, quoted=True)} {_safe(page.url)}", *rows])


def _safe(text: str, escaped: bool = False, quoted: bool = False) -> str:
    """Return a page's own text in one line, without brackets and characters that are not seen."""
    seen = "".join(char for char in " ".join(text.split()) if char.isprintable())
    seen = seen.replace("[", "(").replace("]", ")")
    if escaped:
        seen = seen.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return '"' + seen.replace('"', "'") + '"' if quoted else seen


def _occam(node: Node, depth: int) -> Iterator[str]:
    """Yield a pruned accessibility tree, as AgentOccam reads it.

    Lists of plain texts and rows of a table are one row each, parts that only hold others give way to them.
    """
    for child in node.children:
        repeats = child.id is None and len(child.children) == 1 and child.children[0].name == child.name
        if (line := _one_line(child)) is not None:
            yield f"{'  ' * depth}text {_safe(line, quoted=True)}"
        elif child.role in _LIFTED or repeats:  # a heading around a link repeats it
            yield from _occam(child, depth)
        else:
            mark = f"[{child.id}] " if child.id is not None else ""
            name = f" {_safe(child.name, quoted=True)}" if child.name else ""
            said = {k: v if v is True else _safe(v, quoted=True) for k, v in child.properties.items() if v}
            holds = [k if v is True else f"{k}: {v}" for k, v in said.items()]
            yield f"{'  ' * depth}{mark}{child.role}{name}" + (f" ({', '.join(holds)})" if holds else "")
            yield from _occam(child, depth + 1)


def _one_line(node: Node) -> str | None:
    """Return the text of a part that is only read; None where it holds anything else."""
    if node.role == "text" or (node.role in _CELLS and not node.children):
        return node.name
    if node.role in ("list", "row", "listitem", "paragraph"):
        lines = [_one_line(child) for child in node.children]
        return " | ".join(lines) if lines and None not in lines else None
    return None


def _indexed(node: Node) -> Iterator[str]:
    """Yield elements to act on, each with its number, and the texts between them, as Browser-Use reads it."""
    for child in node.children:
        if child.id is not None:
            element, text = child.element, _safe(child.name, escaped=True)
            attrs = {name: element.get(name) for name in ("type", "name") if name in element.attrib}
            if element.tag == "input":
                usual = "on" if element.get("type") in ("radio", "checkbox") else ""
                attrs["value"] = element.get("value", usual)
            if "placeholder" in element.attrib:
                attrs["placeholder"] = element.get("placeholder")
            attrs |= {name: "true" for name, value in child.properties.items() if value is True}
            if child.role == "combobox":
                attrs["value"] = child.properties["value"]
                text += ": " + " | ".join(_safe(option.name, escaped=True) for option in child.children)
            written = (f" {k}={_safe(v, escaped=True, quoted=True)}" for k, v in attrs.items())
            yield f"[{child.id}]<{element.tag}{''.join(written)}>{text}</{element.tag}>"
        elif child.role in ({"text", "heading"} | _CELLS) and not child.children:
            yield _safe(child.name, escaped=True)
        else:
            if child.name and child.role in ("group", "table"):
                yield _safe(child.name, escaped=True)
            yield from _indexed(child)
