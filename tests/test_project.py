"""Paths from the project's root, and the hash that ties stored runs to the code that made them."""

import shutil
from pathlib import Path

import pytest

from pwagents import project


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
        ("data/synthetic/words.py", ("", "x = 1\n"), True),  # in a folder within
        ("persona2web/templates/home.html", ("", "<p>More.</p>"), True),  # of pages that agents read
        ("orion/views.py", ("", "x = 1\n"), False),  # which only shows results
        ("schema.py", ("", "x = 1\n"), False),  # in no room that is named
    ],
)
def test_code_hash_changes_with_what_decides_results_in_its_rooms_alone(library, file, change, counts):
    rooms = ("web", "users", "data", "persona2web", "orion", "embedding")
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
