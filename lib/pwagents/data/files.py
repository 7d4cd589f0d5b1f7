"""Files of a source: which they are, and whether each is what its name says."""

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

from pwagents.errors import DataError

_UNPACKED, _SERVED = "the file in it", "the data themselves: open it to see what the server had to say"
_GZIP = b"\x1f\x8b"
_FOREIGN = {  # how a file begins that stands in the place of another -> what it is, and what is expected
    b"version https://git-lfs.": ("a Git LFS pointer", "its content: `git lfs pull` in its clone brings it"),
    b"<!doctype html": ("a web page (HTML)", _SERVED),
    b"<html": ("a web page (HTML)", _SERVED),
    b"<?xml": ("an XML document", _SERVED),
    b"pk\x03\x04": ("a zip archive", _UNPACKED),
    _GZIP: ("a gzip archive within the archive, or under another name", _UNPACKED),
    b"\xfd7zxz": ("an xz archive", _UNPACKED),
    b"\x28\xb5\x2f\xfd": ("a Zstandard archive", _UNPACKED),
    b"\xff\xfe": ("text in UTF-16", "text in UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "text in UTF-8"),
}


def data_files(folder: Path, *patterns: str) -> list[Path]:
    """Find the files below a folder, in the order of their paths, without what archives and editors leave.

    Raises:
        DataError: a file is not what its name says (:func:`refuse_foreign`).
    """
    files = sorted({path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()})
    places = {path: path.relative_to(folder).parts for path in files}
    files = [f for f in files if not any(part.startswith((".", "__MACOSX")) for part in places[f])]
    refuse_foreign(files)
    return files


def refuse_foreign(files: Iterable[Path]) -> None:
    """Look for files that are there in the place of others.

    Raises:
        DataError: a file is a Git LFS pointer, a web page, of another kind than its name says, or a damaged
            or cut gzip archive; it is named.
    """

    def look(file: Path, head: bytes) -> None:
        for beginning, (found, expected) in _FOREIGN.items():
            if head.lstrip(b" \t\r\n").lower().startswith(beginning):
                raise DataError(file, "-", "(file)", found, expected)

    for file in files:
        with open(file, "rb") as opened:
            head = opened.read(64)
        if file.suffix != ".gz" or not head.startswith(_GZIP):
            look(file, head)
        if file.suffix == ".gz":
            try:
                with gzip.open(file) as archive:
                    head = archive.read(64)
                    while archive.read(1 << 20):
                        pass
                with open(file, "rb") as opened:
                    opened.seek(max(0, file.stat().st_size - 10))
                    if opened.read() == bytes(10):  # which Python passes over and DuckDB does not
                        raise gzip.BadGzipFile("zeros behind its end")
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise DataError(file, "-", "(file)", error, "a whole gzip archive: fetch it again") from None
            look(file, head)
