"""Every reply of a model, kept: a run resumes from it, is replayed from it offline, is published with it.

One SQLite file, keyed by content (model, messages, tools, sampling, sample). A reply is in the file before
whoever asked for it goes on, so a killed run pays for no finished call twice. (A power cut may lose the last
seconds: replies are written at once, but not forced onto the disk one by one.)
"""

import gzip
import hashlib
import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pwagents.engine import StaysHere
from pwagents.errors import DataError, InfrastructureError
from pwagents.llm.chat import Reply, key_of
from pwagents.project import written_aside

_TABLE = (
    "CREATE TABLE IF NOT EXISTS reply "
    "(key TEXT PRIMARY KEY, model TEXT NOT NULL, content BLOB NOT NULL, reply TEXT NOT NULL)"
)
_WAIT_S = 60  # for another process that is writing
_IMPORTED_AT_ONCE = 1000


class ResponseStore:
    """The replies in one file; several threads and processes may use it at once.

    SQLite's write-ahead log stands beside the file (``-wal``, ``-shm``: they belong to it), and all processes
    must be on one machine. To copy or publish replies, :meth:`export` them.

    Every method raises DataError when the file is damaged, and leaves it as it is, for its replies were paid
    for; InfrastructureError when it cannot be read or written now (disk full, locked for a minute).
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._lock = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._database_errors(), self._no_empty_file():
            # isolation_level None: transactions begin and end where this file says so.
            self._db = sqlite3.connect(
                self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._set_write_ahead_log()
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(_TABLE)

    def __reduce__(self) -> Any:
        raise StaysHere("the file of a language model's replies belongs to one machine")

    def get(self, key: str) -> Reply | None:
        """The reply to the request of this key; None where none is stored."""
        with self._lock, self._database_errors():
            row = self._db.execute("SELECT content, reply FROM reply WHERE key = ?", (key,)).fetchone()
        return self._checked(key, *row)[1] if row else None

    def put(self, contents: Sequence[str], replies: Sequence[Reply]) -> list[Reply]:
        """Keep replies by their :meth:`Request.content`, all or (when killed) none.

        Returns:
            The replies now stored: another process's, where it was the first with the same request.
        """
        keys = [key_of(content) for content in contents]
        rows = [
            (key, json.loads(content)[0], zlib.compress(content.encode(), 1), reply.model_dump_json())
            for key, content, reply in zip(keys, contents, replies, strict=True)
        ]
        if self._insert(rows) == len(rows):
            return list(replies)
        return [self.get(key) for key in keys]

    def models(self) -> dict[str, int]:
        """How many replies of each model are stored, by name."""
        with self._lock, self._database_errors():
            rows = self._db.execute("SELECT model, count(*) FROM reply GROUP BY model ORDER BY model")
            return dict(rows.fetchall())

    def export(self, path: Path | str) -> int:
        """Write all replies to ``path`` as JSON lines, sorted by key; gzipped when its name ends in ``.gz``.

        The same replies give the same bytes.

        Returns:
            How many there are.

        Raises:
            DataError: a row is not what was stored; ``path`` stays as it was.
        """
        path, count = Path(path), 0
        with written_aside(path) as file, _packed(file, path.suffix == ".gz") as lines:
            for key, content, reply in self._rows():
                (model, request), checked = self._checked(key, content, reply)
                row = {
                    "key": key,
                    "model": model,
                    "request": request,
                    "reply": checked.model_dump(mode="json"),
                }
                lines.write(json.dumps(row, sort_keys=True).encode() + b"\n")
                count += 1
        return count

    def import_(self, path: Path | str) -> int:
        """Take in what :meth:`export` wrote; a reply that is there already stays as it is.

        Returns:
            How many were new.

        Raises:
            DataError: a line is not what was exported. The lines before it, by thousands, are taken in.
        """
        new, rows = 0, []
        for row in _exported_rows(Path(path)):
            rows.append(row)
            if len(rows) == _IMPORTED_AT_ONCE:
                new += self._insert(rows)
                rows = []
        return new + self._insert(rows)

    def close(self) -> None:
        """Close the file; the write-ahead log is worked in when no other process has it open."""
        with self._lock:
            self._db.close()

    def _checked(self, key: str, content: bytes, reply: str) -> tuple[list, Reply]:
        """[model, request] and reply of a row, once they are what was stored under this key."""
        try:
            asked = zlib.decompress(content)
            if hashlib.sha256(asked).hexdigest() != key:
                raise ValueError("another request")
        except (zlib.error, TypeError, ValueError) as error:
            raise DataError(self.path, key, "content", error, "the request whose hash is the key") from None
        return json.loads(asked), _check_reply(reply, self.path, key)

    def _set_write_ahead_log(self) -> None:
        """Unlike all other statements, this one does not wait for other processes by itself."""
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _insert(self, rows: Iterable[tuple]) -> int:
        """Insert the rows of new keys in one transaction; how many those were."""
        with self._lock, self._database_errors():
            before = self._db.total_changes
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT OR IGNORE INTO reply VALUES (?, ?, ?, ?)", rows)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
                raise
            return self._db.total_changes - before

    def _rows(self) -> Iterator[tuple[str, bytes, str]]:
        """Key, packed content and reply of each row, sorted by key; through a connection of its own."""
        with self._database_errors():
            db = sqlite3.connect(self.path, timeout=_WAIT_S)
            try:
                yield from db.execute("SELECT key, content, reply FROM reply ORDER BY key")
            finally:
                db.close()

    @contextmanager
    def _no_empty_file(self) -> Iterator[None]:
        """Of a full disk, SQLite leaves an empty file."""
        try:
            yield
        except BaseException:
            if self.path.is_file() and not self.path.stat().st_size:
                self.path.unlink()
            raise

    @contextmanager
    def _database_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InfrastructureError(f"{self.path}: {error}") from error
        except sqlite3.ProgrammingError as error:
            raise RuntimeError(f"{self.path}: {error}") from error  # used after close(): no damage
        except sqlite3.DatabaseError as error:
            raise DataError(
                self.path,
                "(whole file)",
                "(database)",
                error,
                "a sound response store; it is kept as it is: restore a copy, save what is left with the "
                "command 'sqlite3 FILE .recover', or name another file",
            ) from error


def _check_reply(text: str, path: Path, record: str) -> Reply:
    """The reply as it was stored. Its usage can be no negative number: budgets and cost tables sum it up."""
    try:
        return Reply.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, ("reply", *first["loc"])))
        raise DataError(path, record, field, repr(first["input"])[:80], first["msg"]) from None


@contextmanager
def _packed(file, gzipped: bool):
    """``file`` to write lines to, through gzip if wanted; no name, no time: the same bytes each time."""
    if not gzipped:
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as lines:
        yield lines


def _exported_rows(path: Path) -> Iterator[tuple[str, str, bytes, str]]:
    """The rows of an exported file, each checked."""
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                yield _exported_row(path, f"line {number}", line)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(path, f"line {number + 1}", "(whole line)", error, "a whole gzip file") from None


def _exported_row(path: Path, where: str, line: bytes) -> tuple[str, str, bytes, str]:
    try:
        row = json.loads(line)
        key, model, request, reply = (row[name] for name in ("key", "model", "request", "reply"))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            path, where, "(whole line)", f"{type(error).__name__}: {error}", "one exported reply"
        ) from None
    content = json.dumps([model, request], sort_keys=True)  # as Request.content writes it
    if key != key_of(content):
        raise DataError(path, where, "key", key, f"{key_of(content)}, the hash of model and request")
    checked = _check_reply(json.dumps(reply), path, where)
    return key, model, zlib.compress(content.encode(), 1), checked.model_dump_json()
