"""How lines of JSON are read and files written, and the hash that ties runs to the code that made them."""

import shutil
from pathlib import Path

import pytest

from pwagents.errors import DataError
from pwagents_old import project


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of the library, to be changed."""
    folder = tmp_path / "pwagents"
    shutil.copytree(Path(project.__file__).parent, folder)
    monkeypatch.setattr(project, "_LIBRARY", folder)
    return folder


WORDS = ("Width of the transformer.", "How wide.")
WIDTH = ("hidden: PositiveInt = 50", "hidden: PositiveInt = 60")


@pytest.mark.parametrize(
    ("file", "change", "counts"),
    [
        ("web/settings.py", WIDTH, True),
        ("web/settings.py", WORDS, False),
        ("web/settings.py", ("", "# Said.\n"), False),
        ("users/phrases.yaml", ("", "more: 1\n"), True),
        ("persona2web/templates/home.html", ("", "<p>More.</p>"), True),  # pages that agents read
        ("orion/views.py", ("", "x = 1\n"), False),  # which only shows results
        ("schema.py", ("", "x = 1\n"), False),  # in no room that is named
    ],
)
def test_code_hash_changes_with_what_decides_results_in_its_rooms_alone(library, file, change, counts):
    rooms = ("web", "users", "persona2web", "orion", "embedding")
    before = project.code_hash(*rooms)
    text = (library / file).read_text()
    (library / file).write_text(text.replace(*change, 1) if change[0] else f"{text}\n{change[1]}")
    assert (library / file).read_text() != text
    assert (project.code_hash(*rooms) != before) == counts


def test_a_room_that_is_not_there_is_an_error_and_what_only_shows_results_is():
    with pytest.raises(FileNotFoundError):
        project.code_hash("nothing")
    library = Path(project.__file__).parent
    assert all(list(library.rglob(name)) for name in project._SHOWS)  # no name that has moved


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    project.write_aside(path, "old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError):
        project.write_aside(path, "new")
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
        assert [value for _, value in project.read_json_lines(path)] == expected
    else:
        with pytest.raises(DataError, match=rf"\A[^\n]*lines\.jsonl, record {expected}[^\n]*\Z"):
            list(project.read_json_lines(path))
