"""The store: what is appended stays, what a kill cut short goes, what is corrupt is named."""

import fcntl
import json
import threading

import pytest

from pwagents.errors import DataError
from pwagents.evaluation.store import Keyed, Store


class Note(Keyed):
    number: int
    text: str = ""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs" / "notes.jsonl", Note)


def write(store, *notes):
    with store.appending() as append:
        return [append(note) for note in notes]


def test_records_come_back_in_order_and_by_key(store):
    assert list(store.read()) == []
    notes = [Note(key="ab"[i % 2], number=i, text="naïve \ud83d\n") for i in range(5)]
    assert write(store, *notes[:3]) == notes[:3]
    write(store, *notes[3:])
    assert list(store.read()) == notes
    assert [note.number for note in store.read({"b"})] == [1, 3]


def test_a_line_that_a_kill_cut_short_is_passed_over_and_then_cut_off(store):
    first, second = Note(key="a", number=1), Note(key="a", number=2)
    write(store, first, second)
    content = store.path.read_bytes()
    start = content.index(b"\n") + 1
    for cut in range(start, len(content)):
        store.path.write_bytes(content[:cut])
        assert list(store.read()) == [first]
        assert store.path.read_bytes() == content[:cut]
        write(store, second)
        assert store.path.read_bytes() == content


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("my notes", "field '.whole line.': found no JSON"),
        ("[1]", "field 'key': found no text"),
        ('{"number": 1}', "field 'key'"),
        ('{"key": ["a"], "number": 1}', "field 'key'"),
        ('{"key": "a", "number": "many"}', "field 'number': found 'many'"),
        ('{"key": "a", "number": 1, "more": 1}', "field 'more'"),
    ],
)
def test_a_corrupt_line_is_named(store, line, message):
    write(store, Note(key="a", number=1))
    with open(store.path, "a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=f"notes.jsonl, record line 2, {message}"):
        list(store.read())


def test_a_line_of_another_key_is_not_validated(store):
    write(store, Note(key="a", number=1))
    with open(store.path, "a") as file:
        file.write('{"key": "b", "of another class": 1}\n')
    assert len(list(store.read({"a"}))) == 1


def test_a_file_that_is_no_store_is_kept(store):
    store.path.parent.mkdir()
    store.path.write_text("my notes, without a line end")
    with store.appending(), pytest.raises(DataError, match="line 1"):
        list(store.read())
    assert store.path.read_text() == "my notes, without a line end"


def test_one_process_appends_and_others_read(store):
    write(store, Note(key="a", number=1))
    with open(store.path, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="another run"):
            write(store, Note(key="a", number=2))
        assert len(list(store.read())) == 1


def test_a_failed_write_leaves_nothing_of_the_record(store, monkeypatch):
    write(store, Note(key="a", number=1))
    before = store.path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        write(store, Note(key="a", number=2))
    assert store.path.read_bytes() == before


def test_threads_do_not_mix_their_lines(store):
    with store.appending() as append:
        threads = [
            threading.Thread(
                target=lambda i=i: [append(Note(key="a", number=i, text="x" * 9999)) for _ in range(5)]
            )
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(json.loads(line)["number"] for line in store.path.open()) == sorted([*range(8)] * 5)
