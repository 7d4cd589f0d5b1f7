"""The file of stored episodes: one JSON object a line, only ever appended, each line with an fsync.

A line that a kill cut short has no line end; it is cut off before the next one is written. A record of
another grader version is graded anew from its stored trajectory when it is read.
"""

import errno
import fcntl
import json
import os
import threading
from collections.abc import Generator, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pydantic import ValidationError

from pwagents.errors import DataError
from pwagents.evaluation.metrics import GRADER_VERSION, Grade, grade
from pwagents.schema import Outcome, Record, TaskType, Trajectory


class EpisodeRecord(Record):
    """One episode as it is stored.

    ``seconds`` is wall time, ``message`` says why it was not scored. ``memory`` is what a method with memory
    across tasks knew of the user afterwards (None for other methods, and where the task must be tried again).
    """

    key: str
    task_id: str
    user_id: str
    type: TaskType
    method: str
    model: str
    params: dict[str, Any]
    outcome: Outcome
    message: str = ""
    seconds: float
    trajectory: Trajectory | None = None
    grade: Grade | None = None
    memory: dict[str, Any] | None = None


@contextmanager
def open_locked(store: Path) -> Iterator[FileIO]:
    """The store open for appending, unbuffered, locked against a second writer until closed.

    Raises:
        RuntimeError: another process has it open.
    """
    store.parent.mkdir(parents=True, exist_ok=True)
    with open(store, "ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                f"{store} is being written by another run; wait for it to end or name another file"
            ) from None
        yield file


# Plays episodes one after another; each yield hands one out and gets it back as it was stored.
Chain = Generator[EpisodeRecord, EpisodeRecord, None]


def append_all(file: FileIO, chains: Sequence[Chain], workers: int) -> Iterator[EpisodeRecord]:
    """Play all chains in threads and append each episode once it is there; yield the records as stored.

    A record is read back from its line, so that a fresh and a resumed run give equal ones. Each thread stores
    its own episodes: an interrupt reaches only the main thread, so it cannot fall into a write. On any
    exception no new episode begins, and those under way are finished and stored.
    """
    lock, stop = threading.Lock(), threading.Event()
    results: SimpleQueue[EpisodeRecord | BaseException | None] = SimpleQueue()  # None: a chain has ended

    def play(chain: Chain) -> None:
        try:
            record = next(chain, None)
            while record:
                line = _to_line(record)
                with lock:  # a failed write is cut off, and must not take another's line with it
                    _append(file, line)
                stored = _from_line(line, Path(file.name), 0)
                results.put(stored)
                if stop.is_set():
                    return
                record = _send(chain, stored)
            results.put(None)
        except BaseException as error:  # the main thread raises it
            results.put(error)

    pool = ThreadPoolExecutor(workers)
    try:
        for chain in chains:
            pool.submit(play, chain)
        ended = 0
        while ended < len(chains):
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            if result is None:
                ended += 1
            else:
                yield result
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _to_line(record: EpisodeRecord) -> bytes:
    # ASCII: what a model wrote may hold lone surrogates, which have no UTF-8 form.
    return json.dumps(record.model_dump()).encode("ascii") + b"\n"


_LINE_START = b'{"key": "'


def read_records(store: Path, wanted: Set[str]) -> tuple[dict[str, EpisodeRecord], int]:
    """Records of the wanted keys (the last of each key), and the length of all whole lines in bytes.

    Raises:
        DataError: a line is corrupt.
    """
    records: dict[str, EpisodeRecord] = {}
    whole = 0
    if not store.exists():
        return records, whole
    with open(store, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") and _LINE_START.startswith(line[: len(_LINE_START)]):
                break  # a kill cut this one short
            whole += len(line)
            record = _from_line(line, store, number, wanted)
            if record:
                records[record.key] = record
    return records, whole


def _from_line(line: bytes, store: Path, number: int, wanted: Set[str] | None = None) -> EpisodeRecord | None:
    """The record of a line, graded by the grader at hand; None when its key is not a wanted one."""
    where = (store, f"line {number}")
    try:
        data = json.loads(line.decode())
    except ValueError as error:
        raise DataError(*where, "(whole line)", f"no JSON ({error})", "one episode record") from None
    if not isinstance(data, dict) or "key" not in data:
        raise DataError(*where, "key", "none", "one episode record with its key")
    if wanted is not None and data["key"] not in wanted:
        return None
    try:
        stored_grade = data.get("grade")
        if stored_grade and stored_grade.get("grader_version") != GRADER_VERSION:
            data["grade"] = grade(Trajectory.model_validate(data["trajectory"])).model_dump()
        return EpisodeRecord.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "(whole record)"
        raise DataError(*where, field, repr(first["input"])[:80], first["msg"]) from None


def _append(file: FileIO, line: bytes) -> None:
    """Append a line for good, or, when the disk refuses, nothing of it."""
    start = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, "the record could not be written whole", file.name)
        os.fsync(file.fileno())
    except OSError:
        file.truncate(start)
        raise


def _send(chain: Chain, stored: EpisodeRecord) -> EpisodeRecord | None:
    """Hand a stored record back to its chain: the next one, or None at the end."""
    try:
        return chain.send(stored)
    except StopIteration:
        return None
