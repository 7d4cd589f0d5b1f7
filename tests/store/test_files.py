"""How lines of JSON are read and files written."""

import pytest

from pwagents import files
from pwagents.errors import DataError


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    files.write_aside(path, "old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError):
        files.write_aside(path, "new")
    assert path.read_text() == "old" and [*tmp_path.iterdir()] == [path]


# A file of JSON lines -> what it says, or what is told of it after the number of its line.
LINES = {
    "separators within a text": ('"a\u2028b\x85c"\n"d"'.encode(), ["a\u2028b\x85c", "d"]),
    "marks of Windows": (b'\xef\xbb\xbf"a"\r\n\r\n"b"\r\n', ["a", "b"]),
    "Latin-1": (b'"a"\n"\xeb"\n', "line 2.*utf-8"),
    "UTF-16": ('"a"\n'.encode("utf-16"), "line 1.*utf-8"),
    "NUL": (b'"a"\n\n"\0"\n', "line 3.*control character"),
    "a line cut off": (b'"a"\n{"b": ', "line 2"),
    "too deep": (b"[" * 100_000, "line 1.*recursion"),
}


@pytest.mark.parametrize("name", LINES)
def test_lines_of_json_end_at_line_ends_alone_and_an_odd_one_is_named(name, tmp_path):
    content, expected = LINES[name]
    path = tmp_path / "lines.jsonl"
    path.write_bytes(content)
    if isinstance(expected, list):
        assert [value for _, value in files.read_json_lines(path)] == expected
    else:
        with pytest.raises(DataError, match=rf"\A[^\n]*lines\.jsonl, record {expected}[^\n]*\Z"):
            list(files.read_json_lines(path))
