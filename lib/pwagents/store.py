"""Stored results: folders of what was made, and lines of what was played.

    folder = made(root, "sasrec", facts, make)      # make(folder) runs once
    records = episodes(file, tasks, play, facts)    # play(task) runs once for each task

``facts`` holds all that decides a result: settings, hashes of data, a seed, and under "code" the names of the
modules that decide it, which are hashed as they were loaded. Titles, labels and analyses stand in other
modules, so rewording them makes nothing again.
"""

import ast
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import Any

from pwagents import LOADED, portable
from pwagents.errors import DataError, InfrastructureError, NotEvaluableError
from pwagents.progress import progress
from pwagents.schema import Outcome, Record, Task, TaskType, Trajectory

LIBRARIES = ("torch", "transformers", "trl")  # other versions may give other weights
ALIKE = 3  # infrastructure errors with the same message, after which a run pauses
Facts = Mapping[str, Any]


@cache
def code_hash(*modules: str) -> str:
    """Return 16 hex digits over modules ("shop.search") and their YAML files, as they were loaded.

    Comments, docstrings and layout do not count.

    Raises:
        KeyError: there is no such module.
    """
    digest = hashlib.sha256()
    for module in sorted(modules):
        stem = module.replace(".", "/")
        files = [
            f"{stem}{suffix}" for suffix in (".py", ".yaml", ".csv", ".html") if f"{stem}{suffix}" in LOADED
        ]
        if f"{stem}.py" not in files:
            raise KeyError(f"no module {module!r} in the library")
        for file in files:
            code = LOADED[file]
            if file.endswith(".py"):
                tree = ast.parse(code)
                for node in ast.walk(tree):
                    if isinstance(getattr(node, "body", None), list):
                        node.body = [n for n in node.body if not _is_text(n)] or [ast.Pass()]
                code = ast.unparse(tree).encode()
            digest.update(f"\n{file}\n".encode() + code)
    return digest.hexdigest()[:16]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def key_of(*parts: Any, facts: Facts) -> str:
    """Return the key (64 hex digits) of what follows from ``facts``, whose "code" are names of modules."""
    facts = {**facts, "code": code_hash(*facts["code"])}
    text = json.dumps([*parts, facts], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def made(
    root: Path, name: str, facts: Facts, make: Callable[[Path], object], *, stored_only: bool = False
) -> Path:
    """Return the folder of what follows from ``facts``; ``make`` fills it where it is not there yet.

    Work in progress lies in ``.NAME-KEY.part``, which a killed run continues; of several processes one makes
    it and the others wait. A finished folder lists its files with their SHA-256: one that is damaged is
    renamed ``.NAME-KEY.damaged`` and rebuilt.

    Raises:
        DataError: it is not stored, and ``stored_only`` is set.
    """
    machine = {"machine": platform.machine(), "portable": portable.is_on()}
    versions = {library: version(library) for library in LIBRARIES}
    folder = root / f"{name}-{key_of(name, machine, versions, facts=facts)[:12]}"
    if not (wrong := _damage(folder)):
        return folder
    if stored_only:
        raise DataError(root, name, "folder", wrong, f"{folder.name}; run once with stored_runs_only=False")
    root.mkdir(parents=True, exist_ok=True)
    part, aside = folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.damaged")
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists() and (wrong := _damage(folder)):  # unless another process has made it by now
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(folder, aside)
            print(f"{folder.name} is damaged ({wrong}) and is made again; the damaged copy is {aside}")
        if not folder.exists():
            part.mkdir(exist_ok=True)
            make(part)
            listed = {str(f.relative_to(part)): file_hash(f) for f in sorted(part.rglob("*")) if f.is_file()}
            write_aside(part / "made_from.json", json.dumps({**facts, **machine, **versions}, indent=2))
            write_aside(part / "files.json", json.dumps(listed, indent=1))
            os.replace(part, folder)
    return folder


def _damage(folder: Path) -> str:
    """Return what is wrong with a finished folder; an empty text if nothing is."""
    try:
        for name, sha256 in json.loads((folder / "files.json").read_text("utf-8")).items():
            if file_hash(folder / name) != sha256:
                return f"{name} has other bytes than it was written with"
    except OSError as error:
        return f"no {error.filename}"
    except (ValueError, AttributeError):
        return "files.json is no list of files"
    return ""


class Episode(Record):
    """One stored episode; ``memory`` is what a method remembers of the user afterwards."""

    key: str
    task_id: str
    user_id: str
    type: TaskType
    outcome: Outcome
    message: str = ""
    seconds: float
    memory: dict[str, Any] | None = None
    trajectory: Trajectory | None = None


def episodes(
    file: Path,
    tasks: Sequence[Task],
    play: Callable[..., Any],
    facts: Facts,
    *,
    workers: int = 1,
    stored_only: bool = False,
    memory: dict[str, Any] | None = None,
) -> list[Episode]:
    """Return the episode of each task, in their order; those that ``file`` lacks are played.

    Three outcomes are told apart: *scored* (an agent's own errors included), *not evaluable* (nobody can be
    scored on the task) and *infrastructure error* (an endpoint is down), which the next run tries again.

    Args:
        play: task -> trajectory, called in ``workers`` threads.
        memory: for methods that remember a user, what they know at first. ``play`` is then (task, memory) ->
            (trajectory, memory), and each user's tasks run in time order.

    Raises:
        InfrastructureError: an episode could not be played; all others are stored.
        DataError: ``stored_only``, and an episode is missing; or a line of the file is corrupt.
        RuntimeError: ``play`` failed, or another process writes the file.
    """
    chains: dict[str, list[tuple[Task, str]]] = {}
    for task in sorted(tasks, key=lambda task: task.timestamp) if memory is not None else tasks:
        chain = chains.setdefault(task.task_id if memory is None else task.user_id, [])
        chain.append((task, key_of(task.task_id, *(key for _, key in chain[-1:]), facts=facts)))
    keys = {task.task_id: key for chain in chains.values() for task, key in chain}
    found = {each.key: each for each in read_lines(file) if each.key in {*keys.values()}}
    done = {key: each for key, each in found.items() if each.outcome != "infrastructure_error"}
    missing = [chain for chain in chains.values() if any(key not in done for _, key in chain)]
    if stored_only and missing:
        raise DataError(
            file, "-", "episodes", f"{len(missing)} missing", "all; run once with stored_runs_only=False"
        )

    lock = threading.Lock()

    def play_chain(chain: list[tuple[Task, str]], lines: FileIO) -> list[Episode]:
        known, played = memory, []
        for task, key in chain:
            if key not in done:
                played.append(_play(task, key, play, known))
                with lock:
                    append_line(lines, json.dumps(played[-1].model_dump()).encode("ascii") + b"\n")
                if played[-1].outcome == "infrastructure_error":
                    break
            known = (done.get(key) or played[-1]).memory
        return played

    if missing:
        with open_lines(file) as lines, ThreadPoolExecutor(workers) as pool:
            futures, alike = [pool.submit(play_chain, chain, lines) for chain in missing], []
            bar = {"total": len(futures), "desc": file.stem, "unit": "episode"}
            try:
                for future in progress(as_completed(futures), **bar):
                    for each in future.result():
                        done[each.key] = each
                        failed = each.outcome == "infrastructure_error"
                        alike = [*alike, re.sub(r"\S*\d\S*", "", each.message)] if failed else []
                        if len(alike) >= ALIKE and len({*alike[-ALIKE:]}) == 1:
                            raise InfrastructureError(f"paused after {ALIKE} equal failures: {each.message}")
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
    records = [done.get(keys[task.task_id]) for task in tasks]
    failed = [each for each in records if each is None or each.outcome == "infrastructure_error"]
    if failed:
        why = next((each.message for each in failed if each), "an earlier failure")
        raise InfrastructureError(
            f"{len(failed)} of {len(tasks)} episodes could not be played: {why}. Run again."
        )
    return records


def _play(task: Task, key: str, play: Callable[..., Any], memory: dict[str, Any] | None) -> Episode:
    """Play one episode, and return it with its outcome."""
    start, outcome, message, trajectory, after = time.perf_counter(), "scored", "", None, memory
    try:
        if memory is None:
            trajectory = play(task)
        else:
            trajectory, after = play(task, json.loads(json.dumps(memory)))
    except NotEvaluableError as error:
        outcome, message = "not_evaluable", str(error)
    except (InfrastructureError, OSError) as error:
        outcome, message = "infrastructure_error", f"{type(error).__name__}: {error}"
    except Exception as error:
        raise RuntimeError(f"task {task.task_id}: {type(error).__name__}: {error}") from error
    who = {"key": key, "task_id": task.task_id, "user_id": task.user_id, "type": task.type}
    how = {"outcome": outcome, "message": message, "seconds": time.perf_counter() - start, "memory": after}
    return Episode(**who, **how, trajectory=trajectory)


def read_lines(file: Path) -> Iterator[Episode]:
    """Yield the episodes of a file; half a line at its end, which a killed run leaves, is passed over."""
    if not file.exists():
        return
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Episode.model_validate_json(line)
            except ValueError as error:
                raise DataError(file, f"line {number}", "(whole line)", error, "one episode") from None


@contextmanager
def open_lines(path: Path, *, wait: bool = False) -> Iterator[FileIO]:
    """Open a file for one writer to append lines to; half a line at its end is cut away.

    Raises:
        RuntimeError: another process is writing, and this one does not ``wait``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise RuntimeError(f"{path} is being written by another run; wait for it to end") from None
        content = path.read_bytes()
        file.truncate(content.rfind(b"\n") + 1)
        yield file


def append_line(file: FileIO, line: bytes) -> None:
    """Append a line durably or, if the disk refuses (OSError), nothing of it."""
    start = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) < len(line):
            raise OSError(f"{file.name}: the disk is full")
        os.fsync(file.fileno())
    except OSError:
        file.truncate(start)
        raise


def file_hash(file: Path) -> str:
    """Return the file's SHA-256, 64 hex digits."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_aside(path: Path, content: str | bytes) -> None:
    """Write a file beside its place and move it there, so that no reader sees half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(aside, path)
    except OSError as error:  # a full disk: nothing is left behind, and the message names the file
        with suppress(OSError):
            aside.unlink()
        error.filename = str(path)
        raise
