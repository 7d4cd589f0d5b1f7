"""The released files are read as they are; bad ones give one clear error, and pickles run no code."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.errors import DataError
from pwagents.persona2web.world.released import (
    OfficialTask,
    asked,
    read_history,
    read_memories,
    read_queries,
    read_tasks,
    report,
)

DATA = Path(os.environ.get("PWAGENTS_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
QUERIES = DATA / "persona2web" / "queries.jsonl"
RECORDS = [
    {"timestamp": "2025-03-02T10:00:00", "type": "booking", "object": "seat 14A", "website": "a.com"},
    {"timestamp": "2025-03-01T10:00:00", "type": "web search", "object": "flights", "website": "b.com"},
]


def task_file(folder, suffix, intent="Query: find shoes", **fields):
    content = {"sites": ["kohls"], "task_id": 7, "require_login": False, "intent": intent} | fields
    path = folder / f"personalization_{suffix}" / f"Alex_Garcia_A{suffix}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def test_task_files_are_put_together_by_task_and_suffix_1_is_level_2(tmp_path):
    for suffix, text in ((1, "usual shoes"), (2, "red shoes"), (3, "red shoes at kohls.com")):
        task_file(tmp_path, suffix, f"Query: {text}")
    (task,) = read_tasks(tmp_path)
    assert task == OfficialTask(
        task_id="Alex_Garcia_A",
        user_id="Alex_Garcia",
        sites=("kohls",),
        texts={0: "red shoes at kohls.com", 1: "red shoes", 2: "usual shoes"},
    )


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("{", "JSON"),
        ("[]", "intent"),
        ('{"intent": 3}', "intent"),
        ("", "JSON"),
        ('{"intent": "find shoes", "sites": 5}', "sites"),
        ('{"intent": "find shoes", "sites": "abc"}', "sites"),
        ('{"intent": "find shoes", "sites": ["abc", 5]}', "sites"),
    ],
)
def test_a_bad_task_file_is_named_with_its_field(tmp_path, content, field):
    path = task_file(tmp_path, 1)
    path.write_text(content)
    with pytest.raises(DataError, match=f"Alex_Garcia_A1.json.*'{field}'"):
        read_tasks(tmp_path)


def test_a_folder_without_task_files_and_a_file_of_another_name_are_refused(tmp_path):
    with pytest.raises(DataError, match="no task files"):
        read_tasks(tmp_path)
    task_file(tmp_path, 1).rename(tmp_path / "personalization_1" / "notes.json")
    with pytest.raises(DataError, match=r"notes\.json"):
        read_tasks(tmp_path)


def test_a_history_is_read_oldest_first(tmp_path):
    path = tmp_path / "Alex_Garcia.json"
    path.write_text(json.dumps({"memory_bank": RECORDS}))
    events = read_history(path)
    assert [event.object for event in events] == ["flights", "seat 14A"]
    assert events[0].timestamp == 1740823200000
    assert len({event.event_id for event in events}) == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": "sleep"}, "type"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"timestamp": None}, "timestamp"),
        ({"extra": 1}, "record"),
        ({"object": 3}, "object"),
    ],
)
def test_a_bad_record_is_named(tmp_path, change, field):
    path = tmp_path / "Alex_Garcia.json"
    path.write_text(json.dumps({"memory_bank": [RECORDS[0], RECORDS[1] | change]}))
    with pytest.raises(DataError, match=f"Alex_Garcia.json, record 1, field '{field}'"):
        read_history(path)


def test_a_pickle_of_records_and_vectors_is_read(tmp_path):
    path = tmp_path / "Alex_Garcia_1024_memories.pkl"
    for vectors in (np.eye(2, dtype=np.float32), [[1.0, 0.0], [0.0, 1.0]]):
        path.write_bytes(pickle.dumps({"memory_items": RECORDS, "embeddings": vectors}))
        memories = read_memories(path)
        assert [event.object for event in memories.events] == ["seat 14A", "flights"]
        assert np.array_equal(memories.embeddings, np.eye(2))


class Bomb:
    def __reduce__(self):
        return os.mkdir, (self.target,)


def test_a_pickle_that_would_run_code_does_not(tmp_path):
    bomb = Bomb()
    Bomb.target = str(tmp_path / "made")
    path = tmp_path / "Alex_Garcia_1024_memories.pkl"
    path.write_bytes(pickle.dumps({"memory_items": [bomb], "embeddings": []}))
    with pytest.raises(DataError, match="mkdir, which is not data"):
        read_memories(path)
    assert not (tmp_path / "made").exists()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_such_pickle_give_one_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("pickles") / "Alex_1024_memories.pkl"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_memories(path)


def test_vectors_that_are_not_one_a_record_are_refused(tmp_path):
    path = tmp_path / "Alex_Garcia_1024_memories.pkl"
    path.write_bytes(pickle.dumps({"memory_items": RECORDS, "embeddings": np.eye(3)}))
    with pytest.raises(DataError, match="2 vectors, one a record"):
        read_memories(path)


def test_what_a_text_asks_for():
    texts = {
        0: "At shop.com, find shirts in **size M** within **$70** and add one to cart. (Austin, TX 78701)",
        2: "Find shirts in my usual size within my typical budget and add one to cart.",
    }
    found = asked(OfficialTask(task_id="a", user_id="u", texts=texts))
    assert (found.site, found.operation, found.masked) == ("shop.com", "cart", ("price", "size"))
    assert found.marked == ("size M", "$70")
    assert found.place
    assert not found.leaks


def test_the_100_known_texts_parse_and_ask_for_what_was_counted():
    if not QUERIES.exists():
        pytest.skip(f"there is no {QUERIES}")
    tasks = read_queries(QUERIES)
    assert len(tasks) == 100
    assert len({task.user_id for task in tasks}) == 50
    counts = {(row.what, row[2]): row.tasks for row in report(tasks).itertuples()}
    assert counts["websites", "different"] == 52
    assert counts["values marked", "2"] == 79
    assert counts["operation", "cart"] == 17
    assert counts["text", "place at level 0"] == 88
    masked = {kind: n for (what, kind), n in counts.items() if what == "kind masked"}
    assert list(masked)[:2] == ["price", "location"]


def test_a_bad_line_of_queries_is_named(tmp_path):
    path = tmp_path / "queries.jsonl"
    path.write_text('{"task_id": "a", "user": "u", "queries": {}}\n{"task_id": "b"}\n')
    with pytest.raises(DataError, match="record b, field 'user'"):
        read_queries(path)
