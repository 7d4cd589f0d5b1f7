"""Finished work as folders named by what it follows from: nothing is made twice, and no folder is believed.

Work under way lies in ``.<name>-<12 hex digits>.part``, its checkpoints with it, so that what was killed goes
on. Finished, the folder is renamed to ``<name>-<12 hex digits>``. Its last file lists all others with size
and SHA-256, and each use of the folder compares them, since a copy that stopped or a power cut leaves folders
that look finished. A damaged one is set aside as ``.<name>-<12 hex digits>.damaged`` and made again.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pwagents.errors import DataError
from pwagents import portable
from pwagents_old.project import file_hash, write_aside

KEY, FILES = "made_from.json", "files.json"
CARD = "README.md"  # of a model, which gets its measured results later: not listed
# Bytes of a file whose SHA-256 each use computes, at a second for two gigabytes. Larger are weights, of which
# a use compares the size alone: their loader looks at the numbers.
SMALL = 2**26
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

    Of several processes one makes it and the others wait. A damaged one is set aside, with a line that says
    so, and made again from the beginning.

    Args:
        root: folder of all that is kept; removing any folder in it is safe, it is made again.
        name: what it is, for people ("base", "sft", "recommender").
        key_parts: hashes of data, settings, seed, code (:func:`pwagents_old.project.code_hash`). Machine,
            portability and library versions are added.
        make: writes into a folder; after a kill it gets the same one again, with what it left there.
        stored_only: make nothing.

    Raises:
        TypeError, ValueError: ``key_parts`` is no JSON.
        DataError: it is not there or damaged, and nothing may be made.
    """
    made_by = {"machine": platform.machine(), "portable": not portable.shortfall()}
    facts = {**key_parts, **made_by, "versions": {lib: version(lib) for lib in LIBRARIES}}
    key = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    folder = Path(root) / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    wrong = damage(folder) if folder.exists() else "nothing"
    if not wrong:
        return folder
    if stored_only:
        expected = f"{folder.name}; run once with stored_runs_only=False, same settings, same data"
        raise DataError(folder.parent, name, "folder", wrong, expected)
    part = folder.with_name(f".{folder.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the process ends, however it does
        if folder.exists() and (wrong := damage(folder)):  # unless another process has made it by now
            aside = folder.with_name(f".{folder.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
            os.replace(folder, aside)
            print(f"{folder.name} is damaged ({wrong}) and is made again; the damaged copy is {aside}")
        if not folder.exists():
            part.mkdir(exist_ok=True)
            make(part)
            write_aside(part / KEY, json.dumps(facts, sort_keys=True, ensure_ascii=False, indent=2) + "\n")
            seal(part)
            os.replace(part, folder)
            _sync(folder.parent)
    return folder


def damage(folder: Path, *, all_bytes: bool = False) -> str:
    """Say in what a folder differs from its list of files; an empty text where it is whole.

    Files that were added to the folder later do not count.

    Args:
        all_bytes: compare the SHA-256 of large files, too.
    """
    try:
        listed = json.loads((folder / FILES).read_text("utf-8"))
        for name, (size, sha256) in listed.items():
            found = (folder / name).stat().st_size
            if found != size:
                return f"{name} has {found:,} bytes, was written with {size:,}"
            if (all_bytes or size <= SMALL) and file_hash(folder / name) != sha256:
                return f"{name} has other bytes than it was written with"
    except (FileNotFoundError, NotADirectoryError) as error:
        return f"no {Path(error.filename).relative_to(folder)}"
    except (ValueError, AttributeError, TypeError):
        return f"{FILES} is no list of files"
    return ""


def seal(folder: Path) -> None:
    """Bring all files of a finished folder to the disk, then list them for :func:`damage`."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name not in (CARD, FILES))
    for file in files:
        _sync(file)
    listed = {str(f.relative_to(folder)): (f.stat().st_size, file_hash(f)) for f in files}
    write_aside(folder / FILES, json.dumps(listed, indent=1) + "\n")
    _sync(folder / FILES)


def _sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def hash_of(content: Any) -> str:
    """Return 16 hex digits over JSON values such as training examples, for ``key_parts``."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
