"""Stored replies: asked once, found by threads and processes, told apart by endpoint, never thrown away."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pwagents.errors import DataError, InfrastructureError
from pwagents.files import seal_line
from pwagents.llm.chat import Reply, Request, ToolCall, ask_all, key_of
from pwagents.llm.openai_model import OpenAIModel
from pwagents.llm.store import ResponseStore, StoredModel
from pwagents.progress import counts
from pwagents.schema import Usage

from ..agents.conftest import ScriptedModel
from ..processes import begin, kill


def request(text="hi", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


def put(store, reply, endpoint="e"):
    return store.put(request().content("m"), reply, "m", endpoint)


def get(store):
    return store.get(key_of(request().content("m")))


@pytest.fixture
def store(tmp_path):
    return ResponseStore(tmp_path / "replies.sqlite")


def test_a_reply_comes_back_as_it_was_and_the_first_stays(store):
    call, usage = ToolCall(id="c", name="search", arguments='{"query": "a co'), Usage(calls=1, usd=0.1 + 0.2)
    reply = Reply(text="<think>hm</think>Ä?", tool_calls=(call,), finish_reason="length", usage=usage)
    assert get(store) is None
    assert put(store, reply) == reply == get(store)
    assert put(ResponseStore(store.path), Reply(text="second")) == reply


def test_keys_of_published_replies_stay():
    """Another hash here makes every stored reply unfindable: change it only with a way to take them over."""
    tools, sampling = ({"b": 1, "a": 2}, {"a": 2, "b": 1}), {"temperature": 0.6}
    keys = {key_of(request("a coat", tools=(tool,), sampling=sampling).content("m")) for tool in tools}
    assert keys == {"2850e3b492c763f187b60481489f82ba8199c1ab07553d46af648e3f02271c24"}


def test_a_replay_finds_whoever_answered_and_asks_which_of_several(store):
    put(store, Reply(text="of e"))
    assert StoredModel(None, store, "m").reply(request()).text == "of e"
    put(store, Reply(text="of f"), endpoint="f")
    assert StoredModel(None, store, "m", "f").reply(request()).text == "of f"
    with pytest.raises(DataError, match=r"found e, f; expected one of them, named in players\.endpoint"):
        StoredModel(None, store, "m").reply(request())
    told = r"\A.*replies\.sqlite.*model gpt-4o.*Find me a coat for.*2 of m.*every reply stored.{,100}\Z"
    with pytest.raises(DataError, match=told):
        StoredModel(None, store, "gpt-4o").reply(request("Find me a coat for " + "a long winter " * 20))


def test_a_request_is_asked_once_by_all_threads_as_set_and_then_found(store):
    inner = ScriptedModel(lambda request: time.sleep(0.01) or str(request.sample))
    model = StoredModel(inner, store, sampling={"temperature": None, "top_p": 0.9})
    asked = [request("a", sample=i, sampling={"temperature": 0, "seed": 1}) for i in (0, 0, 0, 0, 1)]
    with ThreadPoolExecutor(5) as threads:  # samples are different replies
        assert [reply.text for reply in threads.map(model.reply, asked)] == ["0", "0", "0", "0", "1"]
    assert inner.requests[0].sampling == {"seed": 1, "top_p": 0.9}
    again = StoredModel(inner, store, before_first=pytest.fail)  # not called where all is stored
    assert [again.reply(each).text for each in inner.requests] == [str(r.sample) for r in inner.requests]
    assert len(inner.requests) == 2


def ask(url, path, numbers):
    model = StoredModel(OpenAIModel("m", url, workers=4), ResponseStore(path))
    assert None not in ask_all(model, [request(str(i)) for i in numbers], "asking")


def test_sigkill_of_two_at_once_loses_no_reply_and_asks_for_none_that_was_stored_again(chat_server, store):
    server, halves = chat_server(latency=0.02), (range(100), range(100, 200))
    for n in (30, 60, 90, 200):
        both = [begin(ask, server.url, store.path, half) for half in halves]
        while len(server.bodies) < n:
            time.sleep(0.005)
        for process in both:
            kill(process) if n < 200 else process.join()
    # What was under way at a kill had no reply yet: its endpoint may bill it, and it is asked again.
    assert len(server.calls) == 200 and server.calls.total() <= 200 + 3 * 2 * 4
    assert store.models() == {"m": 200}


def test_a_damaged_store_is_told_and_kept(store):
    put(store, Reply(text="a" * 10_000))
    store._db.close()  # which works the write-ahead log in
    sound = store.path.read_bytes()
    for damaged in (b"x" * 200 + sound[200:], sound[: len(sound) // 2]):
        store.path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"replies.sqlite.*it is kept as it is"):
            get(ResponseStore(store.path))
        assert len(store.path.read_bytes()) == len(damaged)
    store.path.write_bytes(sound)
    # Edited, without a checksum as an earlier version stored it, and another's.
    another = seal_line(written := '{"text": "b"}', "another key")
    for edit in ("replace(reply, 'aaa', 'aba')", f"'{written}'", f"'{another}'"):
        with sqlite3.connect(store.path) as db:
            db.execute(f"UPDATE answer SET reply = {edit}")
        before, mended = counts.copy(), ResponseStore(store.path)
        assert get(mended) is None and len(counts - before) == 1
        assert put(mended, Reply(text="aaa")) == put(mended, Reply(text="c")) == Reply(text="aaa")


def test_what_cannot_be_read_or_written_now_is_no_damage(store, tmp_path):
    with pytest.raises(InfrastructureError, match="unable to open"):
        ResponseStore(tmp_path)
    store._db.execute("PRAGMA max_page_count = 8")
    with pytest.raises(InfrastructureError, match="disk is full"):
        put(store, Reply(text="y" * 50_000))
    with sqlite3.connect(store.path, check_same_thread=False) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.2, other.rollback).start()  # another writer is waited for
        assert put(store, Reply(text="y")) == get(store) == Reply(text="y")
