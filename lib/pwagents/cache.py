"""Finished work as folders named by what it follows from: nothing is made twice.

Work under way lies in ``.<name>-<12 hex digits>.part``, its checkpoints with it, so that what was killed goes
on. Finished, the folder is renamed to ``<name>-<12 hex digits>``: a name without the dot says it is whole.
"""

import fcntl
import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pwagents import portable
from pwagents.errors import DataError
from pwagents.project import write_aside

KEY = "made_from.json"
LIBRARIES = ("torch", "transformers", "trl")  # other versions may give other weights


def cached(
    root: Path | str,
    name: str,
    key_parts: Mapping[str, Any],
    make: Callable[[Path], object],
    *,
    stored_only: bool = False,
) -> Path:
    """Return the folder of what follows from ``key_parts``; ``make`` fills it where it is not there yet.

    Of several processes one makes it and the others wait.

    Args:
        root: folder of all that is kept; removing any folder in it is safe, it is made again.
        name: what it is, for people ("base", "sft", "recommender").
        key_parts: hashes of data, settings, seed, code (:func:`pwagents.project.code_hash`). Machine,
            portability and library versions are added.
        make: writes into a folder; after a kill it gets the same one again, with what it left there.
        stored_only: make nothing.

    Raises:
        TypeError, ValueError: ``key_parts`` is no JSON.
        DataError: it is not there, and nothing may be made.
    """
    made_by = {"machine": platform.machine(), "portable": not portable.shortfall()}
    facts = {**key_parts, **made_by, "versions": {lib: version(lib) for lib in LIBRARIES}}
    key = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    folder = Path(root) / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    if stored_only:
        expected = f"{folder.name}; run once with stored_runs_only=False, same settings, same data"
        raise DataError(folder.parent, name, "folder", "nothing", expected)
    part = folder.with_name(f".{folder.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the process ends, however it does
        if not folder.exists():
            part.mkdir(exist_ok=True)
            make(part)
            write_aside(part / KEY, json.dumps(facts, sort_keys=True, ensure_ascii=False, indent=2) + "\n")
            os.replace(part, folder)
    return folder


def hash_of(content: Any) -> str:
    """Return 16 hex digits over JSON values such as training examples, for ``key_parts``."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
