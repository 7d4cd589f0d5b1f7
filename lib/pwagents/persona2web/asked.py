"""What the released queries ask for, read by rules from their texts: website, operation, what is masked."""

import re
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from pwagents.persona2web.official import OfficialTask
from pwagents.persona2web.types import Operation
from pwagents.schema import Record

_SITE = re.compile(r"At (?P<site>\S+?\.\w+(?: or \S+)*), ")
_MARKED = re.compile(r"\*\*(.+?)\*\*")
_PLACE = re.compile(r"\([A-Z][\w .]+, [A-Z][\w ]+ \d{5}\)")
# What is to be done, by the first of these that the text at level 0 holds; a filtered search where none is.
_DONE: dict[Operation, str] = {
    "cart": r"\bcart\b",
    "compare": r"\bcompare\b",
    "booking": r"\b(availab\w+|reserv\w+|book(?!s|cases?\b)|tickets?|appointments?|seats?)\b",
    "lookup": r"\b(look up|check|forecast|updates|standings|interactions|when)\b",
}
# What a masked phrase ("my usual budget") is about, by words of it.
_ABOUT = {
    "price": r"price|budget|cost|cap\b|spend|per-pod|rental",
    "location": r"area|city|location|neighborhood|address|airport|region|downtown|distance",
    "time": r"time|window|days?\b|departure|schedule|hours?\b",
    "size": r"size|waist|inseam|capacity|count|portion",
    "rating": r"rating|review|star|score|standard",
    "genre": r"genre|artist|music|headliner|cuisine",
}
_MASK = re.compile(
    r"\bmy\s+(?:(?:previously|regular|usual|typical|preferred|favorite|required|standard|target) )*"
    r"(?P<what>[\w/'-]+(?: [\w/'-]+){0,4})"
)


class Asked(Record):
    """What one released task asks for.

    Attributes:
        site: as the text at level 0 names it; empty where it does not.
        marked: values that the text at level 0 marks as preferences.
        masked: what the text at level 2 leaves out: kinds such as "price", each once.
        place: whether level 0 gives a place, which levels 1 and 2 do not.
        leaks: whether the text at level 2 still holds the site's name or a marked value as it is.
    """

    task_id: str
    site: str
    operation: Operation
    marked: tuple[str, ...]
    masked: tuple[str, ...]
    place: bool
    leaks: bool


def asked(task: OfficialTask) -> Asked:
    """Reads a task's texts; missing levels count as empty."""
    full, ambiguous = task.texts.get(0, ""), task.texts.get(2, "")
    named = _SITE.match(full)
    site = named["site"] if named else ""
    marked = tuple(_MARKED.findall(full))
    lowered = full.casefold()
    done = (name for name, words in _DONE.items() if re.search(words, lowered[len(site) :]))
    phrases = " ; ".join(found["what"] for found in _MASK.finditer(ambiguous.casefold()))
    words = [site.split(".")[0], *marked] if site else marked
    return Asked(
        task_id=task.task_id,
        site=site,
        operation=next(done, "search"),
        marked=marked,
        masked=tuple(kind for kind, about in _ABOUT.items() if re.search(about, phrases)),
        place=bool(_PLACE.search(full)),
        leaks=any(word.casefold() in ambiguous.casefold() for word in words),
    )


def report(tasks: Sequence[OfficialTask]) -> pd.DataFrame:
    """How many of the tasks ask for what: columns ``what``, ``of which``, ``tasks``, most frequent first."""
    found = [asked(task) for task in tasks]
    parts = {
        "operation": [each.operation for each in found],
        "values marked": [str(len(each.marked)) for each in found],
        "kind masked": [kind for each in found for kind in each.masked],
        "text": ["place at level 0"] * sum(each.place for each in found)
        + ["website or value at level 2"] * sum(each.leaks for each in found),
    }
    n_sites = len({each.site for each in found if each.site})
    rows = [{"what": "websites", "of which": "different", "tasks": n_sites}]
    for what, values in parts.items():
        counts = sorted(Counter(values).items(), key=lambda pair: (-pair[1], pair[0]))
        rows += [{"what": what, "of which": value, "tasks": n} for value, n in counts]
    return pd.DataFrame(rows)
