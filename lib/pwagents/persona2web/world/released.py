"""Reads what the authors of Persona2Web released, as it is: task files, histories, a cache of embeddings.

Task files stand in ``personalization_1``, ``_2`` and ``_3``, one a task and level, named
``<User>_<A, B or C><suffix>.json``. A suffix of 1 means level 2, 2 means level 1, 3 means level 0. Histories
are ``memory_bank/<User>.json``; a pickle ``cache/<User>_1024_memories.pkl`` holds records with embeddings.
The truth (preferences, goals) was not released, so official tasks are :class:`OfficialTask`, which has none.
"""

import json
import pickle
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import ValidationError

from pwagents.errors import DataError
from pwagents.files import read_json_lines
from pwagents.persona2web.world.types import BrowsingEvent, Level, Operation
from pwagents.schema import Record, Text

_LEVEL: dict[str, Level] = {"1": 2, "2": 1, "3": 0}  # by the suffix of the file's name
_NAME = re.compile(r"(?P<user>.+)_(?P<task>[A-Z])(?P<suffix>[123])")
_RECORD = ("timestamp", "type", "object", "website")


class OfficialTask(Record):
    """A released task at the levels that there are files of, without the runner's settings."""

    task_id: Text
    user_id: Text
    sites: tuple[str, ...] = ()
    texts: dict[Level, Text]


class Memories(NamedTuple):
    """What a released pickle holds: records, and an embedding of each (records x dimensions)."""

    events: tuple[BrowsingEvent, ...]
    embeddings: np.ndarray


def read_tasks(folder: Path) -> list[OfficialTask]:
    """The tasks of a checkout of the released files (the folder that holds ``personalization_1`` to ``_3``).

    Raises:
        DataError: there are no task files, or one of them is not as expected.
    """
    files = sorted(Path(folder).glob("personalization_[123]/*.json"))
    if not files:
        raise DataError(folder, "-", "personalization_1", "no task files", "<User>_<A, B or C><1 to 3>.json")
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for file in files:
        name = _NAME.fullmatch(file.stem)
        if not name:
            raise DataError(file, "-", "name", file.name, "<User>_<A, B or C><1 to 3>.json")
        content = _json(file)
        intent = _field(content, "intent", str, file, file.stem).removeprefix("Query:").strip()
        task = found.setdefault((name["user"], name["task"]), {"sites": (), "texts": {}})
        task["sites"] = _sites(content, file) or task["sites"]
        task["texts"][_LEVEL[name["suffix"]]] = intent
    return [
        _checked(OfficialTask, folder, task_id=f"{user}_{letter}", user_id=user, **task)
        for (user, letter), task in found.items()
    ]


def _sites(content: Mapping[str, Any], file: Path) -> tuple[str, ...]:
    """The sites that a task file names; none where it has no such field."""
    sites = content.get("sites") or []
    if not isinstance(sites, list) or not all(isinstance(site, str) for site in sites):
        raise DataError(file, file.stem, "sites", repr(sites), "a list of texts")
    return tuple(sites)


def read_queries(file: Path) -> list[OfficialTask]:
    """The tasks of a file with one JSON object a line: ``task_id``, ``user``, ``queries`` by level.

    Raises:
        DataError: a line is not as expected.
    """
    tasks = []
    for number, content in read_json_lines(Path(file)):
        task_id = _field(content, "task_id", str, file, f"line {number}")
        user = _field(content, "user", str, file, task_id)
        queries = _field(content, "queries", dict, file, task_id)
        texts = {level: queries[f"level_{level}"] for level in (0, 1, 2) if f"level_{level}" in queries}
        tasks.append(_checked(OfficialTask, file, task_id=task_id, user_id=user, texts=texts))
    return tasks


def read_history(file: Path) -> tuple[BrowsingEvent, ...]:
    """A history, ``{"memory_bank": [{timestamp, type, object, website}]}``, oldest first.

    Raises:
        DataError: the file, or a record in it, is not as expected.
    """
    file = Path(file)
    return _events(_field(_json(file), "memory_bank", list, file, "-"), file, file.stem)


def read_memories(file: Path) -> Memories:
    """A released pickle, ``{memory_items, embeddings}``. Only plain data and NumPy arrays are unpickled.

    Raises:
        DataError: the file is no such pickle, or holds anything else, such as code to be run.
    """
    file = Path(file)
    expected = "a pickle of plain data and NumPy arrays"
    with file.open("rb") as stream:
        try:
            content = _DataUnpickler(stream).load()
        except Exception as error:  # a damaged pickle can raise anything at all
            raise DataError(file, "-", "pickle", error, expected) from error
    user = file.stem.split("_1024_memories")[0]
    events = _events(_field(content, "memory_items", list, file, "-"), file, user, in_order=False)
    try:
        embeddings = np.asarray(content["embeddings"], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(file, "-", "embeddings", error, "one vector of numbers a record") from error
    if embeddings.ndim != 2 or len(embeddings) != len(events):
        found = f"shape {embeddings.shape}"
        raise DataError(file, "-", "embeddings", found, f"{len(events)} vectors, one a record")
    return Memories(events, embeddings)


class _DataUnpickler(pickle.Unpickler):
    """Unpickles plain data, which needs no names, and NumPy arrays, which need these."""

    _ALLOWED = frozenset(
        (f"numpy{core}", name)
        for core, name in [
            ("", "ndarray"),
            ("", "dtype"),
            (".core.multiarray", "_reconstruct"),
            ("._core.multiarray", "_reconstruct"),
            (".core.numeric", "_frombuffer"),
            ("._core.numeric", "_frombuffer"),
        ]
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name}, which is not data")
        return super().find_class(module, name)


def _events(records: list[Any], file: Path, user: str, in_order: bool = True) -> tuple[BrowsingEvent, ...]:
    events = []
    for i, record in enumerate(records):
        if not isinstance(record, Mapping) or set(record) != set(_RECORD):
            raise DataError(file, i, "record", record, f"an object of {', '.join(_RECORD)}")
        fields = dict(record) | {"timestamp": _milliseconds(record["timestamp"], file, i)}
        events.append(_checked(BrowsingEvent, file, i, event_id=f"{user}-{i:05d}", **fields))
    return tuple(sorted(events, key=lambda event: event.timestamp) if in_order else events)


def _milliseconds(timestamp: Any, file: Path, record: int) -> int:
    """A time as milliseconds since 1970; given as text (UTC where it names no zone) or as a number."""
    try:
        if isinstance(timestamp, str):
            time = datetime.fromisoformat(timestamp)
            return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
        return int(timestamp * 1000) if timestamp < 1e11 else int(timestamp)
    except (TypeError, ValueError, OverflowError) as error:
        expected = "a date and time in ISO 8601, or seconds or milliseconds since 1970"
        raise DataError(file, record, "timestamp", repr(timestamp), expected) from error


def _json(file: Path) -> Any:
    try:
        return json.loads(Path(file).read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(file, "-", "JSON", error, "valid JSON in UTF-8") from error


def _field(content: Any, name: str, kind: type, file: Path, record: str) -> Any:
    value = content.get(name) if isinstance(content, Mapping) else None
    if not isinstance(value, kind):
        raise DataError(file, record, name, repr(value), f"a {kind.__name__}")
    return value


def _checked(kind: type, file: Path, record: Any = "", **fields: Any) -> Any:
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        where = record if record != "" else fields.get("task_id")
        raise DataError(file, where, name, repr(first["input"]), first["msg"]) from error


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
