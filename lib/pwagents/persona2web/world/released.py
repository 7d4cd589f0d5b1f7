"""Reads what the authors of Persona2Web released, as it is: task files, histories, caches.

Task files stand in ``personalization_1``, ``_2`` and ``_3``, one a task and level, named
``<User>_<A, B or C><suffix>.json``. A suffix of 1 means level 2, 2 means level 1, 3 means level 0. Histories
are ``memory_bank/<User>.json``, which the repository leaves out; its ``cache/<User>_1024_memories.pkl`` holds
the same records as objects. The truth (preferences, goals) was not released: what is known
is what level 0 says, the website and the values that it marks. What is not as expected is a DataError that
names file, record and field.
"""

import json
import pickle
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError

from pwagents.errors import DataError
from pwagents.files import read_json_lines
from pwagents.persona2web.world.types import BrowsingEvent, EventType, Level
from pwagents.schema import Record, Text

_LEVEL: dict[str, Level] = {"1": 2, "2": 1, "3": 0}  # by the suffix of the file's name
_NAME = re.compile(r"(?P<user>.+)_(?P<task>[A-Z])(?P<suffix>[123])")
_RECORD = ("timestamp", "type", "object", "website")
_SITE = re.compile(r"At (?P<site>\S+?\.\w+(?: or \S+)*), ")
_MARKED = re.compile(r"\*\*(.+?)\*\*")
# Where the released runners, and older versions of them, define the class of the pickles' records.
_ARRAYS = {("numpy", "ndarray"), ("numpy", "dtype")}  # what pickles of arrays name, in any version of NumPy
for _core in ("numpy.core", "numpy._core"):
    _ARRAYS |= {(f"{_core}.multiarray", "_reconstruct"), (f"{_core}.numeric", "_frombuffer")}
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


def read_released(folder: Path) -> tuple[list[OfficialTask], dict[str, tuple[BrowsingEvent, ...]]]:
    """Return tasks and histories (by user) of a folder: ``queries.jsonl``, or a checkout of the repository.

    Histories that the folder does not hold are left out.
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
            histories[user] = tuple(sorted(read_memories(caches[0]), key=lambda event: event.timestamp))
    return tasks, histories


def read_tasks(folder: Path) -> list[OfficialTask]:
    """Return the tasks of the released files, wherever ``personalization_1`` to ``_3`` stand in a folder.

    Of several copies (each runner has one) the first is read.
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
        intent = _parse(_TaskFile, _json(file), file).intent.removeprefix("Query:").strip()
        texts.setdefault((name["user"], name["task"]), {})[_LEVEL[name["suffix"]]] = intent
    return [
        OfficialTask(task_id=f"{user}_{letter}", user_id=user, texts=by_level)
        for (user, letter), by_level in texts.items()
    ]


def read_queries(file: Path) -> list[OfficialTask]:
    """Return the tasks of a file with one JSON object a line: ``task_id``, ``user``, ``queries`` by level."""
    tasks = []
    for number, content in read_json_lines(Path(file)):
        line = _parse(_QueriesLine, content, file, f"line {number}")
        texts = {n: line.queries[f"level_{n}"] for n in (0, 1, 2) if f"level_{n}" in line.queries}
        tasks.append(OfficialTask(task_id=line.task_id, user_id=line.user, texts=texts))
    return tasks


def read_history(file: Path) -> tuple[BrowsingEvent, ...]:
    """Return a history, ``{"memory_bank": [{timestamp, type, object, website}]}``, oldest first."""
    bank = _parse(_Bank, _json(file), file)
    return tuple(sorted(_events(bank.memory_bank, file, file.stem), key=lambda event: event.timestamp))


def read_memories(file: Path) -> tuple[BrowsingEvent, ...]:
    """Return a released pickle's records. Only plain data, NumPy arrays and inert records are unpickled."""
    with file.open("rb") as stream:
        try:
            content = _DataUnpickler(stream).load()
            items = content["memory_items"]
            records = [vars(item) if isinstance(item, _MemoryItem) else item for item in items]
        except Exception as error:  # a damaged pickle can raise anything at all
            raise DataError(file, "-", "pickle", error, "a pickle of MemoryItem records") from error
    return _events(records, file, file.stem.split("_1024_memories")[0])


class _MemoryItem:
    """A record of a released pickle: it holds what the pickle says of it, and can do nothing."""

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise pickle.UnpicklingError("a record that is no record")
        vars(self).update({name: state[name] for name in _RECORD if name in state})


class _DataUnpickler(pickle.Unpickler):
    """Unpickles plain data, which needs no names, NumPy arrays, which need these, and inert records."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "MemoryItem" and module in _ITEM_MODULES:
            return _MemoryItem
        if (module, name) not in _ARRAYS:
            raise pickle.UnpicklingError(f"{module}.{name}, which is not data")
        return super().find_class(module, name)


def _milliseconds(timestamp: Any) -> int:
    """Return a time as milliseconds since 1970; given as text (UTC if it names no zone) or as a number."""
    try:
        if isinstance(timestamp, str):
            time = datetime.fromisoformat(timestamp)
            return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
        return int(timestamp * 1000) if timestamp < 1e11 else int(timestamp)
    except (TypeError, OverflowError) as error:
        raise ValueError("expected a date and time in ISO 8601, or seconds since 1970") from error


class _TaskFile(BaseModel):
    intent: str


class _QueriesLine(BaseModel):
    task_id: Text
    user: Text
    queries: dict[str, Text]


class _Bank(BaseModel):
    memory_bank: list[Any]


class _Event(BaseModel, extra="forbid"):
    timestamp: Annotated[int, BeforeValidator(_milliseconds)]
    type: EventType
    object: str
    website: str


def _events(records: list[Any], file: Path, user: str) -> tuple[BrowsingEvent, ...]:
    read = [_parse(_Event, record, file, i) for i, record in enumerate(records)]
    return tuple(
        BrowsingEvent(event_id=f"{user}-{i:05d}", **each.model_dump()) for i, each in enumerate(read)
    )


def _parse(kind: type[BaseModel], content: Any, file: Path, record: Any = "-") -> Any:
    """Return content as a form of this file's; DataError names what is wrong with it."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "record"
        raise DataError(file, record, name, repr(first["input"]), first["msg"]) from error


def _json(file: Path) -> Any:
    try:
        return json.loads(Path(file).read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(file, "-", "JSON", error, "valid JSON in UTF-8") from error
