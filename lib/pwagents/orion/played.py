"""Episodes of the role-play as they are stored: one JSON object a line, only ever appended."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pwagents.errors import DataError
from pwagents.evaluation.episode_store import open_locked
from pwagents.profiles.types import ContextualProfile
from pwagents.schema import Benchmark, Record, Split, Task, Trajectory
from pwagents.web.episode import BeliefState, Context

# Why a trajectory is not kept, in the order in which it is looked for; empty: it is kept.
Failure = Literal[
    "", "not evaluable", "malformed", "leak by the user", "leak by the teacher", "too long", "no success"
]
_LINE_START = b'{"key":'


class Played(Record):
    """One episode of the role-play.

    Args:
        key: of the settings it was played with.
        task_id, round: which task, and in which of the rounds over the tasks.
        failure: why it is not kept; empty where it is.
        observation: the environment's first words.
        bought: the ids told beside P_ctx,0.
        profiles: P_ctx,t before each step, and at the end.
        trajectory: the steps; None where the task cannot be evaluated.
    """

    key: str
    task_id: str
    round: int
    failure: Failure
    observation: str = ""
    bought: tuple[str, ...] = ()
    profiles: tuple[ContextualProfile, ...] = ()
    trajectory: Trajectory | None = None

    def states(self, benchmark: Benchmark, task: Task, split: Split = "train") -> list[BeliefState]:
        """S_t before each step and at the end, as they were when it was played.

        Args:
            task: the one it was played on, of ``split``.

        Raises:
            ValueError: it was played on another task.
        """
        if task.task_id != self.task_id or self.trajectory is None:
            raise ValueError(f"an episode of task {self.task_id} has no belief states of task {task.task_id}")
        first = BeliefState(
            user_id=task.user_id,
            instruction=task.instruction,
            observation=self.observation,
            product=benchmark.products[task.target] if task.type == "review" else None,
            history=benchmark.history(task, split),
            context=Context(self.profiles[0], self.bought),
        )
        steps = self.trajectory.steps
        return [replace(first, session=steps[:i], profile=p) for i, p in enumerate(self.profiles)]


class PlayedStore:
    """The episodes of one key in a file that other keys may share. Safe to use from several threads."""

    def __init__(self, file: FileIO, key: str):
        self.path, self.key = Path(file.name), key
        self._file, self._lock = file, threading.Lock()
        self._played = {(p.round, p.task_id): p for p in read_played(self.path, key)}

    def get(self, number: int, task_id: str) -> Played | None:
        """The episode of a task in a round, if it was played before."""
        return self._played.get((number, task_id))

    def add(self, played: Played) -> Played:
        """Store an episode for good; when the disk refuses, nothing of it stays."""
        line = played.model_dump_json().encode() + b"\n"
        with self._lock:
            start = self._file.seek(0, os.SEEK_END)
            try:
                if self._file.write(line) < len(line):
                    raise OSError(f"{self.path}: the episode could not be written whole; is the disk full?")
                os.fsync(self._file.fileno())
            except OSError:
                self._file.truncate(start)
                raise
        return played


@contextmanager
def open_played(path: Path | str, key: str) -> Iterator[PlayedStore]:
    """The store of a key, locked against other writers; a line that a kill cut short is cut off.

    Raises:
        DataError: a line is corrupt.
        RuntimeError: another process is writing to it.
    """
    with open_locked(Path(path)) as file:
        whole = sum(len(line) for _, line in _whole_lines(Path(path)))
        file.truncate(whole)
        yield PlayedStore(file, key)


def read_played(path: Path | str, key: str | None = None) -> list[Played]:
    """The stored episodes of a key, or all, in the order in which they ended.

    Raises:
        DataError: a line is corrupt.
    """
    played = (_read(line, Path(path), number) for number, line in _whole_lines(Path(path)))
    return [episode for episode in played if key in (None, episode.key)]


def _whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number, line) of a file; a last line that a kill cut short is none."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n") or not _LINE_START.startswith(line[: len(_LINE_START)]):
                yield number, line


def _read(line: bytes, path: Path, number: int) -> Played:
    try:
        return Played.model_validate(json.loads(line))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "(whole record)"
        raise DataError(path, f"line {number}", field, repr(first["input"])[:80], first["msg"]) from None
    except ValueError as error:
        expected = "one episode of the role-play"
        raise DataError(path, f"line {number}", "(whole line)", f"no JSON ({error})", expected) from None
