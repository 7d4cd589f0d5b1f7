"""Records in a file: one JSON object a line, only ever appended.

A process may be killed at any moment: each line is on the disk (fsync) before whoever wrote it goes on, and a
line that the kill cut short is cut off before the next one is written. Several threads may append, but only
one process at a time.
"""

import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from pwagents.errors import DataError
from pwagents.schema import Record


class Keyed(Record):
    """What a store holds. Records with the same ``key`` are read together; a file may hold several keys."""

    key: str  # the first field, so that each line begins with it


R = TypeVar("R", bound=Keyed)
_LINE_START = b'{"key":'


def as_stored(record: R) -> R:
    """The record as it is read from its line: tuples within JSON values are lists, say."""
    return record.model_validate(json.loads(json.dumps(record.model_dump())))


class Store(Generic[R]):
    """The records of one class in a file, which need not exist before the first is appended."""

    def __init__(self, path: Path | str, record: type[R]):
        self.path, self.record = Path(path), record

    def read(self, keys: Container[str] | None = None) -> Iterator[R]:
        """The records with these keys, or all, in the order in which they were appended.

        Lines with other keys are not looked at any further: a file shared by many methods is read fast.

        Raises:
            DataError: a line is corrupt; names file, line and field.
        """
        if not self.path.exists():
            return
        with open(self.path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if not _is_cut_short(line):
                    data = self._parse(line, number)
                    if keys is None or data["key"] in keys:
                        yield self._validate(data, number)

    @contextmanager
    def appending(self) -> Iterator[Callable[[R], R]]:
        """Lock the file and mend it; what is given appends a record for good.

        That returns the record as it was stored, that is, made again from its line: a fresh and a resumed run
        then go on with equal ones. When the disk refuses (OSError), nothing of the record stays. Several
        threads may call it.

        Raises:
            RuntimeError: another process is appending.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RuntimeError(
                    f"{self.path} is being written by another run; wait for it to end or name another file"
                ) from None
            with open(self.path, "rb") as lines:
                file.truncate(sum(len(line) for line in lines if not _is_cut_short(line)))
            lock = threading.Lock()  # a failed write is cut off, and must not take another's line with it

            def append(record: R) -> R:
                # ASCII: what a model wrote may hold lone surrogates, which have no UTF-8 form.
                line = json.dumps(record.model_dump()).encode("ascii") + b"\n"
                stored = self._validate(json.loads(line), "to be written")
                with lock:
                    append_line(file, line)
                return stored

            yield append

    def _parse(self, line: bytes, number: int) -> dict:
        where = (self.path, f"line {number}")
        try:
            data = json.loads(line.decode())
        except ValueError as error:
            raise DataError(*where, "(whole line)", f"no JSON ({error})", "one record") from None
        if not isinstance(data, dict) or not isinstance(data.get("key"), str):
            raise DataError(*where, "key", "no text", "one record with its key")
        return data

    def _validate(self, data: dict, number: int | str) -> R:
        try:
            return self.record.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "(whole record)"
            raise DataError(
                self.path, f"line {number}", field, repr(first["input"])[:80], first["msg"]
            ) from None


def _is_cut_short(line: bytes) -> bool:
    """Whether a kill fell into the writing of this line: a file's last, without its end.

    What does not begin as a record does is no line of a store, and is left for :meth:`Store.read` to refuse.
    """
    return not line.endswith(b"\n") and _LINE_START.startswith(line[: len(_LINE_START)])


def append_line(file: FileIO, line: bytes) -> None:
    """Append a line for good, or, when the disk refuses (OSError), nothing of it."""
    start = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, "the record could not be written whole", file.name)
        os.fsync(file.fileno())
    except OSError as error:
        file.truncate(start)
        if error.errno:  # write() does not say where
            error.filename = file.name
        raise
