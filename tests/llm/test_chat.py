"""The protocol: what a request is known by, and what every model gets for free."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.errors import InfrastructureError
from pwagents.llm.chat import ChatModel, Reply, Request, ToolCall

REQUEST = Request(
    messages=({"role": "user", "content": "a coat"},),
    tools=({"b": 1, "a": 2},),
    sampling={"temperature": 0.6},
)


class Echo(ChatModel):
    name = "echo"

    def reply(self, request):
        text = request.messages[-1]["content"]
        if text == "fail":
            raise InfrastructureError("gone")
        return Reply(text=text)


def requests(*texts):
    return [Request(messages=({"role": "user", "content": text},)) for text in texts]


def test_keys_of_published_replies_stay():
    """Another hash here makes every stored reply unfindable: change it only with a way to take them over."""
    assert REQUEST.key("m") == "2850e3b492c763f187b60481489f82ba8199c1ab07553d46af648e3f02271c24"


def test_the_order_of_fields_does_not_matter():
    other = REQUEST.model_copy(update={"tools": ({"a": 2, "b": 1},)})
    assert other.key("m") == REQUEST.key("m") != REQUEST.key("n")


def test_arguments_make_the_request():
    seen = []

    class Seeing(Echo):
        def reply(self, request):
            seen.append(request)
            return super().reply(request)

    Seeing().complete(list(REQUEST.messages), list(REQUEST.tools), temperature=0.6)
    Seeing().complete(list(REQUEST.messages), list(REQUEST.tools), temperature=0.6, sample=2)
    assert seen == [REQUEST, REQUEST.model_copy(update={"sample": 2})]


@pytest.mark.parametrize("workers", [1, 4])
def test_replies_come_in_order_and_the_first_failure_is_raised(workers):
    model = Echo()
    model.workers = workers
    texts = [str(i) for i in range(20)]
    assert [reply.text for reply in model.replies(requests(*texts))] == texts
    with pytest.raises(InfrastructureError):
        model.replies(requests("a", "fail", "b"))


def test_after_a_failure_no_further_request_begins():
    begun = []

    class Slow(Echo):
        workers = 4

        def reply(self, request):
            begun.append(request)
            time.sleep(0.3 if request.messages[-1]["content"] == "first" else 0.01)
            return super().reply(request)

    with pytest.raises(InfrastructureError, match="gone"):
        Slow().replies(requests("first", "fail", *map(str, range(60))))
    assert len(begun) < 20


def test_async_replies():
    (request,) = requests("hi")
    assert asyncio.run(Echo().reply_async(request)).text == "hi"


@given(st.text(st.characters(codec=None, exclude_categories=[])))
def test_whatever_a_model_writes_can_be_kept(text):
    reply = Reply(text=text, tool_calls=(ToolCall(id="c", name=text, arguments=text),))
    assert Reply.model_validate_json(reply.model_dump_json()) == reply
