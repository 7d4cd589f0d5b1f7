"""Files of a source: which they are, and whether each is what its name says."""

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

from pwagents.errors import DataError

FOLDER_IN_CLONE = Path("PersonalWAB/envs/pwab/data")  # of the official repository
_PARTS = ("user_history_part_*.json", "all_products_part_*.json")
PERSONALWAB = ("user_profiles.json", *_PARTS, "user_instructions.json")
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


def find_amazon(folder: Path) -> tuple[list[Path], list[Path]]:
    """Find Amazon's review and metadata files below a folder, each in the order of their paths.

    Raises:
        DataError: there is no file of one kind, or a file is not what its name says.
    """
    files = sorted(path for pattern in ("*.jsonl", "*.jsonl.gz") for path in folder.rglob(pattern))
    # Archives and editors leave files of the same names, in folders of their own.
    left = [any(x.startswith((".", "__MACOSX")) for x in path.relative_to(folder).parts) for path in files]
    files = [path for path, is_left in zip(files, left, strict=True) if path.is_file() and not is_left]
    refuse_foreign(files)
    metas = [path for path in files if path.name.startswith("meta")]
    reviews = [path for path in files if path not in metas]
    for kind, example, paths in (
        ("metadata", "meta.jsonl.gz or meta_<category>.jsonl.gz", metas),
        ("review", "reviews.jsonl.gz or <category>.jsonl.gz", reviews),
    ):
        if not paths:
            expected = f"{example} (or .jsonl), here or in folders below"
            raise DataError(folder.absolute(), "-", "(file)", f"no {kind} file", expected)
    return reviews, metas


def find_personalwab(folder: Path) -> list[list[Path]]:
    """Find the files of each of :data:`PERSONALWAB`, part 2 before part 10, here or in a clone's place below.

    Raises:
        DataError: there is no file of some kind, or a file is not what its name says.
    """
    for place in (folder, folder / FOLDER_IN_CLONE):
        paths = [sorted(place.glob(x), key=lambda path: (len(path.name), path.name)) for x in PERSONALWAB]
        if any(paths):
            break
    if missing := [name for name, of_kind in zip(PERSONALWAB, paths, strict=True) if not of_kind]:
        expected = "PersonalWAB's files: run `make data`, or point data_dir at a folder that holds them"
        raise DataError(folder.absolute(), "-", "(files)", f"no {', no '.join(missing)}", expected)
    refuse_foreign(path for of_kind in paths for path in of_kind)
    return paths


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


FINDERS = {  # of each source with files: what finds them, and how they are called
    "amazon": (find_amazon, "reviews.jsonl.gz and meta.jsonl.gz, or the raw release's two files a category"),
    "personalwab": (find_personalwab, ", ".join(PERSONALWAB)),
}
