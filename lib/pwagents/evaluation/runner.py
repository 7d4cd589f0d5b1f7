"""Run a method on tasks, one stored record per finished episode, and read the records again.

A store is one file with one JSON object a line. Lines are only ever appended, each with an fsync, so a run
may be killed at any moment and started again: what is finished is neither lost nor done twice. A line that
a kill cut short has no line end; it is cut off and its episode runs again. Several methods may share a store.

An episode is known by its key: SHA-256 of task id, method, model and params. Whatever decides the result
must be in there, the hash of the data (``Benchmark.content_hash``) included; the caller puts it in params.
The grader's version is not part of the key: a record of another version is graded anew from its stored
trajectory when it is read, which costs nothing, in place of being run again.
"""

import errno
import fcntl
import hashlib
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from pwagents.errors import DataError, InfrastructureError, NotEvaluableError
from pwagents.evaluation.metrics import GRADER_VERSION, METRICS, Grade, grade
from pwagents.progress import progress
from pwagents.schema import Outcome, Record, Task, TaskType, Trajectory

if TYPE_CHECKING:
    import pandas as pd

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_FRAME_FIELDS = ("method", "model", "task_id", "user_id", "type", "outcome")


class EpisodeRecord(Record):
    """One episode as it is stored; ``seconds`` is wall time, ``message`` says why it was not scored."""

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


def run_episodes(
    tasks: Iterable[Task],
    solve: Callable[[Task], Trajectory],
    store: Path | str,
    *,
    method: str,
    model: str,
    params: Mapping[str, Any],
    workers: int = 1,
    stored_runs_only: bool = False,
    show_progress: bool = True,
) -> list[EpisodeRecord]:
    """Run ``solve`` on every task that ``store`` has no finished episode of; all records in task order.

    Three outcomes are counted apart: ``scored``; ``infrastructure_error`` when ``solve`` raises
    InfrastructureError or OSError (connection errors and time-outs are OSErrors), tried again at the next
    run; ``not_evaluable`` when it raises NotEvaluableError. Anything else it raises stops the run once the
    episodes under way are stored; an interrupt from the keyboard does the same.

    Args:
        solve: plays one episode. It runs in ``workers`` threads, never in the main one, so with more than
            one worker it must be thread-safe.
        params: plain JSON values; all that decides the result besides task, method and model.
        stored_runs_only: run nothing and write nothing; every episode must be in the store.

    Raises:
        DataError: a line of the store is corrupt, two tasks share an id, params are not plain JSON values,
            or, with ``stored_runs_only``, episodes are missing.
        RuntimeError: another process is writing to the store, or ``solve`` failed (the task is named).
    """
    tasks, store = list(tasks), Path(store)
    keys = {task.task_id: episode_key(task.task_id, method, model, params) for task in tasks}
    if len(keys) < len(tasks):
        twice = next(name for name, n in Counter(task.task_id for task in tasks).items() if n > 1)
        raise DataError("tasks", f"task {twice}", "task_id", "the same id twice", "unique ids")

    if stored_runs_only:
        records, _ = _read(store, set(keys.values()))
        _require_all(records, keys, store, method, model)
        return [records[key] for key in keys.values()]

    def play(task: Task) -> bytes:
        fields = {"key": keys[task.task_id], "method": method, "model": model, "params": params}
        return _to_line(_episode(task, solve, fields))

    with _open_locked(store) as file:
        records, whole = _read(store, set(keys.values()))
        if whole < os.path.getsize(store):
            file.truncate(whole)
        finished = {key for key, record in records.items() if record.outcome != "infrastructure_error"}
        missing = [task for task in tasks if keys[task.task_id] not in finished]
        counts = Counter(records[key].outcome for key in finished)
        bar = progress(
            total=len(tasks), initial=len(finished), desc=method, unit="episode", disable=not show_progress
        )
        with bar:
            for line in _play_all(missing, play, file, workers):
                # Read back from its line, so that a fresh and a resumed run give equal records.
                record = _from_line(line, store, 0)
                records[record.key] = record
                counts[record.outcome] += 1
                bar.set_postfix({name: counts[name] for name in OUTCOMES}, refresh=False)
                bar.update()
    return [records[key] for key in keys.values()]


def episode_key(task_id: str, method: str, model: str, params: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of what identifies an episode; the order of ``params`` does not matter."""
    try:
        text = json.dumps([task_id, method, model, dict(params)], sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError("run_episodes", f"method {method}", "params", error, "plain JSON values") from None
    return hashlib.sha256(text.encode()).hexdigest()


def records_frame(records: Sequence[EpisodeRecord]) -> "pd.DataFrame":
    """One row per episode: method, model, task_id, user_id, type, outcome, and the metrics.

    Episodes that were not scored stay, with NaN metrics. Wall time is left out: tables made from this frame
    are the same at every run.
    """
    import pandas as pd

    rows = [
        {name: getattr(record, name) for name in _FRAME_FIELDS}
        | {name: getattr(record.grade, name, math.nan) for name in METRICS}
        for record in records
    ]
    frame = pd.DataFrame(rows, columns=[*_FRAME_FIELDS, *METRICS])
    return frame.astype(dict.fromkeys(METRICS, float))


def count_outcomes(frame: "pd.DataFrame", by: Sequence[str] = ("method",)) -> "pd.DataFrame":
    """Episodes per outcome, all three always there: the columns of ``by``, then one per outcome."""
    counts = frame.groupby(list(by), sort=False)["outcome"].value_counts().unstack(fill_value=0)
    counts = counts.reindex(columns=list(OUTCOMES), fill_value=0)
    return counts.rename_axis(columns=None).reset_index()


def _episode(task: Task, solve: Callable[[Task], Trajectory], fields: Mapping[str, Any]) -> EpisodeRecord:
    """Play one episode and say how it ended."""
    start = time.perf_counter()
    trajectory, graded, message = None, None, ""
    outcome: Outcome = "scored"
    try:
        trajectory = solve(task)
        graded = grade(trajectory)
        if trajectory.task_id != task.task_id:
            raise ValueError(f"solve returned the trajectory of task {trajectory.task_id}")
    except NotEvaluableError as error:
        outcome, message = "not_evaluable", str(error)
    except (InfrastructureError, OSError) as error:
        outcome, message = "infrastructure_error", f"{type(error).__name__}: {error}"
    except Exception as error:
        raise RuntimeError(f"task {task.task_id}: {type(error).__name__}: {error}") from error
    return EpisodeRecord(
        **fields,
        task_id=task.task_id,
        user_id=task.user_id,
        type=task.type,
        outcome=outcome,
        message=message,
        seconds=time.perf_counter() - start,
        trajectory=trajectory,
        grade=graded,
    )


def _play_all(
    tasks: Sequence[Task], play: Callable[[Task], bytes], file: FileIO, workers: int
) -> Iterator[bytes]:
    """Play and store all tasks in threads; yield each stored line.

    Each thread stores its own episode: an interrupt reaches only the main thread, so it cannot fall into a
    write. On any exception no new episode begins, and those under way are finished and stored.
    """
    lock = threading.Lock()

    def play_and_store(task: Task) -> bytes:
        line = play(task)
        with lock:  # a failed write is cut off, and must not take another's line with it
            _append(file, line)
        return line

    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(play_and_store, task) for task in tasks]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _open_locked(store: Path) -> Iterator[FileIO]:
    """The store open for appending, unbuffered, locked against a second writer until closed."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with open(store, "ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                f"{store} is being written by another run; wait for it to end or name another file"
            ) from None
        yield file


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


def _to_line(record: EpisodeRecord) -> bytes:
    # ASCII: what a model wrote may hold lone surrogates, which have no UTF-8 form.
    return json.dumps(record.model_dump(mode="json")).encode("ascii") + b"\n"


_LINE_START = b'{"key": "'


def _read(store: Path, wanted: Set[str]) -> tuple[dict[str, EpisodeRecord], int]:
    """Records of the wanted keys (the last of each key), and the length of all whole lines in bytes."""
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


def _require_all(
    records: Mapping[str, EpisodeRecord], keys: Mapping[str, str], store: Path, method: str, model: str
) -> None:
    missing = [task_id for task_id, key in keys.items() if key not in records]
    if missing:
        raise DataError(
            store,
            f"method {method}, model {model}",
            "episodes",
            f"{len(missing):,} of {len(keys):,} missing (the first is task {missing[0]})",
            "all of them stored; run once with stored_runs_only=False, same params, same data",
        )
