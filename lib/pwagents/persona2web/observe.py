"""A page as text, in the forms that the two architectures read.

Both show the whole page, at most 500 rows. (Browser-Use shows what is in the window, which needs a layout
that the HTML alone does not have.) Square brackets mark ids and nothing else: those in a page's own text
become round ones, and a text is always one line, so that no text can pass for an element.
"""

from collections.abc import Iterator

from pwagents.persona2web.page import Node, Page
from pwagents.persona2web.types import Architecture

MAX_ROWS = 500
_LIFTED = {"list", "listitem", "paragraph", "page", "row", "cell", "columnheader", "rowheader", "article"}


def observe(page: Page, architecture: Architecture) -> str:
    """The page as text: a row for its title and address, then its content."""
    head = f"page {_quoted(page.title)} {_safe(page.url)}"
    rows = list(_occam(page.root, 0)) if architecture == "occam" else list(_indexed(page.root))
    if len(rows) >= MAX_ROWS:
        left = len(rows) - (MAX_ROWS - 2)
        rows = [*rows[: MAX_ROWS - 2], f"({left} more rows are not shown)"]
    return "\n".join([head, *rows])


def _safe(text: str) -> str:
    """A page's own text in one line, without brackets and characters that are not seen."""
    seen = "".join(char for char in " ".join(text.split()) if char.isprintable())
    return seen.replace("[", "(").replace("]", ")")


def _quoted(text: str) -> str:
    return '"' + _safe(text).replace('"', "'") + '"'


# --- occam: a pruned accessibility tree ------------------------------------------------------------------


def _occam(node: Node, depth: int) -> Iterator[str]:
    """Rows of what is inside ``node``: lists of plain texts and rows of a table are one row each, parts
    that only hold others give way to them."""
    for child in node.children:
        if (line := _one_line(child)) is not None:
            yield f"{'  ' * depth}text {_quoted(line)}"
        elif child.role in _LIFTED or (child.id is None and _repeats(child)):
            yield from _occam(child, depth)
        else:
            yield "  " * depth + _occam_row(child)
            yield from _occam(child, depth + 1)


def _occam_row(node: Node) -> str:
    mark = f"[{node.id}] " if node.id is not None else ""
    name = f" {_quoted(node.name)}" if node.name else ""
    said = [
        name if value is True else f"{name}: {_quoted(value)}"
        for name, value in node.properties.items()
        if value is True or value
    ]
    return f"{mark}{node.role}{name}" + (f" ({', '.join(said)})" if said else "")


def _one_line(node: Node) -> str | None:
    """The text of a part that is only read; None where it holds anything else."""
    if node.role == "text":
        return node.name
    if node.role in ("cell", "columnheader", "rowheader") and not node.children:
        return node.name
    if node.role in ("list", "row", "listitem", "paragraph"):
        lines = [_one_line(child) for child in node.children]
        if lines and None not in lines:
            return " | ".join(lines)
    return None


def _repeats(node: Node) -> bool:
    """Whether a part's name is that of the one part it holds (a heading around a link)."""
    return len(node.children) == 1 and node.children[0].name == node.name


# --- indexed: elements to act on, and the texts between them ---------------------------------------------


def _indexed(node: Node) -> Iterator[str]:
    for child in node.children:
        if child.id is not None:
            yield _indexed_row(child)
        elif child.role in ("text", "heading", "cell", "columnheader", "rowheader") and not child.children:
            yield _text(child.name)
        else:
            if child.name and child.role in ("group", "table"):
                yield _text(child.name)
            yield from _indexed(child)


def _text(text: str) -> str:
    return _safe(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _indexed_row(node: Node) -> str:
    element, text = node.element, _text(node.name)
    attrs = {name: element.attrs[name] for name in ("type", "name") if name in element.attrs}
    if element.tag == "input":
        attrs["value"] = element.value
    if "placeholder" in element.attrs:
        attrs["placeholder"] = element.attrs["placeholder"]
    attrs |= {name: "true" for name, value in node.properties.items() if value is True}
    if node.role == "combobox":
        attrs["value"] = node.properties["value"]
        text += ": " + " | ".join(_text(option.name) for option in node.children)
    said = "".join(f' {name}="{_text(value).replace(chr(34), chr(39))}"' for name, value in attrs.items())
    return f"[{node.id}]<{element.tag}{said}>{text}</{element.tag}>"
