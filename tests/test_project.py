"""Paths from the project's root, and the hash that ties stored runs to the code that made them."""

import shutil
from pathlib import Path

import pytest

from pwagents import project


def test_relative_paths_start_at_the_project_and_absolute_ones_stay():
    assert project.project_path("outputs/smoke") == Path(__file__).parents[1] / "outputs" / "smoke"
    assert project.project_path("/tmp/x") == Path("/tmp/x")


def test_code_hash_changes_with_the_code_of_its_rooms_alone(tmp_path, monkeypatch):
    library = tmp_path / "pwagents"
    shutil.copytree(Path(project.__file__).parent, library)
    monkeypatch.setattr(project, "_LIBRARY", library)
    before = project.code_hash("agents", "web", "embedding")
    (library / "journal.py").write_text("")
    assert project.code_hash("agents", "web", "embedding") == before
    with open(library / "agents" / "plain.py", "a") as file:
        file.write("\n")
    assert project.code_hash("agents", "web", "embedding") != before
    with pytest.raises(FileNotFoundError):
        project.code_hash("nothing")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    project.write_aside(path, "old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError):
        project.write_aside(path, "new")
    assert path.read_text() == "old"
