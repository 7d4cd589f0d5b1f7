"""Kept work is made once for what it follows from, whole or not at all, and goes on where it was killed."""

import errno
import json
import multiprocessing
import os
import signal
import time

import pytest
from safetensors import SafetensorError

from pwagents.errors import DataError
from pwagents.files import damage
from pwagents.store import made

NONE = {"code": []}
FACTS = {"data": "a", "seed": 0, "code": ["shop.search"]}


def writes(text, names):
    def make(folder):
        names.append(folder.name)
        (folder / "weights").write_text(text)

    return make


def test_the_same_key_is_made_once_and_another_beside_it(tmp_path, monkeypatch):
    names = []
    first = made(tmp_path, "sft", FACTS, writes("one", names))
    again = made(tmp_path, "sft", dict(reversed(FACTS.items())), writes("two", names))
    other = made(tmp_path, "sft", FACTS | {"seed": 1}, writes("three", names))
    assert first == again != other and len(names) == 2
    assert (first / "weights").read_text() == "one" and (other / "weights").read_text() == "three"
    facts = json.loads((first / "made_from.json").read_text())
    assert facts["data"] == "a" and facts["versions"]["torch"]
    assert sorted(p for p in tmp_path.iterdir() if p.is_dir()) == sorted([first, other])
    monkeypatch.setattr("pwagents.store.version", lambda library: "0.0")  # another version: made anew
    assert made(tmp_path, "sft", FACTS, writes("two", names)) != first and len(names) == 3
    with pytest.raises(TypeError):
        made(tmp_path, "sft", NONE | {"settings": object()}, writes("three", names))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("no memory"), r"\Ano memory\Z"),
        # As it comes from safetensors and numpy: neither names the file.
        (SafetensorError("I/O error: No space left on device"), r"/\.sft-\w+\.part: SafetensorError: "),
        (OSError(errno.ENOSPC, "No space left on device"), r"/\.sft-\w+\.part: OSError: "),
    ],
)
def test_what_failed_is_not_there_and_is_gone_on_with(tmp_path, error, told):
    def fails(folder):
        (folder / "checkpoint").write_text("half way")
        raise error

    with pytest.raises(RuntimeError, match=told):
        made(tmp_path, "sft", NONE, fails)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]

    def goes_on(folder):
        assert (folder / "checkpoint").read_text() == "half way"
        (folder / "checkpoint").unlink()

    assert [p.name for p in made(tmp_path, "sft", NONE, goes_on).glob("check*")] == []


def zeros(folder):
    (folder / "weights").write_bytes(bytes(len("weights")))


DAMAGE = {
    "zeros": zeros,
    "half": lambda folder: (folder / "weights").write_text("wei"),
    "a missing file": lambda folder: (folder / "weights").unlink(),
    "an empty folder": lambda folder: [file.unlink() for file in folder.iterdir()],
    "another list": lambda folder: (folder / "files.json").write_text("[1]"),
    "what it was made from": lambda folder: (folder / "made_from.json").write_text("{}"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_folder_is_set_aside_with_one_line_and_made_again(tmp_path, kind, capsys):
    names = []
    whole = made(tmp_path, "sft", NONE, writes("weights", names))
    (whole / "notes.md").write_text("added later")
    assert made(tmp_path, "sft", NONE, writes("weights", names)) == whole and len(names) == 1
    DAMAGE[kind](whole)
    with pytest.raises(DataError, match="stored_runs_only"):
        made(tmp_path, "sft", NONE, writes("weights", names), stored_only=True)
    again = made(tmp_path, "sft", NONE, writes("weights", names))
    assert again == whole and len(names) == 2 and (again / "weights").read_text() == "weights"
    (line,) = capsys.readouterr().out.splitlines()
    assert f"{whole.name} is damaged" in line and (tmp_path / f".{whole.name}.damaged").is_dir()
    assert made(tmp_path, "sft", NONE, writes("weights", names)) == whole and len(names) == 2


def test_of_a_large_file_the_size_counts_and_all_bytes_when_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("pwagents.files.SMALL", 3)
    folder = made(tmp_path, "sft", NONE, writes("weights", []))
    zeros(folder)
    assert damage(folder) == "" and "weights has other bytes" in damage(folder, all_bytes=True)
    (folder / "weights").write_text("wei")
    assert "weights has 3 bytes" in damage(folder)


def _slow(root, began, pids):
    def make(folder):
        began.set()
        time.sleep(0.3)
        (folder / str(os.getpid())).touch()
        pids.put(os.getpid())

    made(root, "sft", NONE, make)


def test_of_two_processes_one_makes_it_and_a_killed_one_leaves_no_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    began, pids = context.Event(), context.Queue()
    workers = [context.Process(target=_slow, args=(tmp_path, began, pids)) for _ in range(3)]
    workers[0].start()
    assert began.wait(60)
    for worker in workers[1:]:
        worker.start()
    os.kill(workers[0].pid, signal.SIGKILL)
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [-signal.SIGKILL, 0, 0]
    assert pids.get(timeout=60) in {worker.pid for worker in workers[1:]} and pids.empty()
