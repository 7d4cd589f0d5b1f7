"""Files that are never half there: written beside their place and moved, appended line by line, or listed."""

import codecs
import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from pwagents.errors import DataError

FILES = "files.json"  # what a finished folder lists its files in
# Bytes of a file whose SHA-256 each use computes, at a second for two gigabytes. Larger files are weights, of
# which a use compares the size alone: their loader looks at the numbers.
SMALL = 2**26
_SUM = ', "sha256": "'  # before the checksum of a line


def file_hash(file: Path) -> str:
    """Return the file's SHA-256, 64 hex digits."""
    with open(file, "rb") as opened:  # models are large
        return hashlib.file_digest(opened, "sha256").hexdigest()


def read_json_lines(
    path: Path, *, torn: bool = False, change: Callable[[str], str] = str
) -> Iterator[tuple[int, Any]]:
    """Yield the number of each line and its JSON value. Lines end at "\\n" alone; empty ones are passed over.

    Args:
        torn: the last line may be half of one, which a killed or a running process left: it is left out.
        change: of a line's text, before it is read.

    Raises:
        DataError: a line is no JSON in UTF-8; names file and line.
    """
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if torn and not line.endswith(b"\n"):
                return
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            try:
                if text := line.decode("utf-8").strip(" \t\r\n"):
                    yield number, json.loads(change(text))
            except (ValueError, RecursionError) as error:
                raise DataError(
                    path, f"line {number}", "(whole line)", error, "one JSON value in UTF-8"
                ) from None


def write_aside(path: Path, content: str | bytes) -> None:
    """Write a file, as :func:`written_aside` does."""
    with written_aside(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def written_aside(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside its place, and move it there at the end: no reader ever sees half of it.

    Raises:
        OSError: the disk is full, say; names ``path``. What was there stays, and nothing is left beside it.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as file:
            yield file
        os.replace(aside, path)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError) and error.errno:  # write() does not say where
            error.filename = str(path)
        raise


@contextmanager
def open_lines(path: Path, *, wait: bool = False) -> Iterator[FileIO]:
    """Open a file for one writer to append lines to; half a line at its end is cut away.

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
            print(f"{path}: the last line, which a killed run or a power cut left unfinished, was cut away.")
        yield file


def append_line(file: FileIO, line: bytes) -> None:
    """Append a line durably (fsync) or, if the disk refuses (OSError), nothing of it."""
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


def seal_line(text: str, place: str = "") -> str:
    """Return a JSON object's text with a last field: 16 hex digits of the SHA-256 of ``place`` and text."""
    return f'{text[:-1]}{_SUM}{_sum_of(place + text)}"}}'


def open_line(text: str, place: str = "") -> str:
    """Return the text that :func:`seal_line` was given; an empty text if this one was never sealed.

    Raises:
        ValueError: it is not as it was sealed.
    """
    text, seal, found = text.rpartition(_SUM)
    if not seal or "{" in found:  # within the object
        return ""
    if found != f'{_sum_of(f"{place}{text}}}")}"}}':
        raise ValueError("its checksum does not fit: it was damaged or edited")
    return text + "}"


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def damage(folder: Path, *, all_bytes: bool = False) -> str:
    """Return in what a folder differs from its list of files; an empty text where it is whole.

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
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != FILES)
    for file in files:
        sync(file)
    listed = {str(f.relative_to(folder)): (f.stat().st_size, file_hash(f)) for f in files}
    write_aside(folder / FILES, json.dumps(listed, indent=1) + "\n")
    sync(folder / FILES)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
