"""Run a method on tasks, one stored record per finished episode, and read the records again.

Records lie in a file that is only ever appended to (:mod:`pwagents.evaluation.store`), so a run may be
killed at any moment and started again: what is finished is neither lost nor done twice. Several methods may
share a file.

An episode is known by its key: SHA-256 of task id, method, model and params. Whatever decides the result
must be in there, the hash of the data (``Benchmark.content_hash``) included; the caller puts it in params.
The grader's version is not part of the key: a record of another version is graded anew from its stored
trajectory when it is read, which costs nothing; to run the episode again would.

Tasks and trajectories are the shop's unless another class of records says what is kept of an episode
(:class:`pwagents.evaluation.records.Episode`).

A method with memory across tasks (InteRecAgent) runs with :func:`run_user_episodes`: each user's tasks one
after another in time order. What it remembers stands in the record, and the key holds the tasks before.
"""

import copy
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import pandas as pd

from pwagents.errors import DataError, InfrastructureError, NotEvaluableError
from pwagents.evaluation.chains import play_chains
from pwagents.evaluation.records import NUMBERS, Episode, EpisodeRecord, PlayedTask
from pwagents.evaluation.store import Store
from pwagents.progress import progress
from pwagents.schema import Outcome, Task, Trajectory

Memory = dict[str, Any] | None  # what a method remembers of a user, plain JSON; None without such a memory
_Solve = Callable[[Any, Memory], tuple[Any, Memory]]
E = TypeVar("E", bound=Episode)
T = TypeVar("T", bound=PlayedTask)

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_FRAME_FIELDS = ("method", "model", "task_id", "user_id", "type", "outcome")


def run_episodes(
    tasks: Iterable[T],
    solve: Callable[[T], Any],
    store: Path | str,
    *,
    method: str,
    model: str,
    params: Mapping[str, Any],
    workers: int = 1,
    stored_runs_only: bool = False,
    here: bool = False,
    record: type[E] = EpisodeRecord,
) -> list[E]:
    """Run ``solve`` on every task that ``store`` has no finished episode of; all records in task order.

    Three outcomes are counted apart: ``scored``; ``infrastructure_error`` when ``solve`` raises
    InfrastructureError or OSError (connection errors and time-outs are OSErrors), tried again at the next
    run; ``not_evaluable`` when it raises NotEvaluableError. Anything else it raises stops the run once the
    episodes under way are stored; an interrupt from the keyboard does the same.

    Args:
        solve: task -> trajectory: plays one episode. It runs in ``workers`` threads, never in the main one,
            so with more than one worker it must be thread-safe; or on a cluster (:mod:`pwagents.engine`),
            in processes that each have a copy of it and of all that it holds.
        params: plain JSON values; all that decides the result besides task, method and model.
        stored_runs_only: run nothing and write nothing; every episode must be in the store.
        here: run in this process whatever the engine: ``solve`` computes several episodes at once, say.
        record: what is kept of an episode.

    Raises:
        DataError: a line of the store is corrupt, two tasks share an id, params are not plain JSON values,
            or, with ``stored_runs_only``, episodes are missing.
        RuntimeError: another process is writing to the store, or ``solve`` failed (the task is named).
    """
    tasks = list(tasks)
    fields = {"method": method, "model": model, "params": params}
    keys = {task.task_id: episode_key(task.task_id, **fields) for task in tasks}

    def solve_alone(task: T, _: Memory) -> tuple[Any, Memory]:
        return solve(task), None

    chains, options = [[task] for task in tasks], (workers, stored_runs_only, here, record)
    return _run(tasks, chains, keys, solve_alone, None, Path(store), fields, *options)


def run_user_episodes(
    tasks: Iterable[Task],
    solve: Callable[[Task, dict[str, Any]], tuple[Trajectory, dict[str, Any]]],
    store: Path | str,
    *,
    method: str,
    model: str,
    params: Mapping[str, Any],
    workers: int = 1,
    stored_runs_only: bool = False,
) -> list[EpisodeRecord]:
    """:func:`run_episodes` for a method that remembers a user from one task to the next.

    Each user's tasks run one after another in time order (at the same time: in the order given); users run in
    parallel. A task that cannot be evaluated leaves the memory as it was. After an infrastructure error the
    user's later tasks wait, as infrastructure errors too, for the next run. A task's result depends on the
    tasks before it: with others before it, it is another episode and runs again.

    Args:
        solve: (task, memory) -> (trajectory, memory afterwards). The memory is a dict of plain JSON values,
            empty at a user's first task; what ``solve`` does to the one it is given changes nothing.
    """
    tasks = list(tasks)
    fields = {"method": method, "model": model, "params": params}
    chains, keys = _by_user(tasks), {}
    for chain in chains:
        key = "a user's tasks in time order"
        for task in chain:
            key = keys[task.task_id] = episode_key(task.task_id, **fields, after=key)
    options = (workers, stored_runs_only, False, EpisodeRecord)
    return _run(tasks, chains, keys, solve, {}, Path(store), fields, *options)


def episode_key(task_id: str, method: str, model: str, params: Mapping[str, Any], after: str = "") -> str:
    """SHA-256 (hex) of what identifies an episode; the order of ``params`` does not matter.

    Args:
        after: for a method with memory, the key of the user's task before this one.
    """
    parts = [task_id, method, model, dict(params)] + ([after] if after else [])
    try:
        text = json.dumps(parts, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError("run_episodes", f"method {method}", "params", error, "plain JSON values") from None
    return hashlib.sha256(text.encode()).hexdigest()


def records_frame(records: Sequence[EpisodeRecord]) -> pd.DataFrame:
    """One row per episode: method, model, task_id, user_id, type, outcome, the metrics, tokens and usd.

    Episodes that were not scored stay, with NaN metrics. Wall time is left out: tables made from this frame
    are the same at every run.

    Raises:
        ValueError: several versions of the grader graded them: their numbers do not belong in one table.
    """
    versions = sorted({record.grade.grader_version for record in records if record.grade})
    if len(versions) > 1:
        raise ValueError(
            f"episodes graded by versions {', '.join(versions)} of the grader; expected one. Read them from "
            "their store again, which grades all by the present version"
        )
    rows = [{name: getattr(each, name) for name in _FRAME_FIELDS} | each.numbers for each in records]
    frame = pd.DataFrame(rows, columns=[*_FRAME_FIELDS, *NUMBERS])
    return frame.astype(dict.fromkeys(NUMBERS, float))


def count_outcomes(frame: pd.DataFrame, by: Sequence[str] = ("method",)) -> pd.DataFrame:
    """Episodes per outcome, all three always there: the columns of ``by``, then one per outcome."""
    counts = frame.groupby(list(by), sort=False)["outcome"].value_counts().unstack(fill_value=0)
    counts = counts.reindex(columns=list(OUTCOMES), fill_value=0)
    return counts.rename_axis(columns=None).reset_index()


def require_played(records: Sequence[Episode]) -> None:
    """Stop before tables are made of a part of the episodes.

    Raises:
        InfrastructureError: some episode ended with an infrastructure error; says how many, why the first
            did, and what to do. Finished episodes are stored.
    """
    failed = [record for record in records if record.outcome == "infrastructure_error"]
    if failed:
        first = failed[0]
        raise InfrastructureError(
            f"{len(failed):,} of {len(records):,} episodes could not be played, the first ({first.method}, "
            f"task {first.task_id}) because of {first.message}. All others are stored: mend the cause and "
            "run again to go on from there"
        )


def _by_user(tasks: Sequence[Task]) -> list[list[Task]]:
    """Each user's tasks in time order; users in the order of their first mention."""
    chains: dict[str, list[Task]] = {}
    for task in tasks:
        chains.setdefault(task.user_id, []).append(task)
    return [sorted(chain, key=lambda task: task.timestamp) for chain in chains.values()]


def _run(
    tasks: list[T],
    chains: Sequence[Sequence[T]],
    keys: Mapping[str, str],
    solve: _Solve,
    memory_at_first: Memory,
    store: Path,
    fields: Mapping[str, Any],
    workers: int,
    stored_runs_only: bool,
    here: bool,
    kept: type[E],
) -> list[E]:
    """Play what is missing: chains in parallel, the tasks of a chain one after another."""
    if len(keys) < len(tasks):
        twice = next(name for name, n in Counter(task.task_id for task in tasks).items() if n > 1)
        raise DataError("tasks", f"task {twice}", "task_id", "the same id twice", "unique ids")

    episodes, wanted = Store(store, kept), set(keys.values())
    if stored_runs_only:
        records = {record.key: record for record in episodes.read(wanted)}
        _require_all(records, keys, store, fields)
        return [records[keys[task.task_id]] for task in tasks]

    with episodes.appending() as append:
        records = {record.key: record for record in episodes.read(wanted)}  # the last of a key counts
        finished = {key: r for key, r in records.items() if r.outcome != "infrastructure_error"}
        counts = Counter(record.outcome for record in finished.values())
        links = [[(task, key := keys[task.task_id], finished.get(key)) for task in chain] for chain in chains]
        unfinished = [chain for chain in links if any(record is None for *_, record in chain)]
        play = partial(_missing, solve=solve, memory=memory_at_first, fields=fields, kept=kept)
        with progress(total=len(tasks), initial=len(finished), desc=fields["method"], unit="episode") as bar:
            for record in play_chains(play, unfinished, append, workers, here):
                records[record.key] = record
                counts[record.outcome] += 1
                bar.set_postfix({name: counts[name] for name in OUTCOMES}, refresh=False)
                bar.update()
    return [records[keys[task.task_id]] for task in tasks]


def _missing(
    chain: Sequence[tuple[T, str, E | None]],
    solve: _Solve,
    memory: Memory,
    fields: Mapping[str, Any],
    kept: type[E],
) -> Generator[E, E, None]:
    """A chain's missing episodes, each played when it is asked for; with a task come its key and, where it
    is finished, its record."""
    failed = None
    for task, key, record in chain:
        if record is None:
            record = yield _episode(task, solve, memory, failed, {"key": key, **fields}, kept)
        if record.outcome == "infrastructure_error":
            failed = failed or task
        memory = record.memory


def _episode(
    task: T, solve: _Solve, memory: Memory, failed: T | None, fields: Mapping[str, Any], kept: type[E]
) -> E:
    """Play one episode and say how it ended. ``failed``: the task before it that has to come first."""
    start = time.perf_counter()
    message, after = "", memory
    outcome: Outcome = "scored"
    details = kept.details(task, None)
    try:
        if failed:
            raise InfrastructureError(f"waits for task {failed.task_id} of the same user")
        trajectory, after = solve(task, copy.deepcopy(memory))
        json.dumps(after, allow_nan=False)
        details = kept.details(task, trajectory)
        if trajectory.task_id != task.task_id:
            raise ValueError(f"solve returned the trajectory of task {trajectory.task_id}")
    except NotEvaluableError as error:
        outcome, message = "not_evaluable", str(error)
    except (InfrastructureError, OSError) as error:
        outcome, message, after = "infrastructure_error", f"{type(error).__name__}: {error}", None
    except Exception as error:
        raise RuntimeError(f"task {task.task_id}: {type(error).__name__}: {error}") from error
    return kept(
        **fields,
        task_id=task.task_id,
        user_id=task.user_id,
        outcome=outcome,
        message=message,
        seconds=time.perf_counter() - start,
        memory=after,
        **details,
    )


def _require_all(
    records: Mapping[str, EpisodeRecord], keys: Mapping[str, str], store: Path, fields: Mapping[str, Any]
) -> None:
    missing = [task_id for task_id, key in keys.items() if key not in records]
    if missing:
        raise DataError(
            store,
            f"method {fields['method']}, model {fields['model']}",
            "episodes",
            f"{len(missing):,} of {len(keys):,} missing (the first is task {missing[0]})",
            "all of them stored; run once with stored_runs_only=False, same params, same data",
        )
