"""The released files are read as they are; bad ones give one clear error, and pickles run no code."""

import json
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

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
CACHE = "Alex_Garcia_1024_memories.pkl"
PATHS = ["retriever", "AgentOccam.retriever", "browser_use.personalization.retriever"]
VECTORS = np.eye(2, dtype=np.float32)
RECORDS = [
    {"timestamp": "2025-03-02T10:00:00", "type": "booking", "object": "seat 14A", "website": "a.com"},
    {"timestamp": "2025-03-01T10:00:00", "type": "review and rating", "object": "5 stars", "website": ""},
]


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pickled(items, embeddings=VECTORS, module=None):
    """A cache as the released runners write it; ``module`` has the class of its records.

    It is a dataclass in AgentOccam, and an object around a dict in Browser-Use. The module is gone once the
    cache is written.
    """
    content = {"memory_items": items, "embeddings": embeddings, "embedding_dim": 2}
    if not module:
        return pickle.dumps(content)
    kind = type("MemoryItem", (), {"__module__": module})
    for i, record in enumerate(items):
        items[i] = kind()
        around = {"data": record, "index": 0, "key": "", "metadata": {}} if "browser" in module else {}
        vars(items[i]).update(around | record)
    with pytest.MonkeyPatch.context() as patch:
        for place in range(module.count(".") + 1):
            name = ".".join(module.split(".")[: place + 1])
            patch.setitem(sys.modules, name, SimpleNamespace(MemoryItem=kind))
        return pickle.dumps(content, protocol=5)


@pytest.mark.parametrize("vectors", [VECTORS, [[1.0, 0.0], [0.0, 1.0]]])
@pytest.mark.parametrize("module", PATHS)
def test_official_pickles_are_read_as_inert_records(tmp_path, module, vectors):
    memories = read_memories(write(tmp_path / CACHE, pickled([*RECORDS], vectors, module)))
    assert [event.object for event in memories] == ["seat 14A", "5 stars"]
    assert memories[1].type == "review and rating" and memories[1].website == ""


class Bomb:
    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("place", ["record", "state"])
def test_a_pickle_that_would_run_code_does_not(tmp_path, place):
    bomb = Bomb(tmp_path / "made")
    content = pickled([bomb]) if place == "record" else pickled([RECORDS[0] | {"object": bomb}], [], PATHS[0])
    with pytest.raises(DataError, match="mkdir, which is not data"):
        read_memories(write(tmp_path / CACHE, content))
    assert not (tmp_path / "made").exists()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_such_pickle_give_one_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("pickles") / CACHE
    with pytest.raises(DataError):
        read_memories(write(path, content))


def test_a_checkout_gives_tasks_by_suffix_and_histories_oldest_first(tmp_path):
    for runner in ("AgentOccam/config_files", "browser-use/task"):
        for suffix, text in ((1, "usual shoes"), (2, "red shoes"), (3, "At kohls.com, **red** shoes")):
            path = tmp_path / runner / f"personalization_{suffix}" / f"Alex_Garcia_A{suffix}.json"
            write(path, json.dumps({"sites": ["bing"], "task_id": 7, "intent": f"Query: {text}"}))
    (task,) = read_tasks(tmp_path)
    texts = {0: "At kohls.com, **red** shoes", 1: "red shoes", 2: "usual shoes"}
    assert task == OfficialTask(task_id="Alex_Garcia_A", user_id="Alex_Garcia", texts=texts)
    assert (task.site, task.values) == ("kohls.com", ("red",))
    assert read_released(tmp_path) == ([task], {})
    bank = tmp_path / "AgentOccam" / "memory_bank" / "Alex_Garcia.json"
    cache = tmp_path / "browser-use" / "cache" / CACHE
    for path, content in ((bank, json.dumps({"memory_bank": RECORDS})), (cache, pickled(RECORDS))):
        write(path, content)
        events = read_released(tmp_path)[1]["Alex_Garcia"]
        assert [event.object for event in events] == ["5 stars", "seat 14A"]
        assert events[0].timestamp == 1740823200000
        path.unlink()


TASK_FILE, BANK = "personalization_1/Alex_Garcia_A1.json", "Alex_Garcia.json"
LINES = '{"task_id": "a", "user": "u", "queries": {}}\n{"task_id": "b"}\n'
WRONG = [("type", "sleep"), ("timestamp", "yesterday"), ("timestamp", None), ("extra", 1), ("object", 3)]


def bank(**change):
    return json.dumps({"memory_bank": [RECORDS[0], RECORDS[1] | change]})


@pytest.mark.parametrize(
    ("read", "name", "content", "message"),
    [
        (read_tasks, "empty", "", "no task files"),
        (read_tasks, "personalization_1/notes.json", "{}", r"notes\.json"),
        (read_tasks, TASK_FILE, "{", f"{TASK_FILE}.*'JSON'"),
        (read_tasks, TASK_FILE, "", f"{TASK_FILE}.*'JSON'"),
        (read_tasks, TASK_FILE, "[]", f"{TASK_FILE}.*'record'"),
        (read_tasks, TASK_FILE, '{"intent": 3}', f"{TASK_FILE}.*'intent'"),
        (read_queries, "queries.jsonl", LINES, "record line 2, field 'user'"),
        *((read_history, BANK, bank(**{k: v}), f"{BANK}, record 1, field '{k}'") for k, v in WRONG),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_its_field(tmp_path, read, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        read(tmp_path if read is read_tasks else path)


def test_the_100_known_texts_name_a_website_and_mark_two_values():
    if not QUERIES.exists():
        pytest.skip(f"there is no {QUERIES}")
    tasks = read_queries(QUERIES)
    assert len(tasks) == 100 and len({task.user_id for task in tasks}) == 50
    assert sum(bool(task.site) for task in tasks) == 99 and len({task.site for task in tasks} - {""}) == 52
    assert sum(len(task.values) == 2 for task in tasks) == 79
