"""The released files are read as they are; bad ones give one clear error, and pickles run no code."""

import json
import os
import pickle
import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.errors import DataError
from pwagents.persona2web.world.released import (
    OfficialTask,
    read_history,
    read_memories,
    read_queries,
    read_released,
    read_tasks,
)

DATA = Path(os.environ.get("PWAGENTS_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
QUERIES = DATA / "persona2web" / "queries.jsonl"
RECORDS = [
    {"timestamp": "2025-03-02T10:00:00", "type": "booking", "object": "seat 14A", "website": "a.com"},
    {"timestamp": "2025-03-01T10:00:00", "type": "review and rating", "object": "5 stars", "website": ""},
]


def task_file(folder, suffix, intent="Query: find shoes", **fields):
    content = {"sites": ["bing"], "task_id": 7, "require_login": False, "intent": intent} | fields
    path = folder / f"personalization_{suffix}" / f"Alex_Garcia_A{suffix}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def item(request):
    """A maker of the released runners' records: a dataclass in one, in the other an object around a dict."""
    module = ModuleType(request.param)
    names = ["timestamp", "type", "object", "website"]
    if "browser_use" in request.param:

        class MemoryItem:
            def __init__(self, **data):
                self.data, self.index, self.key, self.metadata = data, 0, "", {}
                vars(self).update(data)

        kind = MemoryItem
    else:
        kind = make_dataclass("MemoryItem", names)
    kind.__module__, kind.__qualname__ = request.param, "MemoryItem"
    module.MemoryItem, parts = kind, request.param.split(".")
    for i in range(1, len(parts)):
        sys.modules.setdefault(".".join(parts[:i]), ModuleType(".".join(parts[:i])))
    sys.modules[request.param] = module
    yield kind
    for i in range(1, len(parts) + 1):
        sys.modules.pop(".".join(parts[:i]), None)


PATHS = ["retriever", "AgentOccam.retriever", "browser_use.personalization.retriever"]


@pytest.mark.parametrize("item", PATHS, indirect=True)
def test_official_pickles_are_read_as_inert_records(tmp_path, item):
    path = tmp_path / "Alex_Garcia_1024_memories.pkl"
    for vectors in (np.eye(2, dtype=np.float32), [[1.0, 0.0], [0.0, 1.0]]):
        content = {"memory_items": [item(**each) for each in RECORDS], "embeddings": vectors}
        path.write_bytes(pickle.dumps(content | {"embedding_dim": 2}, protocol=5))
        sys.modules.pop(item.__module__)  # the class is not there where the file is read
        memories = read_memories(path)
        assert [event.object for event in memories.events] == ["seat 14A", "5 stars"]
        assert memories.events[1].type == "review and rating" and memories.events[1].website == ""
        assert np.array_equal(memories.embeddings, np.eye(2))
        sys.modules[item.__module__] = ModuleType(item.__module__)
        sys.modules[item.__module__].MemoryItem = item


@dataclass
class Bomb:
    target: str

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("place", ["record", "state"])
@pytest.mark.parametrize("item", PATHS[:1], indirect=True)
def test_a_pickle_that_would_run_code_does_not(tmp_path, item, place):
    bomb = Bomb(str(tmp_path / "made"))
    items = [bomb] if place == "record" else [item(**RECORDS[0] | {"object": bomb})]
    path = tmp_path / "Alex_Garcia_1024_memories.pkl"
    path.write_bytes(pickle.dumps({"memory_items": items, "embeddings": []}))
    with pytest.raises(DataError, match="mkdir, which is not data"):
        read_memories(path)
    assert not (tmp_path / "made").exists()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_such_pickle_give_one_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("pickles") / "Alex_1024_memories.pkl"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_memories(path)
    path.write_bytes(pickle.dumps({"memory_items": RECORDS, "embeddings": np.eye(3)}))
    with pytest.raises(DataError, match="2 vectors, one a record"):
        read_memories(path)


def test_a_checkout_gives_tasks_by_suffix_and_histories_oldest_first(tmp_path):
    for runner in ("AgentOccam/config_files", "browser-use/task"):
        for suffix, text in ((1, "usual shoes"), (2, "red shoes"), (3, "At kohls.com, **red** shoes")):
            task_file(tmp_path / runner, suffix, f"Query: {text}")
    (task,) = read_tasks(tmp_path)
    assert task == OfficialTask(
        task_id="Alex_Garcia_A",
        user_id="Alex_Garcia",
        texts={0: "At kohls.com, **red** shoes", 1: "red shoes", 2: "usual shoes"},
    )
    assert (task.site, task.values) == ("kohls.com", ("red",))
    assert read_released(tmp_path) == ([task], {})
    bank = tmp_path / "AgentOccam" / "memory_bank" / "Alex_Garcia.json"
    bank.parent.mkdir()
    bank.write_text(json.dumps({"memory_bank": RECORDS}))
    events = read_released(tmp_path)[1]["Alex_Garcia"]
    assert [event.object for event in events] == ["5 stars", "seat 14A"]
    assert events[0].timestamp == 1740823200000
    bank.unlink()
    cache = tmp_path / "browser-use" / "cache" / "Alex_Garcia_1024_memories.pkl"
    cache.parent.mkdir()
    cache.write_bytes(pickle.dumps({"memory_items": RECORDS, "embeddings": np.eye(2)}))
    assert [event.object for event in read_released(tmp_path)[1]["Alex_Garcia"]] == ["5 stars", "seat 14A"]


@pytest.mark.parametrize(
    ("content", "field"), [("{", "JSON"), ("[]", "record"), ('{"intent": 3}', "intent"), ("", "JSON")]
)
def test_a_bad_task_file_is_named_with_its_field(tmp_path, content, field):
    with pytest.raises(DataError, match="no task files"):
        read_tasks(tmp_path)
    task_file(tmp_path, 1).write_text(content)
    with pytest.raises(DataError, match=f"Alex_Garcia_A1.json.*'{field}'"):
        read_tasks(tmp_path)
    task_file(tmp_path, 1).rename(tmp_path / "personalization_1" / "notes.json")
    with pytest.raises(DataError, match=r"notes\.json"):
        read_tasks(tmp_path)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": "sleep"}, "type"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"timestamp": None}, "timestamp"),
        ({"extra": 1}, "extra"),
        ({"object": 3}, "object"),
    ],
)
def test_a_bad_record_is_named(tmp_path, change, field):
    path = tmp_path / "Alex_Garcia.json"
    path.write_text(json.dumps({"memory_bank": [RECORDS[0], RECORDS[1] | change]}))
    with pytest.raises(DataError, match=f"Alex_Garcia.json, record 1, field '{field}'"):
        read_history(path)


def test_the_100_known_texts_name_a_website_and_mark_two_values():
    if not QUERIES.exists():
        pytest.skip(f"there is no {QUERIES}")
    tasks = read_queries(QUERIES)
    assert len(tasks) == 100 and len({task.user_id for task in tasks}) == 50
    assert sum(bool(task.site) for task in tasks) == 99 and len({task.site for task in tasks} - {""}) == 52
    assert sum(len(task.values) == 2 for task in tasks) == 79


def test_a_bad_line_of_queries_is_named(tmp_path):
    path = tmp_path / "queries.jsonl"
    path.write_text('{"task_id": "a", "user": "u", "queries": {}}\n{"task_id": "b"}\n')
    with pytest.raises(DataError, match="record line 2, field 'user'"):
        read_queries(path)
