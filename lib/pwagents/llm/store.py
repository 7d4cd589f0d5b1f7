"""Every reply of a model, kept: a run resumes from it, is replayed from it offline, is published with it.

One SQLite file. A reply is found by endpoint, model and request. It is in the file before whoever asked for
it goes on, so a killed run pays for no finished call twice. (A power cut may lose the last seconds.)
"""

import json
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pwagents.errors import DataError, InfrastructureError, StaysHere
from pwagents.files import open_line, seal_line
from pwagents.llm.chat import ChatModel, Reply, Request, key_of
from pwagents.llm.failures import one_line
from pwagents.progress import count
from pwagents.urls import changes_served

_TABLES = (
    "CREATE TABLE IF NOT EXISTS answer (key TEXT, endpoint TEXT, model TEXT NOT NULL, content BLOB NOT NULL, "
    "reply TEXT NOT NULL, PRIMARY KEY (key, endpoint))",
    "CREATE TABLE IF NOT EXISTS fact (endpoint TEXT, model TEXT, name TEXT, text TEXT, "
    "PRIMARY KEY (endpoint, model, name))",
)
_WAIT_S = 60  # for another process that is writing


class ResponseStore:
    """The replies in one file; several threads and processes of one machine may use it at once.

    Every method raises DataError when the file is damaged, and leaves it as it is, for its replies were paid
    for; InfrastructureError when it cannot be read or written now (disk full, locked for a minute).
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._lock = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._database_errors():
            # Each statement is a transaction of its own.
            options = {"isolation_level": None, "check_same_thread": False, "timeout": _WAIT_S}
            self._db = sqlite3.connect(self.path, **options)
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:  # another process is about to set it
                    raise
            self._db.execute("PRAGMA synchronous = NORMAL")
            for table in _TABLES:
                self._db.execute(table)

    def __reduce__(self) -> Any:
        raise StaysHere("the file of a language model's replies belongs to one machine")

    def get(self, key: str, endpoint: str = "") -> Reply | None:
        """Return the reply to the request of this key; None if none is stored.

        Args:
            endpoint: whose; "" for whoever answered, which is a DataError if several did, and not alike.
        """
        query = "SELECT endpoint, reply FROM answer WHERE key = ? AND ? IN ('', endpoint) ORDER BY endpoint"
        replies = dict(self._execute(query, (key, endpoint)))
        if len(set(replies.values())) > 1:
            expected = "one of them, named in players.endpoint"
            raise DataError(self.path, key, "endpoint", ", ".join(replies), expected)
        reply = next(filter(None, (_read(text, key) for text in replies.values())), None)
        if replies and not reply:
            count("replies stored that do not fit their checksum, or have none")
        return reply

    def put(self, content: str, reply: Reply, model: str, endpoint: str) -> Reply:
        """Store the reply to a :meth:`Request.content`; return the one stored, of whoever was the first."""
        written = seal_line(reply.model_dump_json(), key := key_of(content))
        held = self._execute("SELECT reply FROM answer WHERE (key, endpoint) = (?, ?)", (key, endpoint))
        damaged = next((text for (text,) in held if not _read(text, key)), None)
        self._execute(
            "INSERT INTO answer VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET reply = excluded.reply WHERE reply = ?",
            (key, endpoint, model, zlib.compress(content.encode(), 1), written, damaged),
        )
        return self.get(key, endpoint)

    def put_fact(self, name: str, text: str, model: str, endpoint: str) -> None:
        """Store what is known of a model, in the place of what was known before."""
        self._execute("INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?)", (endpoint, model, name, text))

    def fact(self, name: str, model: str, endpoint: str) -> str:
        """Return what is known of a model, or of all of this name where ``endpoint`` is empty."""
        query = "SELECT text FROM fact WHERE (name, model) = (?, ?) AND ? IN ('', endpoint) ORDER BY endpoint"
        return " ".join(text for (text,) in self._execute(query, (name, model, endpoint)))

    def models(self) -> dict[str, int]:
        """Return the number of stored replies of each model."""
        return dict(self._execute("SELECT model, count(*) FROM answer GROUP BY model ORDER BY model"))

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple]:
        with self._lock, self._database_errors():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _database_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InfrastructureError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            expected = "a sound response store; it is kept as it is: restore a copy, or name another file"
            raise DataError(self.path, "(whole file)", "(database)", error, expected) from error


class StoredModel(ChatModel):
    """Asks ``inner`` for what ``store`` does not hold, and keeps it before it goes on.

    Threads of this process that have the same request ask once; two processes may both ask, and go on with
    the same reply.

    Args:
        inner: None for stored replies alone, one that is not there is a DataError; ``name`` says whose.
        endpoint: which server's replies; "" for that of ``inner`` or, without one, whoever's.
        sampling: changes to every request's sampling; None takes a parameter away.
        before_first: called before a reply is asked for, not where all are stored.
    """

    def __init__(
        self,
        inner: ChatModel | None,
        store: ResponseStore,
        name: str = "",
        endpoint: str = "",
        *,
        sampling: Mapping[str, Any] = {},
        before_first: Callable[[], None] = lambda: None,
    ):
        self.inner, self.store, self.sampling, self._before_first = inner, store, dict(sampling), before_first
        self.name, self.endpoint = name, endpoint
        if inner:
            self.name, self.workers, self.endpoint = inner.name, inner.workers, endpoint or inner.endpoint
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._lock, self._is_compared = threading.Lock(), False

    def reply(self, request: Request) -> Reply:
        if self.sampling:
            changed = request.sampling | self.sampling
            sampling = {name: value for name, value in changed.items() if value is not None}
            request = request.model_copy(update={"sampling": sampling})
        content = request.content(self.name)
        with self._lock:
            lock = self._locks.setdefault(content, threading.Lock())  # of all who ask this now
        with lock:
            reply = self.store.get(key_of(content), self.endpoint)
            if reply is None and self.inner is None:
                raise self._not_stored(request)
            if reply is None:
                self._before_first()
            count("replies asked for" if reply is None else "replies stored")
            self._compare_served()
            if reply is None:
                reply = self.store.put(content, self.inner.reply(request), self.name, self.endpoint)
                if (note := self.inner.note()) and note != self.note():
                    self.store.put_fact("note", note, self.name, self.endpoint)
            return reply

    def note(self) -> str:
        return self.store.fact("note", self.name, self.endpoint)

    def _compare_served(self) -> None:
        """Say once whether the endpoint says something else of its model than when it was first asked."""
        with self._lock:
            now, self._is_compared = {} if self._is_compared or not self.inner else self.inner.served, True
        if now:
            before = self.store.fact("served", self.name, self.endpoint)
            if before and (change := changes_served(json.loads(before), now)):
                print(
                    f"{self.name}: its endpoint said something else of it when replies were stored: {change}."
                )
            self.store.put_fact("served", json.dumps(now), self.name, self.endpoint)

    def _not_stored(self, request: Request) -> DataError:
        texts = [m["content"] for m in request.messages if isinstance(m.get("content"), str)]
        held = ", ".join(f"{count:,} of {model}" for model, count in self.store.models().items())
        wrong = f"none to {one_line((texts or [''])[-1], length=80)!r} (replies held: {held or 'none'})"
        expected = "every reply stored; run once with the model itself, same params, same data"
        return DataError(self.store.path, f"model {self.name}", "reply", wrong, expected)


def _read(text: str, key: str) -> Reply | None:
    """Return a stored reply; None if it is not as it was stored, or of a version without checksums."""
    with suppress(ValueError):  # pydantic's, too
        return Reply.model_validate_json(open_line(text, key))
    return None
