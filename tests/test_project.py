"""Paths from the project's root, and the hash that ties stored runs to the code that made them."""

import shutil
from pathlib import Path

import pytest

from pwagents import project


def test_relative_paths_start_at_the_project_and_absolute_ones_stay():
    assert project.project_path("outputs/smoke") == Path(__file__).parents[1] / "outputs" / "smoke"
    assert project.project_path("/tmp/x") == Path("/tmp/x")


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of the library, to be changed."""
    folder = tmp_path / "pwagents"
    shutil.copytree(Path(project.__file__).parent, folder)
    monkeypatch.setattr(project, "_LIBRARY", folder)
    return folder


def append(file, text):
    file.write_text(file.read_text() + text)


def test_code_hash_changes_with_the_code_of_its_rooms_alone(library):
    before = project.code_hash("agents", "web", "embedding")
    append(library / "schema.py", "\nx = 1\n")
    assert project.code_hash("agents", "web", "embedding") == before
    append(library / "agents" / "plain.py", "\nx = 1\n")
    assert project.code_hash("agents", "web", "embedding") != before
    with pytest.raises(FileNotFoundError):
        project.code_hash("nothing")


def test_code_hash_counts_data_and_modules_in_folders_within(library):
    before = project.code_hash("data", "users")
    append(library / "data" / "synthetic" / "words.py", "\nx = 1\n")
    second = project.code_hash("data", "users")
    append(library / "users" / "phrases.yaml", "\nmore: 1\n")
    assert len({before, second, project.code_hash("data", "users")}) == 3


def test_code_hash_counts_the_templates_of_pages_that_agents_read(library):
    before = project.code_hash("persona2web")
    append(library / "persona2web" / "templates" / "home.html", "<p>More.</p>")
    assert project.code_hash("persona2web") != before


def test_words_about_code_and_what_only_shows_results_do_not_count(library):
    before = project.code_hash("web", "orion")
    settings = library / "web" / "settings.py"
    settings.write_text(settings.read_text().replace("Width of the transformer.", "How wide.") + "# Said.\n")
    append(library / "orion" / "views.py", "\nx = 1\n")
    assert project.code_hash("web", "orion") == before
    settings.write_text(settings.read_text().replace("hidden: PositiveInt = 50", "hidden: PositiveInt = 60"))
    assert project.code_hash("web", "orion") != before


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    project.write_aside(path, "old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError):
        project.write_aside(path, "new")
    assert path.read_text() == "old"
