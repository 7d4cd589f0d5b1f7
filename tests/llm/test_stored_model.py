"""A model over a store: asked once, resumed, replayed offline."""

import threading
import time

import pytest

from pwagents.errors import DataError, InfrastructureError
from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.llm.store import ResponseStore
from pwagents.llm.stored_model import StoredModel


class Counting(ChatModel):
    """Answers with how often it was asked."""

    name = "counting"

    def __init__(self, workers=1, batch_size=1, fail_at=None):
        self.workers, self.batch_size, self.fail_at = workers, batch_size, fail_at
        self.asked, self.batches = [], []

    def reply(self, request):
        self.asked.append(request)
        time.sleep(0.01)
        if len(self.asked) == self.fail_at:
            raise InfrastructureError("gone")
        return Reply(text=str(len(self.asked)))

    def replies(self, requests):
        self.batches.append(len(requests))
        return super().replies(requests)


def request(text, **fields):
    return Request(messages=({"role": "user", "content": text},), **fields)


@pytest.fixture
def store(tmp_path):
    return ResponseStore(tmp_path / "replies.sqlite")


def test_a_request_is_asked_once_and_then_found(store):
    inner = Counting()
    model = StoredModel(inner, store)
    assert model.reply(request("a")) == model.reply(request("a")) == Reply(text="1")
    assert StoredModel(Counting(), store).reply(request("a")) == Reply(text="1")
    assert len(inner.asked) == 1


def test_samples_are_different_replies_and_come_back_at_resume(store):
    model = StoredModel(Counting(), store)
    first = [model.complete([{"role": "user", "content": "a"}], sample=i, temperature=1.0) for i in range(3)]
    assert len({reply.text for reply in first}) == 3
    again = StoredModel(None, store, "counting")
    assert first == [
        again.complete([{"role": "user", "content": "a"}], sample=i, temperature=1.0) for i in range(3)
    ]


def test_threads_with_the_same_request_ask_once(store):
    inner, replies = Counting(), []
    model = StoredModel(inner, store)
    threads = [threading.Thread(target=lambda: replies.append(model.reply(request("a")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inner.asked) == 1
    assert replies == [Reply(text="1")] * 8
    assert not model._locks


def test_what_was_answered_before_a_failure_is_kept(store):
    inner = Counting(fail_at=3)
    with pytest.raises(InfrastructureError):
        StoredModel(inner, store).replies([request(str(i)) for i in range(5)])
    assert store.models() == {"counting": 2}


def test_an_endpoint_is_asked_from_several_threads(store):
    class Together(Counting):
        at_once = threading.Barrier(10)

        def reply(self, request):
            self.at_once.wait(timeout=30)  # goes on when ten are here
            return Reply(text="x")

    StoredModel(Together(workers=10), store).replies([request(str(i)) for i in range(30)])
    assert store.models() == {"counting": 30}


def test_a_local_model_gets_its_batches_without_what_is_stored(store):
    inner = Counting(batch_size=4)
    model = StoredModel(inner, store)
    model.reply(request("2"))
    asked = [request(str(i % 9)) for i in range(12)]
    replies = model.replies(asked)
    assert inner.batches == [4, 4]
    assert replies == [model.reply(each) for each in asked]
    assert store.models() == {"counting": 9}


def test_a_missing_reply_names_model_request_and_store(store):
    StoredModel(Counting(), store).reply(request("a"))
    replayed = StoredModel(None, store, "gpt-4o-mini")
    with pytest.raises(DataError) as caught:
        replayed.reply(request("Find me a warm coat for " + "a long winter " * 20))
    told = str(caught.value)
    assert "gpt-4o-mini" in told and "Find me a warm coat for" in told and str(store.path) in told
    assert "1 of counting" in told and "\n" not in told and len(told) < 500
