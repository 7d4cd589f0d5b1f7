"""What a page holds, as a tree of roles, names and properties: the ground of both observations.

Both drivers read the same elements (:mod:`pwagents.persona2web.markup`); roles and names are worked out
here, so that nothing but the reading can differ. Our pages hold no script and no style that
hides: HTML says it all.
"""

from dataclasses import dataclass, field
from functools import cached_property

from pwagents.persona2web.markup import INPUTS, Element

INTERACTIVE = {"link", "button", "textbox", "searchbox", "combobox", "option", "radio", "checkbox"}
_ROLES = {
    "button": "button",
    "select": "combobox",
    "option": "option",
    "nav": "navigation",
    "main": "main",
    "aside": "complementary",
    "header": "banner",
    "footer": "contentinfo",
    "ul": "list",
    "ol": "list",
    "li": "listitem",
    "table": "table",
    "tr": "row",
    "td": "cell",
    "fieldset": "group",
    "article": "article",
    "p": "paragraph",
} | {f"h{level}": "heading" for level in range(1, 7)}
_NAMED_BY_CONTENT = {"link", "button", "heading", "option", "cell", "rowheader", "columnheader"}
_UNSEEN = {"svg", "script", "style", "template", "link", "meta"}
_NAMES_OTHERS = {"label", "legend", "caption"}  # their text is the name of a control, a group, a table
_INLINE = {"a", "b", "i", "em", "strong", "span", "small", "label", "button", "input", "select", "br"}


@dataclass(eq=False)
class Node:
    """A part of a page as assistive software sees it.

    Attributes:
        role: such as "link"; "text" for what is only read.
        properties: value, checked, selected, current: those that hold.
        id: of an interactive node, counted through the page; None of any other.
    """

    role: str
    name: str
    element: Element | None = None
    properties: dict[str, str | bool] = field(default_factory=dict)
    id: int | None = None
    children: list["Node"] = field(default_factory=list)


@dataclass(eq=False)
class Page:
    """A loaded page; what is no HTML has no elements."""

    url: str
    title: str
    status: int
    body: Element
    is_html: bool = True

    @property
    def root(self) -> Node:
        """All of the page, with roles, names and ids."""
        return self._read[0]

    @property
    def elements(self) -> dict[int, Node]:
        """Its interactive nodes by id."""
        return self._read[1]

    def changed(self) -> None:
        """Something was typed or chosen: roles, names and ids are worked out anew when they are asked for."""
        self.__dict__.pop("_read", None)

    @cached_property
    def _read(self) -> tuple[Node, dict[int, Node]]:
        within = self.body.descendants()
        for ref, element in enumerate(within):
            element.ref = ref
        root = Node("page", self.title, self.body, children=_nodes(self.body, _labels(within)))
        elements: dict[int, Node] = {}
        _number(root, elements)
        return root, elements


# --- roles and names -------------------------------------------------------------------------------------


def _role(element: Element) -> str:
    """The element's role; empty where it has none of its own (a div, a span)."""
    tag, attrs = element.tag, element.attrs
    if role := attrs.get("role"):
        return role
    if tag == "a":
        return "link" if "href" in attrs else ""
    if tag == "input":
        return INPUTS.get(attrs.get("type", "text"), "")
    if tag == "th":
        return "rowheader" if attrs.get("scope") == "row" else "columnheader"
    if tag == "section":
        return "region" if "aria-label" in attrs else ""
    return _ROLES.get(tag, "")


def _is_seen(element: Element) -> bool:
    attrs = element.attrs
    hidden = "hidden" in attrs or attrs.get("aria-hidden") == "true" or attrs.get("type") == "hidden"
    return not hidden and element.tag not in _UNSEEN


def _labels(within: list[Element]) -> dict[Element, str]:
    """Controls among these elements -> the text of their labels."""
    found, by_id = {}, {e.attrs["id"]: e for e in within if "id" in e.attrs}
    for label in within:
        if label.tag == "label":
            inside = [e for e in label.descendants() if e.tag in ("input", "select")]
            control = by_id.get(label.attrs.get("for", "")) or (inside[0] if inside else None)
            if control is not None:
                found[control] = text_of(label)
    return found


def text_of(element: Element) -> str:
    """The text that is read inside an element, in one line."""
    return " ".join(_text(element).split())


def _text(element: Element) -> str:
    parts = []
    for child in element.children:
        if isinstance(child, str):
            parts.append(child)
        elif _is_seen(child) and child.tag not in ("input", "select"):
            text = _text(child)
            parts.append(text if child.tag in _INLINE else f" {text} ")
    return "".join(parts)


def _name(element: Element, role: str, labels: dict[Element, str]) -> str:
    if label := element.attrs.get("aria-label", "").strip():
        return " ".join(label.split())
    if element in labels:
        return labels[element]
    if role in ("group", "table"):
        named = [e for e in element.children if isinstance(e, Element) and e.tag in ("legend", "caption")]
        return text_of(named[0]) if named else ""
    if role in _NAMED_BY_CONTENT:
        return text_of(element)
    return " ".join(element.attrs.get("placeholder", "").split())


def _properties(element: Element, role: str) -> dict[str, str | bool]:
    if role in ("textbox", "searchbox"):
        return {"value": element.value}
    if role == "combobox":
        return {"value": next((text_of(e) for e in element.descendants() if e.selected), "")}
    if role in ("radio", "checkbox") and element.checked:
        return {"checked": True}
    if role == "option" and element.selected:
        return {"selected": True}
    return {"current": True} if element.attrs.get("aria-current") == "true" else {}


def _nodes(element: Element, labels: dict[Element, str]) -> list[Node]:
    """The nodes inside an element; neighbouring texts are one."""
    nodes: list[Node] = []
    run: list[str] = []

    def end_of_text() -> None:
        if text := " ".join("".join(run).split()):
            nodes.append(Node("text", text))
        run.clear()

    for part in _parts(element, labels):
        if isinstance(part, str):
            run.append(part)
        else:
            end_of_text()
            if part is not None:
                nodes.append(part)
    end_of_text()
    return nodes


def _parts(element: Element, labels: dict[Element, str]):
    """Texts, nodes, and None where a line ends, inside an element."""
    for child in element.children:
        if isinstance(child, str):
            if element.tag not in _NAMES_OTHERS:
                yield child
        elif _is_seen(child):
            if role := _role(child):
                node = Node(role, _name(child, role, labels), child, _properties(child, role))
                node.children = _nodes(child, labels)
                if role in _NAMED_BY_CONTENT and not any(_acts(inner) for inner in node.children):
                    node.children = []  # what it holds is its name
                yield node
            elif child.tag in _INLINE:
                yield from _parts(child, labels)
            else:
                yield None
                yield from _parts(child, labels)
                yield None


def _acts(node: Node) -> bool:
    return node.role in INTERACTIVE or any(_acts(child) for child in node.children)


def _number(node: Node, elements: dict[int, Node]) -> None:
    if node.role in INTERACTIVE:
        node.id = len(elements) + 1
        elements[node.id] = node
    for child in node.children:
        _number(child, elements)
