"""The library is edited while a kernel runs: nothing is stored that other code has made."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pwagents
from pwagents import code

# Does what its arguments say, one after another; its episode is a number that seeds.py decides.
KERNEL = r"""
import subprocess, sys
from pathlib import Path
import pwagents.seeds
from pwagents.errors import StaleCodeError
from pwagents.schema import Review, Task, Trajectory
from pwagents.store import episodes, made

FILE, FACTS = Path(pwagents.seeds.__file__), {"code": ["seeds"]}
TASK = Task(task_id="t", user_id="u", timestamp=1, type="search", instruction="a coat", target="B1",
            review=Review(rating=5))

def play(task):
    if edit_under_way:
        edit("1e")
    number = str(pwagents.seeds.derive_seed(0, "a"))
    return Trajectory(task_id="t", user_id="u", type="search", target="B1", steps=(), message=number)

def edit(sign):
    text = FILE.read_text()
    FILE.write_text(text.replace(r'"\x1f"', rf'"\x{sign}"') if sign != "comment" else text + "\n# Said.\n")
    assert FILE.read_text() != text

edit_under_way, children = False, []
for word, *rest in (each.split("=") for each in sys.argv[1:]):
    try:
        if word == "play":
            (record,) = episodes(Path(rest[0]) / "e.jsonl", [TASK], play, FACTS)
            print("played", record.trajectory.message)
        elif word == "make":
            made(Path(rest[0]), "m", FACTS, lambda folder: (folder / "x").touch())
            print("made")
        elif word == "edit":
            edit(rest[0])
        elif word == "edit-while-playing":
            edit_under_way = True
        elif word == "child":
            child = [sys.executable, __file__, "play=" + rest[0]]
            print(subprocess.run(child, capture_output=True, text=True).stdout, end="")
        elif word == "begin":
            children.append(subprocess.Popen([sys.executable, __file__, "loaded", "wait", "play=" + rest[0]],
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            assert children[-1].stdout.readline() == "loaded\n"
        elif word == "end":
            print(children.pop().communicate("go\n")[0], end="")
        elif word == "loaded":
            print("loaded", flush=True)
        elif word == "wait":
            sys.stdin.readline()
    except StaleCodeError as error:
        print("refused", error)
"""
REFUSED = "refused pwagents/seeds.py was edited after it was loaded, so nothing is stored. "
REFUSED += "Restart the kernel or the command."


@pytest.fixture
def kernel(tmp_path):
    """``kernel(*words)``: what a new process with a copy of the library prints."""
    caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(pwagents.__file__).parent, tmp_path / "pwagents", ignore=caches)
    (tmp_path / "kernel.py").write_text(KERNEL)
    # PYTHONDONTWRITEBYTECODE: an edit within a second of the last one may keep its size.
    env = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*words):
        command = [sys.executable, str(tmp_path / "kernel.py"), *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_a_kernel_whose_library_was_edited_stores_nothing_and_a_new_one_plays_as_in_an_empty_folder(
    kernel, tmp_path
):
    same, empty = tmp_path / "same", tmp_path / "empty"
    (before,) = kernel(f"play={same}")
    edited = kernel(f"play={tmp_path / 'other'}", "edit=1e", f"play={tmp_path / 'more'}", f"make={same}")
    assert edited == [before, REFUSED, REFUSED]
    assert not [*same.glob("m-*")] and not [*same.glob(".m-*.part")]
    again, fresh = kernel(f"play={same}", f"play={empty}")
    assert again == fresh != before


def test_an_edit_while_an_episode_is_played_is_refused_too(kernel, tmp_path):
    assert kernel("edit-while-playing", f"play={tmp_path / 'out'}") == [REFUSED]
    assert (tmp_path / "out" / "e.jsonl").read_bytes() == b""


def test_a_comment_is_no_edit(kernel, tmp_path):
    (before,) = kernel(f"play={tmp_path / 'a'}")
    assert kernel("edit=comment", f"play={tmp_path / 'b'}", f"make={tmp_path}") == [before, "made"]
    assert kernel(f"play={tmp_path / 'a'}") == [before]


@pytest.mark.parametrize("words", [["edit=1e", "child=OUT"], ["begin=OUT", "edit=1e", "end"]])
def test_a_child_process_stores_nothing_that_its_parent_would_not(kernel, tmp_path, words):
    """It loaded other code than its parent, or the code was edited after both had loaded it."""
    assert kernel(*(word.replace("OUT", str(tmp_path / "out")) for word in words)) == [REFUSED]
    (played,) = kernel(f"child={tmp_path / 'out'}")  # of a new parent
    assert played.startswith("played ")


def test_children_are_handed_the_hashes_of_their_parents_library_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(code, "LOADED", {})
    monkeypatch.setattr(code, "_stamps", {})
    monkeypatch.setattr(code, "_unlike_parent", set())
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    monkeypatch.setenv(code.HANDED, "{}")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text("X = 1")
        code.remember(tmp_path / name)
    handed = os.environ[code.HANDED]
    (tmp_path / "a" / "x.py").write_text("X = 2")
    for name in ("a", "b"):  # as a child does
        code.remember(tmp_path / name)
    assert code._unlike_parent == {"a/x.py"} and os.environ[code.HANDED] == handed


def test_a_worker_that_loaded_other_code_than_the_process_that_asks_is_refused(monkeypatch):
    hashes = code.hashes_of("seeds")
    code.require_loaded(hashes)
    monkeypatch.setitem(code.LOADED, "pwagents/seeds.py", b"X = 1")
    with pytest.raises(code.StaleCodeError, match=r"\Apwagents/seeds\.py was edited[^\n]*Restart[^\n]*\Z"):
        code.require_loaded(hashes)
