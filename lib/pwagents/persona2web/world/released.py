"""Reads what the authors of Persona2Web released, as it is: task files, histories, caches of embeddings.

Task files stand in ``personalization_1``, ``_2`` and ``_3``, one a task and level, named
``<User>_<A, B or C><suffix>.json``. A suffix of 1 means level 2, 2 means level 1, 3 means level 0. Histories
are ``memory_bank/<User>.json``, which the repository leaves out; its ``cache/<User>_1024_memories.pkl`` holds
the same records as objects, with embeddings. The truth (preferences, goals) was not released: what is known
is what level 0 says, the website and the values that it marks.
"""

import json
import pickle
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from pwagents.errors import DataError
from pwagents.files import read_json_lines
from pwagents.persona2web.world.types import BrowsingEvent, Level
from pwagents.schema import Record, Text

_LEVEL: dict[str, Level] = {"1": 2, "2": 1, "3": 0}  # by the suffix of the file's name
_NAME = re.compile(r"(?P<user>.+)_(?P<task>[A-Z])(?P<suffix>[123])")
_RECORD = ("timestamp", "type", "object", "website")
_SITE = re.compile(r"At (?P<site>\S+?\.\w+(?: or \S+)*), ")
_MARKED = re.compile(r"\*\*(.+?)\*\*")
# Where the released runners, and older versions of them, define the class of the pickles' records.
_ITEM_MODULES = ("retriever", "AgentOccam.retriever", "browser_use.personalization.retriever")


class OfficialTask(Record):
    """A released task at the levels that there are files of, without the runner's settings."""

    task_id: Text
    user_id: Text
    texts: dict[Level, Text]

    @property
    def site(self) -> str:
        """The website that the text at level 0 names; empty if it names none."""
        named = _SITE.match(self.texts.get(0, ""))
        return named["site"] if named else ""

    @property
    def values(self) -> tuple[str, ...]:
        """The values that the text at level 0 marks as preferences."""
        return tuple(_MARKED.findall(self.texts.get(0, "")))


class Memories(NamedTuple):
    """What a released pickle holds: records, and an embedding of each (records x dimensions)."""

    events: tuple[BrowsingEvent, ...]
    embeddings: np.ndarray


def read_released(folder: Path) -> tuple[list[OfficialTask], dict[str, tuple[BrowsingEvent, ...]]]:
    """Return tasks and histories (by user) of a folder: ``queries.jsonl``, or a checkout of the repository.

    Histories that the folder does not hold are left out.

    Raises:
        DataError: there are no tasks, or a file is not as expected.
    """
    folder, histories = Path(folder), {}
    listed = folder / "queries.jsonl"
    tasks = read_queries(listed) if listed.exists() else read_tasks(folder)
    for user in sorted({task.user_id for task in tasks}):
        banks = sorted(folder.glob(f"**/memory_bank/{user}.json"))
        caches = sorted(folder.glob(f"**/cache/{user}_1024_memories.pkl"))
        if banks:
            histories[user] = read_history(banks[0])
        elif caches:
            events = read_memories(caches[0]).events
            histories[user] = tuple(sorted(events, key=lambda event: event.timestamp))
    return tasks, histories


def read_tasks(folder: Path) -> list[OfficialTask]:
    """Return the tasks of the released files, wherever ``personalization_1`` to ``_3`` stand in a folder.

    Of several copies (each runner has one) the first is read.

    Raises:
        DataError: there are no task files, or one of them is not as expected.
    """
    homes = sorted({path.parent for path in Path(folder).glob("**/personalization_[123]")})
    files = sorted(homes[0].glob("personalization_[123]/*.json")) if homes else []
    if not files:
        raise DataError(folder, "-", "personalization_1", "no task files", "<User>_<A, B or C><1 to 3>.json")
    texts: dict[tuple[str, str], dict[Level, str]] = {}
    for file in files:
        name = _NAME.fullmatch(file.stem)
        if not name:
            raise DataError(file, "-", "name", file.name, "<User>_<A, B or C><1 to 3>.json")
        intent = _field(_json(file), "intent", str, file, file.stem).removeprefix("Query:").strip()
        texts.setdefault((name["user"], name["task"]), {})[_LEVEL[name["suffix"]]] = intent
    return [
        _checked(OfficialTask, folder, task_id=f"{user}_{letter}", user_id=user, texts=by_level)
        for (user, letter), by_level in texts.items()
    ]


def read_queries(file: Path) -> list[OfficialTask]:
    """Return the tasks of a file with one JSON object a line: ``task_id``, ``user``, ``queries`` by level.

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
    """Return a history, ``{"memory_bank": [{timestamp, type, object, website}]}``, oldest first.

    Raises:
        DataError: the file, or a record in it, is not as expected.
    """
    events = _events(_field(_json(file), "memory_bank", list, file, "-"), file, file.stem)
    return tuple(sorted(events, key=lambda event: event.timestamp))


def read_memories(file: Path) -> Memories:
    """Return what a released pickle holds. Only plain data, NumPy arrays and inert records are unpickled.

    Raises:
        DataError: the file is no such pickle, or holds anything else, such as code to be run.
    """
    expected = "a pickle of plain data, NumPy arrays and MemoryItem records"
    with file.open("rb") as stream:
        try:
            content = _DataUnpickler(stream).load()
        except Exception as error:  # a damaged pickle can raise anything at all
            raise DataError(file, "-", "pickle", error, expected) from error
    items = _field(content, "memory_items", list, file, "-")
    records = [vars(item) if isinstance(item, _MemoryItem) else item for item in items]
    events = _events(records, file, file.stem.split("_1024_memories")[0])
    try:
        embeddings = np.asarray(content["embeddings"], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(file, "-", "embeddings", error, "one vector of numbers a record") from error
    if embeddings.ndim != 2 or len(embeddings) != len(events):
        shape = f"shape {embeddings.shape}"
        raise DataError(file, "-", "embeddings", shape, f"{len(events)} vectors, one a record")
    return Memories(events, embeddings)


class _MemoryItem:
    """A record of a released pickle: it holds what the pickle says of it, and can do nothing."""

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise pickle.UnpicklingError("a record that is no record")
        vars(self).update({name: state[name] for name in _RECORD if name in state})


class _DataUnpickler(pickle.Unpickler):
    """Unpickles plain data, which needs no names, NumPy arrays, which need these, and inert records."""

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
        if name == "MemoryItem" and module in _ITEM_MODULES:
            return _MemoryItem
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name}, which is not data")
        return super().find_class(module, name)


def _events(records: list[Any], file: Path, user: str) -> tuple[BrowsingEvent, ...]:
    events = []
    for i, record in enumerate(records):
        if not isinstance(record, Mapping) or set(record) != set(_RECORD):
            raise DataError(file, i, "record", record, f"an object of {', '.join(_RECORD)}")
        fields = dict(record) | {"timestamp": _milliseconds(record["timestamp"], file, i)}
        events.append(_checked(BrowsingEvent, file, i, event_id=f"{user}-{i:05d}", **fields))
    return tuple(events)


def _milliseconds(timestamp: Any, file: Path, record: int) -> int:
    """Return a time as milliseconds since 1970; given as text (UTC if it names no zone) or as a number."""
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
