"""Run an agent on tasks and keep every episode as one JSON line, so that a run may be killed and goes on.

    records = run_episodes(tasks, solve, "runs/03.jsonl", method="ReAct", model="gpt-4o", params={...})

A file of episodes is only ever appended to, and several methods may share it. An episode is known by its key,
SHA-256 of task id, method, model and params. Whatever decides the result must be in there, the data's hash
(``Benchmark.content_hash``) included; the caller puts it in params. Grades are computed when they are read.

Three outcomes are counted apart. *Scored*: what the agent did has a grade, its own errors included. *Not
evaluable*: the task, the simulated user or a judge cannot score it, whoever acts. *Infrastructure error*: an
endpoint is down or a disk is full; the next run tries the episode again.
"""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from pwagents.errors import DataError, InfrastructureError, NotEvaluableError
from pwagents.progress import progress
from pwagents.schema import Outcome, Record, TaskType, Trajectory
from pwagents_old import engine
from pwagents.results.metrics import METRICS, Grade, grade

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
NUMBERS = (*METRICS, "tokens", "usd")  # of a scored episode; the last two are of the agent's model
ALIKE = 3  # infrastructure errors of one kind, one after another, after which a run pauses
_WAITS = "waits for task"
FIELDS = ("method", "model", "task_id", "user_id", "type", "outcome")
_START = b'{"key":'  # of every line


class Keyed(Record):
    """What a :class:`Store` holds. Records with the same ``key`` are read together."""

    key: str  # the first field, so that each line begins with it


class Episode(Keyed):
    """One episode of any kind of task. A subclass adds a field ``trajectory`` and what :meth:`details` gives.

    Args:
        message: why it was not scored; else empty.
        seconds: wall time.
        memory: what a method with memory across tasks remembers of the user afterwards; None for other
            methods, and where the task must be tried again.
    """

    task_id: str
    user_id: str
    method: str
    model: str
    params: dict[str, Any]
    outcome: Outcome
    message: str = ""
    seconds: float
    memory: dict[str, Any] | None = None

    @classmethod
    def details(cls, task: Any, trajectory: Any) -> dict[str, Any]:
        """Return the subclass's own fields; ``trajectory`` is None where the episode was not scored."""
        return {"trajectory": trajectory}


class EpisodeRecord(Episode):
    """One episode of the shop; ``instruction`` is what the user asked for."""

    type: TaskType
    instruction: str = ""
    trajectory: Trajectory | None = None

    @classmethod
    def details(cls, task: Any, trajectory: Trajectory | None) -> dict[str, Any]:
        return {"type": task.type, "instruction": task.instruction, "trajectory": trajectory}

    @property
    def grade(self) -> Grade | None:
        """The metrics, computed from the trajectory; None where the episode was not scored."""
        return grade(self.trajectory) if self.trajectory else None

    @property
    def numbers(self) -> dict[str, float]:
        """:data:`NUMBERS` by name; empty where the episode was not scored."""
        if self.trajectory is None:
            return {}
        usage = self.trajectory.usage
        return self.grade.model_dump() | {"tokens": usage.tokens, "usd": usage.usd}


@dataclass(frozen=True)
class Store:
    """Records of one class as JSON lines; the file need not exist before the first is appended."""

    path: Path
    record: type[Keyed]

    def read(self, keys: Container[str] | None = None) -> Iterator[Any]:
        """Yield the records with these keys, or all, in the order in which they were appended.

        Raises:
            DataError: a line is corrupt; names file, line and field.
        """
        if not self.path.exists():
            return
        with open(self.path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                # The last line, cut short; other files' ends are refused.
                if not line.endswith(b"\n") and _START.startswith(line[: len(_START)]):
                    return
                try:
                    data = json.loads(line)
                    if keys is None or data["key"] in keys:
                        yield self.record.model_validate(data)
                except (ValueError, KeyError, TypeError) as error:  # pydantic's names the field
                    wrong = f"{type(error).__name__}: {error}"
                    expected = "one JSON record with its key"
                    raise DataError(self.path, f"line {number}", "(whole line)", wrong, expected) from None

    @contextmanager
    def appending(self) -> Iterator[Callable[[Any], Any]]:
        """Open the file (:func:`open_lines`), and give a function that appends a record for good.

        It may be called from several threads. It returns the record as it is read from its line, so that a
        fresh and a resumed run go on with equal ones. Where the disk refuses it raises an OSError.
        """
        with open_lines(self.path) as file:
            lock = threading.Lock()  # a failed write is cut off, and must not take another's line with it

            def append(record: Keyed) -> Keyed:
                # ASCII: what a model wrote may hold lone surrogates, which have no UTF-8 form.
                line = json.dumps(record.model_dump())
                stored = self.record.model_validate(json.loads(line))
                with lock:
                    append_line(file, line.encode("ascii") + b"\n")
                return stored

            yield append


@contextmanager
def open_lines(path: Path, *, wait: bool = False) -> Iterator[FileIO]:
    """Open a file for one writer to append lines to; what a killed run left of its last line is cut away.

    Raises:
        RuntimeError: another process is appending, and this one does not ``wait``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            wrong = f"{path} is being written by another run"
            raise RuntimeError(f"{wrong}; wait for it to end or name another file") from None
        with open(path, "rb") as lines:
            torn = sum(len(line) for line in lines if not line.endswith(b"\n"))  # the last one alone
        if torn:
            file.truncate(file.seek(0, os.SEEK_END) - torn)
            print(f"{path}: the last line, which a killed run left unfinished, was cut away.")
        yield file


def append_line(file: FileIO, line: bytes) -> None:
    """Append a line for good (fsync) or, where the disk refuses (OSError), nothing of it."""
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


def run_episodes(
    tasks: Iterable[Any],
    solve: Callable[..., Any],
    store: Path | str,
    *,
    method: str,
    model: str,
    params: Mapping[str, Any],
    workers: int = 1,
    stored_runs_only: bool = False,
    here: bool = False,
    record: type[Episode] = EpisodeRecord,
    memory: dict[str, Any] | None = None,
) -> list[Any]:
    """Play every task that ``store`` has no finished episode of, and return all records in task order.

    Args:
        solve: task -> trajectory: plays one episode. It runs in ``workers`` threads, never in the main one,
            so with more than one worker it must be thread-safe; or on a cluster (:mod:`pwagents_old.engine`),
            in processes that each have a copy of it and of all that it holds.
        params: plain JSON values; all that decides the result besides task, method and model.
        stored_runs_only: run nothing and write nothing; every episode must be in the store.
        here: run in this process whatever the engine: ``solve`` computes several episodes at once, say.
        record: what is kept of an episode.
        memory: for a method that remembers a user, what it knows at the first task: plain JSON values.
            ``solve`` is then (task, memory) -> (trajectory, memory afterwards); what it does to the memory it
            is given changes nothing.

    With ``memory``, each user's tasks run one after another in time order (at the same time: in the order
    given), users in parallel. A task that cannot be evaluated leaves the memory as it was. After an
    infrastructure error the user's later tasks wait, as such errors too, for the next run. With other tasks
    before it, a task is another episode and runs again.

    Raises:
        DataError: a line of the store is corrupt, two tasks share an id, params are not plain JSON values,
            or, with ``stored_runs_only``, episodes are missing.
        InfrastructureError: three episodes in a row met the same failure, such as an endpoint that is down.
        RuntimeError: another process is writing to the store, or ``solve`` failed; names the task.
    """
    tasks, fields = list(tasks), {"method": method, "model": model, "params": dict(params)}
    chains = chain_episodes(tasks, **fields, by_user=memory is not None)
    keys = {task.task_id: key for chain in chains for task, key in chain}
    episodes = Store(Path(store), record)
    records = {each.key: each for each in episodes.read(set(keys.values()))}  # the last of a key counts
    missing = [task_id for task_id, key in keys.items() if key not in records]
    if stored_runs_only and missing:
        counted = f"{len(missing):,} of {len(keys):,} missing (the first is task {missing[0]})"
        expected = "all of them stored; run once with stored_runs_only=False, same params, same data"
        raise DataError(store, f"method {method}, model {model}", "episodes", counted, expected)
    done = {key: each.memory for key, each in records.items() if each.outcome != "infrastructure_error"}
    unfinished = [chain for chain in chains if any(key not in done for _, key in chain)]
    if stored_runs_only or not unfinished:
        return [records[keys[task.task_id]] for task in tasks]

    stop = threading.Event()

    def play(chain: Sequence[tuple[Any, str]], keep: Callable[[Episode], Episode] | None) -> list[Episode]:
        """Play a chain's missing episodes; each is kept once it is over."""
        played, remembered, failed = [], memory, ""
        for task, key in chain:
            if key in done:
                remembered = done[key]
                continue
            made = _play(task, solve, remembered, failed, {"key": key, **fields}, record)
            played.append(keep(made) if keep else made)
            failed = failed or (task.task_id if made.outcome == "infrastructure_error" else "")
            remembered = made.memory
            if stop.is_set():
                break
        return played

    # On a cluster, what it plays in one round is kept once the round is over. Here, threads keep their own
    # records: an interrupt reaches the main thread alone, and so never falls into a write. After it, and
    # after any exception, no episode begins, and those under way are kept.
    at_work = None if here else engine.remote(partial(play, keep=None))
    with (
        episodes.appending() as append,
        progress(total=len(tasks), initial=len(done), desc=method, unit="episode") as bar,
    ):
        pool = ThreadPoolExecutor(workers)
        try:
            if at_work is not None:
                kept = ([[*map(append, part)] for part in round_] for round_ in at_work(unfinished))
                parts = itertools.chain.from_iterable(kept)
            else:
                threads = [pool.submit(play, chain, append) for chain in unfinished]
                parts = (ended.result() for ended in as_completed(threads))
            alike: list[str] = []
            for part in parts:
                records |= {each.key: each for each in part}
                bar.update(len(part))
                for each in part:
                    if each.outcome != "infrastructure_error":
                        alike = []
                    elif f"{_WAITS} " not in each.message:
                        alike.append(each.message)
                # Words with a digit name a request, a time, an attempt.
                if len(alike) >= ALIKE and len({re.sub(r"\S*\d\S*", "", m) for m in alike[-ALIKE:]}) == 1:
                    message = f"paused after {ALIKE} failures alike, the last: {alike[-1]}"
                    raise InfrastructureError(f"{message}; what was finished is stored: run again to go on")
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return [records[keys[task.task_id]] for task in tasks]


def chain_episodes(
    tasks: Sequence[Any], *, method: str, model: str, params: Mapping[str, Any], by_user: bool = False
) -> list[list[tuple[Any, str]]]:
    """Return what is played one after another: chains of tasks, each with the key of its episode.

    A chain is one task or, ``by_user``, those of a user in time order, where a key holds the one before it.
    The order of ``params`` does not matter.

    Raises:
        DataError: two tasks share an id, or params are not plain JSON values.
    """
    together: dict[str, list[Any]] = {}
    for task in tasks:
        together.setdefault(task.user_id if by_user else task.task_id, []).append(task)
    chains, ids = [], set()
    for group in together.values():
        chain, after = [], ["a user's tasks in time order"] if by_user else []
        for task in sorted(group, key=lambda task: task.timestamp) if by_user else group:
            if task.task_id in ids:
                raise DataError("tasks", f"task {task.task_id}", "task_id", "the same id twice", "unique ids")
            ids.add(task.task_id)
            # A key holds the one before it, and so all that the user's memory comes from.
            parts = [task.task_id, method, model, dict(params), *after]
            try:
                text = json.dumps(parts, sort_keys=True, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise DataError("params", f"method {method}", "params", error, "plain JSON values") from None
            chain.append((task, key := hashlib.sha256(text.encode()).hexdigest()))
            after = [key] if by_user else []
        chains.append(chain)
    return chains


def _play(
    task: Any,
    solve: Callable[..., Any],
    memory: dict[str, Any] | None,
    failed: str,
    fields: Mapping[str, Any],
    record: type[Episode],
) -> Episode:
    """Play one episode and say how it ended. ``failed``: the user's earlier task that has to come first."""
    start, trajectory, after = time.perf_counter(), None, memory
    outcome, message = "scored", ""
    try:
        if failed:
            raise InfrastructureError(f"{_WAITS} {failed} of the same user")
        if memory is None:
            trajectory = solve(task)
        else:
            # As a resumed run reads it from the store.
            trajectory, after = solve(task, json.loads(json.dumps(memory)))
            json.dumps(after, allow_nan=False)
        if trajectory.task_id != task.task_id:
            raise ValueError(f"solve returned the trajectory of task {trajectory.task_id}")
    except NotEvaluableError as error:
        outcome, message = "not_evaluable", str(error)
    except (InfrastructureError, OSError) as error:  # connection errors and time-outs are OSErrors
        outcome, message, after = "infrastructure_error", f"{type(error).__name__}: {error}", None
    except Exception as error:
        raise RuntimeError(f"task {task.task_id}: {type(error).__name__}: {error}") from error
    own = {"outcome": outcome, "message": message, "seconds": time.perf_counter() - start, "memory": after}
    who = {"task_id": task.task_id, "user_id": task.user_id}
    return record(**fields, **who, **own, **record.details(task, trajectory))


def records_frame(records: Sequence[EpisodeRecord]) -> pd.DataFrame:
    """Return one row an episode: :data:`FIELDS`, then :data:`NUMBERS`, then why it ended (``end``).

    Episodes that were not scored stay, with NaN metrics. Wall time is left out: tables made from this frame
    are the same at every run.
    """
    rows = []
    for each in records:
        end = each.trajectory.end if each.trajectory else ""
        rows.append({name: getattr(each, name) for name in FIELDS} | each.numbers | {"end": end})
    return pd.DataFrame(rows, columns=[*FIELDS, *NUMBERS, "end"]).astype(dict.fromkeys(NUMBERS, float))


def count_outcomes(frame: pd.DataFrame, by: Sequence[str] = ("method",)) -> pd.DataFrame:
    """Count episodes by outcome, all three always there: the columns of ``by``, then one an outcome."""
    counts = frame.groupby(list(by), sort=False)["outcome"].value_counts().unstack(fill_value=0)
    return counts.reindex(columns=list(OUTCOMES), fill_value=0).rename_axis(columns=None).reset_index()


def require_played(records: Sequence[Episode]) -> None:
    """Stop before tables are made of a part of the episodes.

    Raises:
        InfrastructureError: some episode ended with an infrastructure error; says how many, why the first
            did, and what to do. Finished episodes are stored.
    """
    failed = [each for each in records if each.outcome == "infrastructure_error"]
    if failed:
        first = failed[0]
        raise InfrastructureError(
            f"{len(failed):,} of {len(records):,} episodes could not be played, the first ({first.method}, "
            f"task {first.task_id}) because of {first.message}. All others are stored: mend the cause and "
            "run again to go on from there"
        )
