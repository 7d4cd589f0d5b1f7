"""Every reply of a model, kept: a run resumes from it, is replayed from it offline, is published with it.

One SQLite file. A reply is found by endpoint, model and request. It is in the file before whoever asked for
it goes on, so a killed run pays for no finished call twice. (A power cut may lose the last seconds.)
"""

import socket
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pydantic import ValidationError

from pwagents.errors import DataError, InfrastructureError, StaysHere
from pwagents.llm.chat import ChatModel, Reply, Request, key_of
from pwagents.llm.failures import one_line

_TABLES = (
    "CREATE TABLE IF NOT EXISTS answer (key TEXT, endpoint TEXT, model TEXT NOT NULL, content BLOB NOT NULL, "
    "reply TEXT NOT NULL, PRIMARY KEY (key, endpoint))",
    "CREATE TABLE IF NOT EXISTS server (endpoint TEXT, model TEXT, url TEXT, PRIMARY KEY (endpoint, model))",
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
        try:
            return next(map(Reply.model_validate_json, replies.values()), None)
        except ValidationError as error:
            found = one_line(str(error))
            raise DataError(self.path, key, "reply", found, "a reply as it was stored") from None

    def put(self, content: str, reply: Reply, model: str, endpoint: str) -> Reply:
        """Store the reply to a :meth:`Request.content`; return the one stored, of whoever was the first."""
        packed, written = zlib.compress(content.encode(), 1), reply.model_dump_json()
        values = (key := key_of(content), endpoint, model, packed, written)
        self._execute("INSERT OR IGNORE INTO answer VALUES (?, ?, ?, ?, ?)", values)
        return self.get(key, endpoint)

    def claim(self, endpoint: str, model: str, host: str, port: int) -> str:
        """Return the name under which a local server keeps its replies: ``endpoint``, if it is free.

        One that comes back at another port goes on with its replies. One that runs at the same time is
        another server: its name has its port.
        """
        held = self._execute("SELECT url FROM server WHERE endpoint = ? AND model = ?", (endpoint, model))
        if held and held[0][0] != f"{host}:{port}":
            with suppress(OSError):  # it is gone
                socket.create_connection(held[0][0].rsplit(":", 1), timeout=1).close()
                return endpoint.replace(host, f"{host}:{port}", 1)
        self._execute("INSERT OR REPLACE INTO server VALUES (?, ?, ?)", (endpoint, model, f"{host}:{port}"))
        return endpoint

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

    Attributes:
        found, asked: how many replies were stored ones, and how many not.
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
        self.name, self.endpoint, self.found, self.asked = name, endpoint, 0, 0
        if inner:
            self.name, self.workers, self.endpoint = inner.name, inner.workers, endpoint or inner.endpoint
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._lock = threading.Lock()

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
            with self._lock:
                self.found, self.asked = self.found + (reply is not None), self.asked + (reply is None)
            return reply or self.store.put(content, self.inner.reply(request), self.name, self.endpoint)

    def _not_stored(self, request: Request) -> DataError:
        texts = [m["content"] for m in request.messages if isinstance(m.get("content"), str)]
        held = ", ".join(f"{count:,} of {model}" for model, count in self.store.models().items())
        wrong = f"none to {one_line((texts or [''])[-1], length=80)!r} (replies held: {held or 'none'})"
        expected = "every reply stored; run once with the model itself, same params, same data"
        return DataError(self.store.path, f"model {self.name}", "reply", wrong, expected)
