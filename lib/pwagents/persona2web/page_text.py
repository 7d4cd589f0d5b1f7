"""A page's observation text as lines of roles and names, whichever architecture wrote it."""

import re
from dataclasses import dataclass
from html import unescape
from urllib.parse import parse_qs, urlsplit

_HEAD = re.compile(r'^page "(.*)" (\S+)$')
_OCCAM = re.compile(r'^\s*(?:\[(\d+)\] )?([a-z]+)(?: "([^"]*)")?(?: \((.*)\))?$')
_INDEXED = re.compile(r"^\[(\d+)\]<(\w+)([^>]*)>(.*)</\2>$")
_TAGS = {"a": "link", "button": "button", "select": "combobox"}
_ON = re.compile(r'\b(checked|selected|current)\b(?!: "")')


@dataclass(frozen=True)
class Line:
    """One row: ``number`` is empty for what can only be read; ``on``: checked, selected or current."""

    number: str
    role: str
    name: str
    on: bool = False
    options: tuple[str, ...] = ()  # of a list in the indexed form; occam has rows for them
    value: str = ""  # of a list in the indexed form


@dataclass(frozen=True)
class PageText:
    """A page as an agent can read it: address and rows."""

    host: str
    path: str
    params: dict[str, str]
    lines: tuple[Line, ...]

    def find(self, role: str, pattern: str) -> Line | None:
        """The first row of a role whose name begins with a pattern, in any case."""
        return next(
            (x for x in self.lines if x.role == role and re.match(pattern, x.name, re.IGNORECASE)), None
        )


def read_page(observation: str) -> PageText:
    """Read an observation; what it does not understand is taken for text."""
    head, *rows = observation.split("\n")
    found = _HEAD.match(head)
    parts = urlsplit(found[2] if found else "")
    params = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    return PageText(parts.hostname or "", parts.path or "/", params, tuple(_line(row) for row in rows))


def _line(row: str) -> Line:
    if found := _INDEXED.match(row):
        number, tag, attributes, text = found.groups()
        kind = re.search(r'type="(\w+)"', attributes)
        role = _TAGS.get(tag) or (kind[1] if kind and kind[1] in ("radio", "checkbox") else "textbox")
        name, options = unescape(text), ()
        if role == "combobox" and ": " in name:
            name, listed = name.split(": ", 1)
            options = tuple(listed.split(" | "))
        value = re.search(r'value="([^"]*)"', attributes)
        on = bool(re.search(r'\b(checked|current)="true"', attributes))
        return Line(number, role, name, on, options, unescape(value[1]) if value else "")
    if found := _OCCAM.match(row):
        number, role, name, properties = found.groups("")
        return Line(number, role, name, bool(_ON.search(properties)))
    return Line("", "text", unescape(row.strip()))
