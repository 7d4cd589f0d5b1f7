"""Rules that carry a plan out on the web, from the observation text alone.

They know what sites call facets and how buttons are worded, as a person does, and try what the page offers;
they see neither ids of items nor whether anything came of it, and can fail. An observation is read as lines
of roles and names, whichever architecture wrote it.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import parse_qs, urlsplit

from pwagents.persona2web.site.pages import slug
from pwagents.persona2web.world.types import Architecture, Domain, Facet, Operation, Value, value_text

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
    lines = []
    for row in rows:
        if found := _INDEXED.match(row):
            number, tag, attributes, text = found.groups()
            kind = re.search(r'type="(radio|checkbox)"', attributes)
            role = _TAGS.get(tag) or (kind[1] if kind else "textbox")
            name, options = unescape(text), ()
            if role == "combobox" and ": " in name:
                name, listed = name.split(": ", 1)
                options = tuple(listed.split(" | "))
            value = re.search(r'value="([^"]*)"', attributes)
            on = bool(re.search(r'\b(checked|current)="true"', attributes))
            lines.append(Line(number, role, name, on, options, unescape(value[1]) if value else ""))
        elif found := _OCCAM.match(row):
            number, role, name, properties = found.groups("")
            lines.append(Line(number, role, name, bool(_ON.search(properties))))
        else:
            lines.append(Line("", "text", unescape(row.strip())))
    found = _HEAD.match(head)
    parts = urlsplit(found[2] if found else "")
    params = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    return PageText(parts.hostname or "", parts.path or "/", params, tuple(lines))


PATIENCE = 3  # the same page and the same action again, before the plan is given up
_OPEN_FILTERS = r"(Filter and sort|Choose step by step|Change your choices)$"
_SUBMIT = r"(Apply filters|Next|Show results)$"
_ADD, _HOLD = r"(add|buy|put)\b", r"(hold|save|make)\b"
_BOOK = r"(book|order|reserve|check availability)( now)?$"


@dataclass(frozen=True)
class Plan:
    """What to do where: by facet, what to filter by, in this order, and why.

    ``title`` is that of the item to take, empty for the first that is listed; ``one_by_one`` applies each
    filter before the next is set.
    """

    host: str
    domain: Domain
    operation: Operation
    values: Mapping[str, Value]
    why: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    one_by_one: bool = False


@dataclass(frozen=True)
class Move:
    """The next actions; none: the episode ends with ``answer``."""

    actions: tuple[str, ...]
    reason: str
    answer: str = ""


def _click(line: Line | None, reason: str) -> Move:
    """Return a click on a row; going back if there is none."""
    if line is None:
        return Move(("go_back",), "This page does not help; I go back.")
    return Move((f"click [{line.number}]",), reason)


@dataclass
class Navigator:
    """Carries out a plan, one page at a time."""

    plan: Plan
    architecture: Architecture
    _given_up: set[str] = field(default_factory=set)
    _taken: bool = False  # whether an item was opened
    _tries: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def at_choice(self, observation: str) -> bool:
        """Return whether the page is one of the site's results, where filters can be set."""
        page = read_page(observation)
        return page.host == self.plan.host and page.path in ("/search", "/choose")

    def at_results(self, observation: str) -> bool:
        """Return whether the page shows the site's results with all filters set."""
        page = read_page(observation)
        return page.host == self.plan.host and page.path == "/search" and not self._missing(page)

    def next(self, observation: str) -> Move:
        """Return what to do on this page."""
        page = read_page(observation)
        missing, listed = self._missing(page), page.path == "/search" and page.params.get("in")
        if any(line.name == "Please try again" for line in page.lines):
            move = Move(("go_back",), "The page failed; once more.")
        elif page.host != self.plan.host:
            move = self._to_site(page)
        elif done := self._ended(page):
            move = done
        elif page.path == "/choose" or (listed and missing):
            move = self._filter(page, missing)
        elif listed:
            move = self._take(page)
        elif page.path.startswith(("/item/", "/book/")) and self._taken:
            move = self._operate(page)
        else:
            department = page.find("link", re.escape(self.plan.domain.name) + "$")
            move = _click(department, f"I look at {self.plan.domain.name}.")
        key = (observation, *move.actions)
        self._tries[key] += 1
        if move.actions and self._tries[key] > PATIENCE:
            return Move((), "This leads nowhere; I stop.")
        return move

    def _to_site(self, page: PageText) -> Move:
        """Follow the portal's link to the site: the last one before the row that names its address."""
        link = None
        for line in page.lines:
            if line.role == "link":
                link = line
            elif link and re.search(rf"(?<![\w-]){re.escape(self.plan.host)}$", line.name):
                why = self.plan.why.get("website", "it offers this")
                return _click(link, f"I go to {link.name} ({self.plan.host}): {why}.")
        return _click(page.find("link", "All websites$"), "I look for the website.")

    # --- filters ---

    def _missing(self, page: PageText) -> list[Facet]:
        """Return the facets still to be filtered by, as the page's address tells."""
        missing, facets = [], {facet.name: facet for facet in self.plan.domain.facets}
        for name, wanted in self.plan.values.items():
            fields = [page.params.get(slug(label)) for label in facets[name].labels]
            if name not in self._given_up and value_text(wanted) not in fields:
                missing.append(facets[name])
        return missing

    def _filter(self, page: PageText, missing: list[Facet]) -> Move:
        """Set what the page offers of the missing filters, and send it off."""
        actions, reasons, seen = [], [], False
        for facet in missing[:1] if self.plan.one_by_one else missing:
            option = self._option(page, facet)
            if option is None:
                continue
            line, action = option
            why = self.plan.why.get(facet.name, "the task says so")
            reasons.append(f"{facet.labels[0]} should be {value_text(self.plan.values[facet.name])}: {why}.")
            if line.role == "link":
                return Move((action,), reasons[-1])
            seen = True
            if not line.on:
                actions.append(action)
        submit = page.find("button", _SUBMIT)
        if (seen or page.path == "/choose") and submit:
            if not missing or (self.plan.one_by_one and seen):
                submit = page.find("button", "Show results$") or submit
            actions.append(f"click [{submit.number}]")
            reasons = reasons or ["I send my choices."]
        if actions:
            most = 1 if self.architecture == "occam" else 3
            return Move(tuple(actions[:most]), " ".join(reasons))
        return self._open_filters(page, missing)

    def _open_filters(self, page: PageText, missing: list[Facet]) -> Move:
        for facet in missing:
            for label in facet.labels:
                if (tab := page.find("link", re.escape(label) + "$")) and not tab.on:
                    return _click(tab, f"I open the choices for {label}.")
        if door := page.find("link", _OPEN_FILTERS):
            return _click(door, "I open the filters.")
        self._given_up |= {facet.name for facet in missing}
        return self._take(page)

    def _option(self, page: PageText, facet: Facet) -> tuple[Line, str] | None:
        """Return the row that offers the wanted value under a label of the facet, and how to choose it."""
        labels, inside = {label.casefold() for label in facet.labels}, False
        value = self.plan.values[facet.name]
        others = {x.casefold() for each in self.plan.domain.facets for x in each.labels}
        tab = next((x for x in page.lines if x.role == "link" and x.on and x.name.casefold() in others), None)
        if tab is not None:
            found = (x for x in page.lines if x.role == "link" and _means(x.name, value))
            line = next(found, None) if tab.name.casefold() in labels else None
            return (line, f"click [{line.number}]") if line else None
        for line in page.lines:
            name = line.name.casefold()
            if line.role in ("group", "combobox", "text", "heading") and not line.options:
                inside = name in labels
            if line.options and name in labels:
                text = next((each for each in line.options if _means(each, value)), None)
                chosen = Line(line.number, "combobox", line.name, line.value == text)
                return (chosen, f"select [{line.number}] [{text}]") if text else None
            if inside and line.role in ("radio", "option") and _means(line.name, value):
                return line, f"click [{line.number}]"
        return None

    # --- items ---

    def _take(self, page: PageText) -> Move:
        """On the results: end a search, open an item, or put it beside others."""
        labels = tuple(f"{label}: " for facet in self.plan.domain.facets for label in facet.labels)
        pairs = zip(page.lines, page.lines[1:], strict=False)  # a link to an item, a row of its values
        items = [a for a, b in pairs if a.role == "link" and b.role == "text" and b.name.startswith(labels)]
        if self.plan.operation == "search":
            return Move((), "These results are what the task asks for.", "The results are listed.")
        if self.plan.title:
            items = [line for line in items if line.name == self.plan.title]
            if not items and (more := page.find("link", "Next page$")):
                return _click(more, "I look further.")
        if not items:
            return Move((), "Nothing fits; I stop.")
        if self.plan.operation == "compare":
            titles = [line.name for line in items[:2]]
            done = _count(page, "Compare")
            for title in titles[done:]:
                if button := page.find("button", re.escape(f"Compare: {title}") + "$"):
                    return _click(button, f"I compare {title}.")
            return Move((), "They are side by side.", "Compared: " + ", ".join(titles))
        self._taken = True
        return _click(items[0], f"{items[0].name} fits what is wanted.")

    def _operate(self, page: PageText) -> Move:
        """On an item's page: put it into the cart, book it, or read the fact."""
        operation = self.plan.operation
        if operation == "lookup":
            fact = _fact(page, self.plan.domain.fact)
            return Move((), f"The page says: {fact}.", fact) if fact else Move((), "The page does not say.")
        if operation == "cart":
            line = page.find("button", _ADD)
        else:
            line = page.find("button", _HOLD) if page.path.startswith("/book/") else page.find("link", _BOOK)
        return _click(line, f"I go on to the {operation}.")

    def _ended(self, page: PageText) -> Move | None:
        """Return the end of the episode, where the page shows that the operation was done."""
        ends = {"cart": "/cart", "booking": "/bookings"}
        if page.path == ends.get(self.plan.operation) and page.find("button", r"(Remove|Cancel)\b"):
            return Move((), "It is there; nothing is to be paid.", "Done.")
        if self.plan.operation == "compare" and page.path == "/compare":
            if _count(page, "Compare") >= 2:
                return Move((), "They are side by side.", "Compared.")
            return Move(("go_back",), "I add another one to compare.")
        return None


def _means(name: str, value: Value) -> bool:
    """Return whether a choice's text stands for a value: the word itself, or a text with that number."""
    if isinstance(value, str):
        return name.casefold() == value.casefold()
    number = re.search(r"\d[\d,]*(?:\.\d+)?", name)
    is_limit = re.match(r"Up to|.* or more$", name) is not None
    return bool(number) and is_limit and float(number[0].replace(",", "")) == value


def _count(page: PageText, name: str) -> int:
    """Return the number behind a link of the menu: "Compare (2)"."""
    link = page.find("link", re.escape(name) + r" \(\d+\)$")
    return int(re.search(r"\((\d+)\)$", link.name)[1]) if link else 0


def _fact(page: PageText, name: str) -> str:
    """Return what an item's page says of a fact: behind its name in a row, or in the row after it."""
    for line, after in zip(page.lines, [*page.lines[1:], Line("", "", "")], strict=True):
        cells = line.name.split(" | ")
        if name and cells[0].casefold() == name.casefold():
            return cells[1] if len(cells) > 1 else after.name
    return ""
