"""Stored replies: asked once, found by threads and processes, told apart by endpoint, never thrown away."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pwagents.errors import DataError, InfrastructureError
from pwagents.llm.chat import Reply, Request, ToolCall
from pwagents.llm.store import ResponseStore, StoredModel
from pwagents.schema import Usage

from ..agents.conftest import ScriptedModel
from ..processes import begin


def request(text="hi", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


def put(store, text, reply, endpoint="e"):
    return store.put([request(text).content("m")], [reply], "m", endpoint)[0]


def get(store, text="hi"):
    return store.get(request(text).key("m"))


@pytest.fixture
def store(tmp_path):
    return ResponseStore(tmp_path / "replies.sqlite")


@pytest.fixture
def inner():
    """Answers with how often it was asked."""

    def count(request):
        time.sleep(0.01)
        return str(len(model.requests))

    model = ScriptedModel(count)
    return model


def test_a_reply_comes_back_as_it_was_and_the_first_stays(store):
    call, usage = ToolCall(id="c", name="search", arguments='{"query": "a co'), Usage(calls=1, usd=0.1 + 0.2)
    reply = Reply(text="<think>hm</think>Ä?", tool_calls=(call,), finish_reason="length", usage=usage)
    assert get(store) is None
    assert put(store, "hi", reply) == reply == get(store)
    assert put(ResponseStore(store.path), "hi", Reply(text="second")) == reply


def test_keys_of_published_replies_stay():
    """Another hash here makes every stored reply unfindable: change it only with a way to take them over."""
    tools, sampling = ({"b": 1, "a": 2},), {"temperature": 0.6}
    key = request("a coat", tools=tools, sampling=sampling).key("m")
    assert key == "2850e3b492c763f187b60481489f82ba8199c1ab07553d46af648e3f02271c24"
    assert request("a coat", tools=({"a": 2, "b": 1},), sampling=sampling).key("m") == key


def test_a_replay_finds_whoever_answered_and_asks_which_of_several(store):
    put(store, "hi", Reply(text="of e"))
    assert StoredModel(None, store, "m").reply(request()).text == "of e"
    put(store, "hi", Reply(text="of f"), endpoint="f")
    assert StoredModel(None, store, "m", "f").reply(request()).text == "of f"
    with pytest.raises(DataError, match=r"found e, f; expected one of them, named in players\.endpoint"):
        StoredModel(None, store, "m").reply(request())
    told = r"\A.*replies\.sqlite.*model gpt-4o.*Find me a coat for.*2 of m.*every reply stored.{,100}\Z"
    with pytest.raises(DataError, match=told):
        StoredModel(None, store, "gpt-4o").reply(request("Find me a coat for " + "a long winter " * 20))


def test_a_request_is_asked_once_by_all_threads_and_then_found(store, inner):
    begun = []
    model = StoredModel(inner, store, before_first=lambda: begun.append(1))
    asked = [request("a", sample=i) for i in (0, 0, 0, 0, 1)]  # samples are different replies
    with ThreadPoolExecutor(5) as threads:
        replies = [*threads.map(model.reply, asked)]
    assert len(inner.requests) == 2 and len({reply.text for reply in replies}) == 2
    again = StoredModel(inner, store, before_first=lambda: begun.append(2))
    assert [again.reply(each) for each in asked] == replies and len(inner.requests) == 2
    assert (model.found, model.asked, again.found, again.asked) == (3, 2, 5, 0)
    assert 2 not in begun  # not where all is stored


def test_settings_of_sampling_change_what_is_asked_and_found(store, inner):
    model = StoredModel(inner, store, sampling={"temperature": None, "top_p": 0.9})
    model.reply(request(sampling={"temperature": 0.0, "seed": 1}))
    assert inner.requests[0].sampling == {"seed": 1, "top_p": 0.9}
    found = StoredModel(None, store, inner.name).reply(request(sampling={"seed": 1, "top_p": 0.9}))
    assert found.text == "1"


def test_a_model_gets_its_batches_without_what_is_stored(store, inner, monkeypatch):
    inner.batch_size, sizes = 4, []
    replies = inner.replies
    monkeypatch.setattr(inner, "replies", lambda asked: sizes.append(len(asked)) or replies(asked))
    model = StoredModel(inner, store)
    model.replies([request("2")])
    asked = [request(str(i % 9)) for i in range(12)]
    assert model.replies(asked) == [model.reply(each) for each in asked]
    assert sizes == [1, 4, 4] and store.models() == {inner.name: 9}


def write(path, name):
    """Store replies to requests that other writers have, too, and to some of one's own."""
    store = ResponseStore(path)
    for i in range(50):
        put(store, f"{name} {i}", put(store, f"all {i}", Reply(text=name)))


def test_processes_write_at_once_and_agree(store):
    processes = [begin(write, store.path, f"p{i}") for i in range(3)]
    for process in processes:
        process.join()
    assert store.models() == {"m": 4 * 50}
    assert all(get(store, f"p{n} {i}") == get(store, f"all {i}") for n in range(3) for i in range(50))


def test_a_damaged_store_is_told_and_kept(store):
    for i in range(100):
        put(store, f"task {i}", Reply(text=f"é {i}" * 50))
    store.close()
    sound = store.path.read_bytes()
    for damaged in (b"x" * 200 + sound[200:], sound[: len(sound) // 2]):
        store.path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"replies.sqlite.*it is kept as it is"):
            for i in range(100):
                get(ResponseStore(store.path), f"task {i}")
        assert len(store.path.read_bytes()) == len(damaged)


@pytest.mark.parametrize("reply", ['{"text": 1}', "hello"])
def test_a_spoilt_reply_is_named(store, reply):
    put(store, "hi", Reply(text="a"))
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE answer SET reply = ?", (reply,))
    with pytest.raises(DataError, match=rf"\A.*record {request().key('m')}, field 'reply.*\Z"):
        get(store)


def test_what_cannot_be_read_or_written_now_is_no_damage(store, tmp_path):
    with pytest.raises(InfrastructureError, match="unable to open"):
        ResponseStore(tmp_path)
    store._db.execute("PRAGMA max_page_count = 8")
    with pytest.raises(InfrastructureError, match="disk is full"):
        put(store, "hi", Reply(text="y" * 50_000))
    assert put(store, "hi", Reply(text="y")) == get(store) == Reply(text="y")
