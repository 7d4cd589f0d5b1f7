"""Stored replies: kept, found again by several processes, published, never thrown away."""

import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.errors import DataError, InfrastructureError
from pwagents.llm.chat import Reply, Request, ToolCall
from pwagents.llm.store import ResponseStore
from pwagents.schema import Usage


def content(text="hi", model="m", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields).content(model)


def key(text="hi", model="m", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields).key(model)


@pytest.fixture
def store(tmp_path):
    return ResponseStore(tmp_path / "replies.sqlite")


def fill(store, count=30):
    replies = [Reply(text=f"é {i}", usage=Usage(calls=1, prompt_tokens=i)) for i in range(count)]
    store.put([content(f"task {i}") for i in range(count)], replies)
    return replies


def test_a_reply_comes_back_as_it_was(store):
    reply = Reply(
        text="Ein Mäntelchen?",
        tool_calls=(ToolCall(id="c", name="search", arguments='{"query": "a co'),),
        finish_reason="length",
        usage=Usage(calls=1, prompt_tokens=3, completion_tokens=2, usd=0.1 + 0.2),
    )
    assert store.get(key()) is None
    assert store.put([content()], [reply]) == [reply]
    assert store.get(key()) == reply
    assert ResponseStore(store.path).get(key()) == reply


@pytest.mark.parametrize(
    "other",
    [{"text": "ho"}, {"model": "n"}, {"sample": 1}, {"sampling": {"temperature": 0}}, {"tools": ({"a": 1},)}],
)
def test_all_of_a_request_is_in_its_key(store, other):
    store.put([content()], [Reply(text="a")])
    assert store.get(key(**other)) is None


def test_the_first_reply_stays(store):
    store.put([content()], [Reply(text="first")])
    second = ResponseStore(store.path)
    assert second.put([content(), content("ho")], [Reply(text="second"), Reply(text="new")]) == [
        Reply(text="first"),
        Reply(text="new"),
    ]


def test_models_are_counted(store):
    store.put([content(), content("ho"), content(model="n")], [Reply()] * 3)
    assert store.models() == {"m": 2, "n": 1}


WRITER = """
import sys
from pwagents.llm.chat import Reply, Request
from pwagents.llm.store import ResponseStore

store = ResponseStore(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()

def content(text):
    return Request(messages=({"role": "user", "content": text},)).content("m")

for i in range(int(sys.argv[3])):
    contents = [content(f"all {i}"), content(f"{sys.argv[2]} {i}")]
    kept = store.put(contents, [Reply(text=f"{sys.argv[2]} {i}")] * 2)
    print(kept[0].text, flush=True)
"""


def writers(path, count, replies):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"p{i}", str(replies)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]
    for process in processes:
        assert process.stdout.readline() == "open\n"
        process.stdin.write("\n")
        process.stdin.flush()
    return processes


def test_processes_write_at_once_and_agree(tmp_path):
    path = tmp_path / "replies.sqlite"
    said = [process.communicate()[0].splitlines() for process in writers(path, 4, 50)]
    assert said[0] == said[1] == said[2] == said[3]  # the shared requests have one reply each
    assert ResponseStore(path).models() == {"m": 5 * 50}


def test_a_killed_writer_leaves_what_it_had_written(tmp_path):
    path = tmp_path / "replies.sqlite"
    (process,) = writers(path, 1, 100_000)
    said = [process.stdout.readline() for _ in range(100)]
    os.kill(process.pid, signal.SIGKILL)
    said += process.communicate()[0].splitlines()
    whole = [line.strip() for line in said if line.strip().startswith("p0 ")][
        :-1
    ]  # the last may be cut short
    store = ResponseStore(path)
    assert all(store.get(key(f"all {i}")) == Reply(text=f"p0 {i}") for i in range(len(whole)))


def test_an_export_is_the_same_bytes_whoever_wrote_it(store, tmp_path):
    fill(store)
    other = ResponseStore(tmp_path / "other.sqlite")
    for i in reversed(range(30)):
        other.put([content(f"task {i}")], [store.get(key(f"task {i}"))])
    for name in ("a.jsonl.gz", "a.jsonl"):
        assert store.export(tmp_path / name) == other.export(tmp_path / f"other.{name}") == 30
        assert (tmp_path / name).read_bytes() == (tmp_path / f"other.{name}").read_bytes()
    lines = gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert keys == sorted(keys)


def test_an_export_can_be_taken_in(store, tmp_path):
    replies = fill(store)
    store.export(tmp_path / "a.jsonl.gz")
    other = ResponseStore(tmp_path / "other.sqlite")
    other.put([content("task 3")], [Reply(text="mine")])
    assert other.import_(tmp_path / "a.jsonl.gz") == 29
    assert other.get(key("task 3")) == Reply(text="mine")
    assert other.get(key("task 4")) == replies[4]
    assert other.import_(tmp_path / "a.jsonl.gz") == 0


def spoil(line, **changes):
    return json.dumps(json.loads(line) | changes)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda line: line[:50], "field '(whole line)': found JSONDecodeError"),
        (lambda line: "[]", "field '(whole line)'"),
        (lambda line: spoil(line, model="n"), "the hash of model and request"),
        (lambda line: spoil(line, reply={"text": 3}), "field 'reply.text': found 3"),
    ],
)
def test_a_line_that_was_not_exported_is_named(store, tmp_path, change, told):
    fill(store, 3)
    path = tmp_path / "a.jsonl"
    store.export(path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], change(lines[1]), lines[2]]))
    with pytest.raises(DataError, match=r"a\.jsonl, record line 2") as caught:
        ResponseStore(tmp_path / "other.sqlite").import_(path)
    assert told in str(caught.value)


def test_a_cut_off_export_is_named(store, tmp_path):
    fill(store, 3)
    path = tmp_path / "a.jsonl.gz"
    store.export(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="expected a whole gzip file"):
        ResponseStore(tmp_path / "other.sqlite").import_(path)


def test_a_damaged_store_is_told_and_kept(store, tmp_path):
    fill(store, 300)
    store.close()
    content_before = store.path.read_bytes()
    damaged = b"x" * 200 + content_before[200:]
    store.path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"replies.sqlite.*it is kept as it is"):
        ResponseStore(store.path)
    assert store.path.read_bytes() == damaged

    half = content_before[: len(content_before) // 2]
    store.path.write_bytes(half)
    with pytest.raises(DataError, match=r"replies.sqlite.*it is kept as it is"):
        half_store = ResponseStore(store.path)
        for i in range(300):
            half_store.get(key(f"task {i}"))
    assert len(store.path.read_bytes()) == len(half)


def test_a_damaged_reply_is_named(store):
    store.put([content()], [Reply(text="a")])
    with sqlite3.connect(store.path) as db:
        db.execute("""UPDATE reply SET reply = '{"text": 1}'""")
    with pytest.raises(DataError, match=rf"record {key()}, field 'reply.text': found 1"):
        store.get(key())


SPOILT = {
    "the reply to another request": (
        "content = (SELECT content FROM reply WHERE key = '{other}')",
        "content",
    ),
    "a content that is no archive": ("content = x'00ff'", "content"),
    "a content that is a number": ("content = 5", "content"),
    "no JSON": ("reply = 'hello'", "reply"),
    "nested 100,000 deep": ("reply = replace(hex(zeroblob(50000)), '0', '[')", "reply"),
    "an unknown field": ("""reply = '{{"text": "", "target": 1}}'""", "reply.target"),
    "negative tokens": ("""reply = '{{"usage": {{"prompt_tokens": -5}}}}'""", "reply.usage.prompt_tokens"),
    "negative calls": ("""reply = '{{"usage": {{"calls": -1}}}}'""", "reply.usage.calls"),
    "a cost below nothing": ("""reply = '{{"usage": {{"usd": -1e9}}}}'""", "reply.usage.usd"),
    "a cost that is no number": ("""reply = '{{"usage": {{"usd": NaN}}}}'""", "reply.usage.usd"),
    "an endless cost": ("""reply = '{{"usage": {{"usd": 1e999}}}}'""", "reply.usage.usd"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_row_is_neither_replayed_nor_published(store, tmp_path, name):
    change, field = SPOILT[name]
    store.put([content(), content("ho")], [Reply(text="a"), Reply(text="b")])
    with sqlite3.connect(store.path) as db:
        db.execute(f"UPDATE reply SET {change.format(other=key('ho'))} WHERE key = '{key()}'")
    (tmp_path / "a.jsonl").write_text("before")
    for read in (lambda: store.get(key()), lambda: store.export(tmp_path / "a.jsonl")):
        with pytest.raises(DataError, match=rf"record {key()}, field '{field}': found ") as told:
            read()
        assert "\n" not in str(told.value) and len(str(told.value)) < 1000
    assert (tmp_path / "a.jsonl").read_text() == "before"
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".sqlite"} <= {
        "a.jsonl", "replies.sqlite-wal", "replies.sqlite-shm",
    }  # fmt: skip
    assert store.get(key("ho")) == Reply(text="b")


def test_a_store_that_cannot_be_opened_now_is_no_damage(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InfrastructureError, match="unable to open"):
        ResponseStore(tmp_path / "folder")


def test_a_full_disk_says_so_and_does_no_damage(store):
    store._db.execute("PRAGMA max_page_count = 5")
    with pytest.raises(InfrastructureError, match="disk is full"):
        store.put([content()], [Reply(text="y" * 50_000)])
    store.put([content()], [Reply(text="y")])
    assert store.get(key()) == Reply(text="y")


def test_a_closed_store_speaks_of_no_damage(store):
    store.close()
    with pytest.raises(RuntimeError, match=r"replies\.sqlite: Cannot operate on a closed database"):
        store.get(key())


@given(st.text(), st.text())
def test_any_text_is_stored(tmp_path_factory, text, written):
    store = ResponseStore(tmp_path_factory.getbasetemp() / "any.sqlite")
    reply = Reply(text=written, tool_calls=(ToolCall(id="", name=written, arguments=written),))
    assert store.put([content(text + written)], [reply]) == [reply] == [store.get(key(text + written))]
    store.close()
