"""Large JSON files read one entry at a time, so that memory does not grow with the file.

ijson does the parsing. Two things are done to the bytes before it sees them: NaN and Infinity, which Python's
json writes although JSON knows no such words, become null and are counted; and endless nesting, on which
ijson would spend all memory, is refused. Whole numbers beyond 64 bits are an error.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import Any, BinaryIO

import ijson
from tqdm import tqdm

from pwagents.errors import DataError
from pwagents.progress import progress

MAX_DEPTH = 100

# "++" and "*+" never go back on what they matched, so a damaged file takes no longer than a sound one.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STRING_OR_NAN = re.compile(_STRING.pattern + rb"|-?\b(?:NaN|Infinity)\b", re.DOTALL)
_CUT = re.compile(rb'".*|[\w-]*\Z', re.DOTALL)  # a string or a word that the end of a block cuts
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_STEPS = bytes(byte for byte in range(256) if byte not in _STEPS)  # all bytes that change no depth


def read_entries(paths: list[Path], what: str, repairs: Counter) -> Iterator[tuple[Path, str, Any]]:
    """File, key and value of each entry of the JSON objects that ``paths`` hold, in their order.

    Args:
        what: is being read, for the progress bar (by bytes).
        repairs: counts each NaN and Infinity.

    Raises:
        DataError: names the file that cannot be read, is not JSON in UTF-8 or holds no object, and the last
            entry that could be read.
    """
    with _bytes_bar(paths, what) as bar:
        for path in paths:
            yield from _entries(path, bar, repairs)


def read_lists(path: Path, names: tuple[str, ...], what: str, repairs: Counter) -> Iterator[tuple[str, Any]]:
    """Name and item of each item of the named lists in the JSON object that ``path`` holds.

    Raises:
        DataError: as :func:`read_entries`, or one of the names is missing or is no list.
    """
    place, missing = "(first)", list(names)
    with _bytes_bar([path], what) as bar, _open_object(path, bar, repairs, lambda: place) as file:
        events = ijson.parse(file, use_float=True)
        for name, group in groupby(events, key=lambda event: event[0].partition(".")[0]):
            if name not in names:
                continue
            start = next(group)
            if start[1] != "start_array":
                raise DataError(path, "-", name, "what is not a list", "a list")
            missing = [other for other in missing if other != name]
            for n, item in enumerate(ijson.items(chain([start], group), f"{name}.item")):
                place = f"after {name} {n}"
                yield name, item
    if missing:
        raise DataError(path, "-", missing[0], "no such field", "a list")


def _entries(path: Path, bar: tqdm, repairs: Counter) -> Iterator[tuple[Path, str, Any]]:
    place = "(first)"
    with _open_object(path, bar, repairs, lambda: place) as file:
        for key, value in ijson.kvitems(file, "", use_float=True):
            place = f"after {key}"
            yield path, key, value


def _bytes_bar(paths: list[Path], what: str) -> tqdm:
    size = sum(path.stat().st_size for path in paths if path.exists())
    return progress(total=size, desc=what, unit="B", unit_scale=True)


@contextmanager
def _open_object(path: Path, bar: tqdm, repairs: Counter, place: Callable[[], str]) -> Iterator["_Blocks"]:
    """The file for ijson; complaints become a DataError that says at which ``place`` of the file."""
    try:
        with open(path, "rb") as file:
            if file.read(1000).lstrip()[:1] not in (b"{", b""):
                raise DataError(path, "(first)", "(file)", "what is not a JSON object", "one JSON object")
            file.seek(0)
            yield _Blocks(file, bar, repairs)
    except ijson.JSONError as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        found = f"what is not JSON ({reason.splitlines()[0]})"
        raise DataError(path, place(), "(file)", found, "a whole file of JSON in UTF-8") from None
    except (OSError, RecursionError) as error:
        raise DataError(path, place(), "(file)", f"unreadable data ({error})", "a JSON file") from None


class _Blocks:
    """A file whose ``read`` gives JSON without NaN and Infinity.

    No block that it gives ends within a string or a word: only whole strings can be told from the rest, in
    which NaN, brackets and braces mean something. What a block of the file leaves over begins the next one.
    """

    def __init__(self, file: BinaryIO, bar: tqdm, repairs: Counter):
        self._file, self._bar, self._repairs = file, bar, repairs
        self._rest, self._depth = b"", 0

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes or so; none at the end of the file."""
        text = b""
        while size and not text:
            # At least as much as is left over; a long string would else be searched again for every block.
            block = self._file.read(max(size, len(self._rest)))
            self._bar.update(len(block))
            if not block:
                text, self._rest = self._rest, b""
                return text
            text = self._whole_words(self._rest + block)
        return text

    def _whole_words(self, text: bytes) -> bytes:
        """``text`` up to a string or word that its end may cut; that goes to the rest."""
        *between, last = _STRING.split(text)  # what stands between whole strings, and after the last of them
        kept = _CUT.search(last).start()
        end = len(text) - len(last) + kept
        text, self._rest = text[:end], text[end:]
        outside = b" ".join([*between, last[:kept]])
        self._check_depth(outside)
        if b"NaN" in outside or b"Infinity" in outside:
            text = _STRING_OR_NAN.sub(self._nan_as_null, text)
        return text

    def _check_depth(self, outside: bytes) -> None:
        steps = map(_STEPS.get, outside.translate(None, _NO_STEPS))
        depths = list(accumulate(steps, initial=self._depth))
        self._depth = depths[-1]
        if max(depths) > MAX_DEPTH:
            raise RecursionError(f"nested deeper than {MAX_DEPTH} levels")

    def _nan_as_null(self, match: re.Match) -> bytes:
        if match[0].startswith(b'"'):
            return match[0]
        self._repairs["NaN or Infinity taken as missing"] += 1
        return b"null"
