"""Stored replies: asked once, found by threads and processes, told apart by endpoint, never thrown away."""

import os
import signal
import sqlite3
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.errors import DataError, InfrastructureError
from pwagents.llm.chat import ChatModel, Reply, Request, ToolCall
from pwagents.llm.store import ResponseStore, StoredModel
from pwagents.schema import Usage

from ..processes import begin


def request(text="hi", **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


def put(store, text, reply, model="m", endpoint="e"):
    return store.put([request(text).content(model)], [reply], model, endpoint)[0]


def get(store, text="hi", model="m", endpoint="e", **fields):
    return store.get(request(text, **fields).key(model), endpoint)


@pytest.fixture
def store(tmp_path):
    return ResponseStore(tmp_path / "replies.sqlite")


class Counting(ChatModel):
    """Answers with how often it was asked."""

    name, endpoint = "counting", "e"

    def __init__(self, batch_size=1):
        self.batch_size, self.asked, self.batches = batch_size, [], []

    def reply(self, request):
        self.asked.append(request)
        time.sleep(0.01)
        return Reply(text=str(len(self.asked)))

    def replies(self, requests):
        self.batches.append(len(requests))
        return super().replies(requests)


def test_a_reply_comes_back_as_it_was(store):
    reply = Reply(
        text="<think>hm</think>Ein Mäntelchen?",
        tool_calls=(ToolCall(id="c", name="search", arguments='{"query": "a co'),),
        finish_reason="length",
        usage=Usage(calls=1, prompt_tokens=3, completion_tokens=2, usd=0.1 + 0.2),
    )
    assert get(store) is None
    assert put(store, "hi", reply) == reply == get(store) == get(ResponseStore(store.path))
    assert put(ResponseStore(store.path), "hi", Reply(text="second")) == reply  # the first stays


def test_keys_of_published_replies_stay():
    """Another hash here makes every stored reply unfindable: change it only with a way to take them over."""
    tools, sampling = ({"b": 1, "a": 2},), {"temperature": 0.6}
    key = request("a coat", tools=tools, sampling=sampling).key("m")
    assert key == "2850e3b492c763f187b60481489f82ba8199c1ab07553d46af648e3f02271c24"
    assert request("a coat", tools=({"a": 2, "b": 1},), sampling=sampling).key("m") == key


@pytest.mark.parametrize(
    "other",
    [{"text": "ho"}, {"model": "n"}, {"sample": 1}, {"sampling": {"temperature": 0}}, {"tools": ({"a": 1},)},
     {"endpoint": "f"}],
)  # fmt: skip
def test_all_of_a_request_and_its_endpoint_are_in_its_key(store, other):
    put(store, "hi", Reply(text="a"))
    assert get(store, **other) is None


def test_a_replay_finds_whoever_answered_and_asks_which_of_several(store):
    put(store, "hi", Reply(text="of e"))
    assert StoredModel(None, store, "m").reply(request()).text == "of e"
    put(store, "hi", Reply(text="of f"), endpoint="f")
    assert StoredModel(None, store, "m", "f").reply(request()).text == "of f"
    with pytest.raises(DataError, match=r"found e, f; expected one of them, named in players\.endpoint"):
        StoredModel(None, store, "m").reply(request())
    with pytest.raises(DataError) as caught:
        StoredModel(None, store, "gpt-4o-mini").reply(request("Find me a coat for " + "a long winter " * 20))
    told = str(caught.value)
    assert "gpt-4o-mini" in told and "Find me a coat for" in told and str(store.path) in told
    assert "2 of m" in told and "\n" not in told and len(told) < 500


def test_a_request_is_asked_once_and_then_found(store):
    inner, begun = Counting(), []
    model = StoredModel(inner, store, before_first=lambda: begun.append(1))
    replies = [model.reply(request("a", sample=i)).text for i in (0, 0, 1)]
    assert replies == ["1", "1", "2"]  # samples are different replies
    again = StoredModel(Counting(), store, before_first=lambda: begun.append(2))
    assert [again.reply(request("a", sample=i)).text for i in (0, 0, 1)] == replies
    assert (len(inner.asked), model.found, model.asked, again.found, again.asked) == (2, 1, 2, 3, 0)
    assert 2 not in begun  # not where all is stored


def test_settings_of_sampling_change_what_is_asked_and_found(store):
    model = StoredModel(inner := Counting(), store, sampling={"temperature": None, "top_p": 0.9})
    model.reply(request(sampling={"temperature": 0.0, "seed": 1}))
    assert inner.asked[0].sampling == {"seed": 1, "top_p": 0.9}
    assert StoredModel(None, store, "counting").reply(request(sampling={"seed": 1, "top_p": 0.9})).text == "1"


def test_threads_with_the_same_request_ask_once(store):
    model, replies = StoredModel(inner := Counting(), store), []
    threads = [threading.Thread(target=lambda: replies.append(model.reply(request("a")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inner.asked) == 1 and replies == [Reply(text="1")] * 8


def test_a_local_model_gets_its_batches_without_what_is_stored(store):
    model = StoredModel(inner := Counting(batch_size=4), store)
    model.replies([request("2")])
    asked = [request(str(i % 9)) for i in range(12)]
    replies = model.replies(asked)
    assert inner.batches == [1, 4, 4]
    assert replies == [model.reply(each) for each in asked]
    assert store.models() == {"counting": 9}


def write(path, name, n):
    """Store replies to requests that other writers have, too, and to some of one's own."""
    store = ResponseStore(path)
    with open(f"{path}-{name}", "w") as log:
        for i in range(n):
            put(store, f"{name} {i}", Reply(text="own"))
            print(put(store, f"all {i}", Reply(text=f"{name} {i}")).text, file=log, flush=True)


def test_processes_write_at_once_and_agree_and_a_killed_one_leaves_what_it_had_written(tmp_path):
    path = tmp_path / "replies.sqlite"
    processes = [begin(write, path, f"p{i}", 50) for i in range(3)]
    for process in processes:
        process.join()
    first, *others = [(tmp_path / f"{path.name}-p{i}").read_text() for i in range(3)]
    assert others == [first, first]  # the shared requests have one reply each
    assert ResponseStore(path).models() == {"m": 4 * 50}

    killed, log = begin(write, path, "killed", 100_000), tmp_path / f"{path.name}-killed"
    while not log.exists() or log.read_text().count("\n") < 100:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    store = ResponseStore(path)
    for i, text in enumerate(log.read_text().split("\n")[:-1]):
        assert get(store, f"all {i}").text == text


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


@pytest.mark.parametrize("reply", ['{"text": 1}', "hello", '{"usage": {"usd": -1e9}}', '{"target": 1}'])
def test_a_spoilt_reply_is_named(store, reply):
    put(store, "hi", Reply(text="a"))
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE answer SET reply = ?", (reply,))
    with pytest.raises(DataError, match=f"record {request().key('m')}, field 'reply") as told:
        get(store)
    assert "\n" not in str(told.value)


def test_what_cannot_be_read_or_written_now_is_no_damage(store, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InfrastructureError, match="unable to open"):
        ResponseStore(tmp_path / "folder")
    store._db.execute("PRAGMA max_page_count = 8")
    with pytest.raises(InfrastructureError, match="disk is full"):
        put(store, "hi", Reply(text="y" * 50_000))
    assert put(store, "hi", Reply(text="y")) == get(store) == Reply(text="y")


@given(st.text(), st.text())
def test_any_text_is_stored(tmp_path_factory, text, written):
    store = ResponseStore(tmp_path_factory.getbasetemp() / "any.sqlite")
    reply = Reply(text=written, tool_calls=(ToolCall(id="", name=written, arguments=written),))
    assert put(store, text + written, reply) == reply == get(store, text + written)
    store.close()
