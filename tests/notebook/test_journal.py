"""The row that a run leaves in the journal, whatever ends it."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from pwagents import notebook as run_module
from pwagents.notebook import Run, find_commit
from pwagents.progress import count
from pwagents.settings import DataSettings, NotebookSettings

FIELDS = {
    *("notebook", "status", "preset", "seed", "source", "settings", "data_hash", "started", "commit"),
    *("local_changes", "portable", "versions", "cpu_count", "minutes", "peak_memory_mb", "timings"),
    *("models", "rows_before", "counts"),
}


def start(folder, notebook="01_data"):
    settings = NotebookSettings(preset="smoke", output_dir=folder, seed=7, data=DataSettings(history=(4, 8)))
    return Run.begin(notebook, settings)


def rows(folder):
    lines = (folder / "timings" / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_finished_run_leaves_one_row(tmp_path, capsys):
    count("of an earlier run in this kernel")
    journal = start(tmp_path)
    count("episodes stored", 12)
    with journal.timed("index"):
        pass
    journal.finish(data_hash="abc")
    (row,) = rows(tmp_path)
    assert set(row) == FIELDS
    assert (row["status"], row["data_hash"]) == ("finished", "abc")
    assert (row["preset"], row["seed"], row["source"]) == ("smoke", 7, "synthetic")
    assert row["settings"]["output_dir"] == str(tmp_path) and row["settings"]["data"]["history"] == [4, 8]
    assert {*row["timings"]} == {"index"}
    assert row["versions"]["python"] == ".".join(map(str, sys.version_info[:3])) and row["versions"]["numpy"]
    assert row["started"].endswith("+00:00") and 5 < row["peak_memory_mb"] < 1e6
    line, counted = capsys.readouterr().out.splitlines()
    assert "01_data finished" in line and "seed 7" in line
    assert row["counts"] == {"episodes stored": 12} and counted == "episodes stored: 12"
    start(tmp_path).finish(data_hash="abc")
    assert [each["rows_before"] for each in rows(tmp_path)] == [0, 1]


def test_rows_of_several_writers_do_not_mix_and_a_torn_one_is_cut_away_with_a_line(tmp_path, capsys):
    (tmp_path / "timings").mkdir()
    (tmp_path / "timings/journal.jsonl").write_text('{"notebook": "00_tour"}\n{"notebook": "01_da')
    start(tmp_path).finish(data_hash="abc")
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 2 and "journal.jsonl: the last line" in told[0]
    names = [f"{i:02d}_{'x' * 3000}" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: start(tmp_path, name).finish(data_hash="abc"), names))
    assert sorted(row["notebook"] for row in rows(tmp_path)) == sorted(["00_tour", "01_data", *names])


def test_a_run_that_fails_is_journalled_as_unfinished(tmp_path):
    code = (
        "import os; from pwagents.notebook import Run\n"
        "from pwagents.settings import DataSettings, NotebookSettings\n"
        "settings = {'preset': 'smoke', 'output_dir': 'out', 'seed': 7, 'data': DataSettings()}\n"
        "Run.begin('01_data', NotebookSettings(**settings))\n"
        "os.chdir('/'); 1 / 0"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "ZeroDivisionError" in done.stderr
    (row,) = rows(tmp_path / "out")
    assert (row["status"], row["data_hash"]) == ("unfinished", None)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small git checkout that the library believes to live in."""
    root = tmp_path / "checkout"
    library = root / "lib" / "pwagents"
    library.mkdir(parents=True)
    (library / "journal.py").write_text("")
    git = ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(git + arguments, check=True)
    monkeypatch.setattr(run_module, "ROOT", root)
    return root


def test_local_changes_are_those_of_what_decides_results(checkout, project_root):
    clean = find_commit()
    assert len(clean["commit"]) == 40 and clean["local_changes"] is False
    (checkout / ".gitignore").write_text((project_root / ".gitignore").read_text())
    (checkout / "executed.ipynb").write_text("{}")
    (checkout / "notebooks").mkdir()
    (checkout / "notebooks/03_benchmark-Copy1.ipynb").write_text("{}")
    assert find_commit() == clean
    (checkout / "lib/pwagents/journal.py").write_text("changed")
    assert find_commit() == clean | {"local_changes": True}


@pytest.mark.parametrize("missing", ["git", "library"])
def test_without_git_or_a_checkout_the_commit_is_unknown(checkout, tmp_path, monkeypatch, missing):
    """An installed library lies in no checkout, whatever repository the working directory is."""
    if missing == "git":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        (checkout / "lib").rename(checkout / "elsewhere")
    assert find_commit() == {"commit": None, "local_changes": None}
