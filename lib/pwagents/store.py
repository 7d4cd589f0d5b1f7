"""Stored results: folders of what was made, and lines of what was played.

    folder = made(root, "sasrec", facts, make)                        # make(folder) runs once
    records = episodes(file, tasks, play, facts, method="ReAct")      # play(task) runs once for each task

``facts`` holds all that decides a result: settings, hashes of data, a seed, the endpoint of a chat model, and
under "code" the names of the modules that decide it, which are hashed as they were loaded
(:mod:`pwagents.code`). Titles, labels and analyses stand in other modules, so rewording them makes nothing
again.

Three outcomes of an episode are distinguished: *scored* (an agent's own errors included), *not evaluable*
(the task, the simulated user or a judge cannot score it, whoever acts) and *infrastructure error* (an
endpoint is down, a disk is full), which the next run tries again. Grades are computed when records are read.
"""

import fcntl
import hashlib
import itertools
import json
import os
import platform
import re
import shutil
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import Field

from pwagents import engine, portable
from pwagents.code import hash_of, hashes_of, require_loaded
from pwagents.errors import DataError, InfrastructureError, NotEvaluableError, describe, is_outage
from pwagents.files import append_line, damage, open_line, open_lines, seal, seal_line, sync, write_aside
from pwagents.progress import count, progress
from pwagents.schema import Outcome, Record, TaskType, Trajectory
from pwagents.urls import changes_served

KEY = "made_from.json"
LIBRARIES = ("torch", "transformers", "trl")  # other versions may give other weights
ALIKE = 3  # failures of one kind, one after another, after which a run pauses
_WAITS = "waits for task"
_START = b'{"key":'  # of every line
Facts = Mapping[str, Any]


def with_code(facts: Facts) -> tuple[dict[str, Any], dict[str, str]]:
    """Return facts with the hash of their code in place of its modules' names, and the hash of each file."""
    code = facts["code"]
    hashes = {} if isinstance(code, str) else hashes_of(*code)  # a text is a hash already
    return {**facts, "code": hash_of(hashes) if hashes else code}, hashes


def made(
    root: Path | str, name: str, facts: Facts, make: Callable[[Path], object], *, stored_only: bool = False
) -> Path:
    """Return the folder of what follows from ``facts``; ``make`` fills it where it is not there yet.

    Work in progress lies in ``.NAME-KEY.part``, which a killed run continues; of several processes one makes
    it and the others wait. The last file of a finished folder lists all others with size and SHA-256, and
    each use compares them: a folder that is damaged is renamed ``.NAME-KEY.damaged`` and rebuilt.

    Args:
        root: folder of all that is kept; any folder in it may be removed, it is made again.
        name: what it is, for people ("base", "sft", "sasrec").
        facts: see above; machine, portability and library versions are added.
        make: writes into a folder; after a kill it gets the same one again, with what it left there.
        stored_only: make nothing.

    Raises:
        TypeError, ValueError: ``facts`` is no JSON.
        DataError: it is not there or damaged, and nothing may be made.
        InfrastructureError: the disk is full.
        StaleCodeError: a module of "code" was edited after it had been loaded.
    """
    facts, hashes = with_code(facts)
    facts |= {"machine": platform.machine(), "portable": portable.is_on()}
    facts |= {"versions": {library: version(library) for library in LIBRARIES}}
    key = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    folder = Path(root) / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    wrong = damage(folder) if folder.exists() else "nothing"
    if not wrong:
        return folder
    if stored_only:
        expected = f"{folder.name}; run once with stored_runs_only=False, same settings, same data"
        raise DataError(folder.parent, name, "folder", wrong, expected)
    part, aside = folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.damaged")
    part.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it does
        if folder.exists() and (wrong := damage(folder)):  # unless another process has made it by now
            shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
            os.replace(folder, aside)
            print(f"{folder.name} is damaged ({wrong}) and is rebuilt; the damaged copy is {aside}")
        if not folder.exists():
            require_loaded(hashes)
            part.mkdir(exist_ok=True)
            try:
                make(part)
            except Exception as error:  # libraries have errors of their own, which name no file
                if "No space left on device" in str(error):
                    raise InfrastructureError(f"{part}: {describe(error)}") from error
                raise
            write_aside(part / KEY, json.dumps(facts, sort_keys=True, ensure_ascii=False, indent=2) + "\n")
            seal(part)
            require_loaded(hashes)
            os.replace(part, folder)
            sync(folder.parent)
    return folder


class Keyed(Record):
    """What a :class:`Store` holds. Records with the same ``key`` are read together."""

    key: str  # the first field, so that each line begins with it


class StoredEpisode(Keyed):
    """One episode of any kind of task. A subclass adds a field ``trajectory`` and what :meth:`details` gives.

    Args:
        params: the facts of :func:`episodes`, with the hash of the code.
        message: why it was not scored; else empty.
        seconds: wall time.
        memory: what a method with memory across tasks remembers of the user afterwards; None for other
            methods, and where the task must be tried again.
        served: what each endpoint said of its model when the episode was played, by model.
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
    served: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def details(cls, task: Any, trajectory: Any) -> dict[str, Any]:
        """Return the subclass's own fields; ``trajectory`` is None where the episode was not scored."""
        return {"trajectory": trajectory}


class Episode(StoredEpisode):
    """One episode of the shop; ``instruction`` is what the user asked for."""

    type: TaskType
    instruction: str = ""
    trajectory: Trajectory | None = None

    @classmethod
    def details(cls, task: Any, trajectory: Trajectory | None) -> dict[str, Any]:
        return {"type": task.type, "instruction": task.instruction, "trajectory": trajectory}


@dataclass(frozen=True)
class Store:
    """Records of one class as JSON lines; the file need not exist before the first is appended."""

    path: Path
    record: type[Keyed]

    def read(self, keys: Container[str] | None = None) -> Iterator[Any]:
        """Yield the records with these keys, or all, in the order in which they were appended.

        Lines without a checksum, of an earlier version, are passed over and counted in one printed line.

        Raises:
            DataError: a line is corrupt or does not fit its checksum; names file, line and field.
        """
        if not self.path.exists():
            return
        unsealed = 0
        with open(self.path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                # The last line, cut short, or NULs, which a power cut leaves; other files' ends are refused.
                if not line.endswith(b"\n") and _START.startswith(line.rstrip(b"\0")[: len(_START)]):
                    break
                try:
                    if not (text := open_line(line.decode("ascii").rstrip("\n"))):
                        unsealed += bool(json.loads(line)["key"])
                        continue
                    data = json.loads(text)
                    if keys is None or data["key"] in keys:
                        yield self.record.model_validate(data)
                except (ValueError, KeyError, TypeError) as error:  # pydantic's names the field
                    wrong = f"{type(error).__name__}: {error}"
                    expected = "one JSON record with its key"
                    raise DataError(self.path, f"line {number}", "(whole line)", wrong, expected) from None
        if unsealed:
            what = "were stored by an earlier version, without a checksum: they are not read, but made again"
            print(f"{self.path}: {unsealed:,} lines {what}.")

    @contextmanager
    def appending(self, hashes: Mapping[str, str] = {}) -> Iterator[Callable[[Any], Any]]:
        """Open the file, and give a function that appends a record durably.

        It may be called from several threads. It returns the record as it is read from its line, so that a
        fresh and a resumed run go on with equal ones. It raises an OSError if the disk refuses, and a
        StaleCodeError if a file of the library with one of these ``hashes`` has been edited.
        """
        with open_lines(self.path) as file:
            lock = threading.Lock()  # a failed write is cut off, and must not take another's line with it

            def append(record: Keyed) -> Keyed:
                # ASCII: what a model wrote may hold lone surrogates, which have no UTF-8 form.
                line = json.dumps(record.model_dump())
                stored = self.record.model_validate(json.loads(line))
                with lock:
                    require_loaded(hashes)
                    append_line(file, seal_line(line).encode("ascii") + b"\n")
                return stored

            yield append


def episodes(
    store: Path | str,
    tasks: Iterable[Any],
    play: Callable[..., Any],
    facts: Facts,
    *,
    method: str = "",
    model: str = "none",
    workers: int = 1,
    stored_only: bool = False,
    anew: bool = False,
    here: bool = False,
    record: type[StoredEpisode] = Episode,
    memory: dict[str, Any] | None = None,
    served: Callable[[], dict[str, Any]] = dict,
) -> list[Any]:
    """Return the record of each task, in their order; those that the file ``store`` lacks are played.

    The file is only appended to, and several methods may share it. A record's key is the SHA-256 of task id,
    method, model and facts.

    Args:
        play: task -> trajectory: plays one episode. It runs in ``workers`` threads, never in the main one,
            so with more than one worker it must be thread-safe; or on a cluster (:mod:`pwagents.engine`), in
            processes that each have a copy of it and of all that it holds.
        method, model: what records and tables call them.
        stored_only: play nothing and write nothing; every episode must be stored.
        anew: play all, whatever is stored: for an agent whose version the facts do not name.
        here: run in this process whatever the engine: ``play`` computes several episodes at once, say.
        record: what is kept of an episode.
        memory: for a method that remembers a user, what it knows at the first task: plain JSON values.
            ``play`` is then (task, memory) -> (trajectory, memory afterwards); what it does to the memory it
            is given changes nothing.
        served: gives what endpoints say of their models now; called where episodes may be played. It is no
            part of a key. Where stored episodes hold something else, a line says so.

    With ``memory``, each user's tasks run one after another in time order (at the same time: in the order
    given), users in parallel. A task that cannot be evaluated leaves the memory as it was. After an
    infrastructure error the user's later tasks wait, as such errors too, for the next run. With other tasks
    before it, a task is another episode and runs again.

    Raises:
        DataError: a line of the file is corrupt, two tasks share an id, facts are not plain JSON values,
            or, with ``stored_only``, episodes are missing.
        InfrastructureError: an episode could not be played, or three in a row met the same failure, such as
            an endpoint that is down or rejects all that is asked in the same words. All others are stored.
        RuntimeError: another process is writing to the file, or ``play`` failed; names the task.
        StaleCodeError: a module of "code" was edited after it had been loaded.
    """
    tasks, (facts, hashes) = list(tasks), with_code(facts)
    fields: dict[str, Any] = {"method": method, "model": model, "params": facts}
    chains = chain_episodes(tasks, **fields, by_user=memory is not None)
    keys = {task.task_id: key for chain in chains for task, key in chain}
    lines = Store(Path(store), record)
    stored = () if anew else lines.read({*keys.values()})
    records = {each.key: each for each in stored}  # the last of a key counts
    missing = [task_id for task_id, key in keys.items() if key not in records]
    if stored_only and missing:
        counted = f"{len(missing):,} of {len(keys):,} missing (the first is task {missing[0]})"
        expected = "all of them stored; run once with stored_runs_only=False, same params, same data"
        raise DataError(store, f"method {method}, model {model}", "episodes", counted, expected)
    done = {key: each.memory for key, each in records.items() if each.outcome != "infrastructure_error"}
    unfinished = [chain for chain in chains if any(key not in done for _, key in chain)]
    count("episodes stored", len(done))
    if not stored_only:
        fields["served"] = served()
        _report_other_models(
            method, [each for each in records.values() if each.key in done], fields["served"]
        )
    if stored_only or not unfinished:
        return _require_played([records[keys[task.task_id]] for task in tasks])

    require_loaded(hashes)
    stop = threading.Event()

    held: list[StoredEpisode] = []  # not kept yet: rejected ones, and what comes after one in a chain

    def play_chain(chain: Sequence[tuple[Any, str]]) -> Iterator[StoredEpisode]:
        """Play a chain's missing episodes."""
        remembered, failed = memory, ""
        for task, key in chain:
            if key in done:
                remembered = done[key]
                continue
            ended = _play(task, play, remembered, failed, {"key": key, **fields}, record)
            yield ended
            failed = failed or (task.task_id if ended.outcome == "infrastructure_error" else "")
            remembered = ended.memory
            if stop.is_set():
                break

    def play_elsewhere(chain: Sequence[tuple[Any, str]]) -> list[StoredEpisode]:
        """Play a chain in another process, which may have loaded other code."""
        require_loaded(hashes)
        return [*play_chain(chain)]

    def keep(played: Iterable[StoredEpisode]) -> list[StoredEpisode]:
        """Keep each episode of a chain once it is over."""
        kept, holds = [], False
        for each in played:
            holds = holds or _is_rejected(each)
            if holds:
                held.append(each)
            kept.append(each if holds else append(each))
        return kept

    # On a cluster, what it plays in one round is kept once the round is over. Here, threads keep their own
    # records: an interrupt reaches the main thread alone, and so never falls into a write. After it, and
    # after any exception, no episode begins, and those under way are kept.
    is_here = here or engine.in_use == "local"
    at_work = None if is_here else engine.remote(play_elsewhere)
    with (
        lines.appending(hashes) as append,
        progress(total=len(tasks), initial=len(done), desc=method or lines.path.stem, unit="episode") as bar,
    ):
        pool = ThreadPoolExecutor(workers)
        try:
            if at_work is not None:
                kept = ([keep(part) for part in round_] for round_ in at_work(unfinished))
                parts = itertools.chain.from_iterable(kept)
            else:
                threads = [pool.submit(lambda chain: keep(play_chain(chain)), each) for each in unfinished]
                parts = (ended.result() for ended in as_completed(threads))
            alike: list[str] = []
            for part in parts:
                count("episodes played", len(part))
                records |= {each.key: each for each in part}
                bar.update(len(part))
                for each in part:
                    if each.outcome != "infrastructure_error" and not _is_rejected(each):
                        alike = []
                    elif f"{_WAITS} " not in each.message:
                        alike.append(each.message or each.trajectory.message)
                # Words with a digit name a request, a time, an attempt.
                if len(alike) >= ALIKE and len({re.sub(r"\S*\d\S*", "", m) for m in alike[-ALIKE:]}) == 1:
                    message = f"paused after {ALIKE} failures alike, the last: {alike[-1]}"
                    raise InfrastructureError(f"{message}; what was finished is stored: run again to go on")
            # Three rejections alike are no result of a model, so none is kept before the run has ended well.
            records |= {each.key: each for each in pool.map(append, held)}
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return _require_played([records[keys[task.task_id]] for task in tasks])


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
    play: Callable[..., Any],
    memory: dict[str, Any] | None,
    failed: str,
    fields: Mapping[str, Any],
    record: type[StoredEpisode],
) -> StoredEpisode:
    """Play one episode and say how it ended. ``failed``: the user's earlier task that has to come first."""
    start, trajectory, after = time.perf_counter(), None, memory
    outcome, message = "scored", ""
    try:
        if failed:
            raise InfrastructureError(f"{_WAITS} {failed} of the same user")
        if memory is None:
            trajectory = play(task)
        else:
            # As a resumed run reads it from the store.
            trajectory, after = play(task, json.loads(json.dumps(memory)))
            json.dumps(after, allow_nan=False)
        if trajectory.task_id != task.task_id:
            raise ValueError(f"play returned the trajectory of task {trajectory.task_id}")
    except NotEvaluableError as error:
        outcome, message = "not_evaluable", describe(error)
    except Exception as error:
        what = describe(error)
        if not (isinstance(error, InfrastructureError) or is_outage(error)):
            raise RuntimeError(f"task {task.task_id}: {what}") from error
        outcome, message, after = "infrastructure_error", what, None
    own = {"outcome": outcome, "message": message, "seconds": time.perf_counter() - start, "memory": after}
    who = {"task_id": task.task_id, "user_id": task.user_id}
    return record(**fields, **who, **own, **record.details(task, trajectory))


def _report_other_models(method: str, stored: Sequence[StoredEpisode], served: Mapping[str, Any]) -> None:
    """Say how many episodes were played when an endpoint said something else of its model."""
    for model, now in served.items():
        before = [each.served[model] for each in stored if model in each.served]
        if changes := [change for said in before if (change := changes_served(said, now))]:
            count("episodes stored of a model served otherwise", len(changes))
            print(
                f"{method}: of {model} the endpoint said something else when {len(changes):,} episodes were "
                f"stored ({changes[0]}). Another model there needs another players.endpoint."
            )


def _is_rejected(each: StoredEpisode) -> bool:
    """Return whether an endpoint refused a request of this episode for a reason of its own."""
    ended = getattr(each, "trajectory", None)
    return (each.message or getattr(ended, "message", "")).startswith("RejectedError: ")


def _require_played(records: list[StoredEpisode]) -> list[StoredEpisode]:
    """Return the records, unless some are infrastructure errors: no table is made of a part of them."""
    if failed := [each for each in records if each.outcome == "infrastructure_error"]:
        first = failed[0]
        raise InfrastructureError(
            f"{len(failed):,} of {len(records):,} episodes could not be played, the first ({first.method}, "
            f"task {first.task_id}) because of {first.message}. All others are stored: mend the cause and "
            "run again to go on from there"
        )
    return records
