"""Conversations as models want them, many requests at once, and JSON replies that are sent back once."""

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pwagents.errors import InfrastructureError, NotEvaluableError
from pwagents.llm.chat import ChatModel, Reply, Request, alternating, ask_all
from pwagents.llm.replies import Stray, ask_twice, read_reply


class Echo(ChatModel):
    """Says the request's text, or ``second`` to a correction; refuses "no", is out of reach for "gone"."""

    name = "echo"

    def __init__(self, workers=1, batch_size=1, second=""):
        self.workers, self.batch_size, self.second, self.requests = workers, batch_size, second, []

    def reply(self, request):
        text = request.messages[0]["content"]
        self.requests.append(request)
        if text == "no":
            raise NotEvaluableError("too long")
        if text == "gone":
            raise InfrastructureError("no route")
        return Reply(text=self.second if len(request.messages) > 1 else text)


def requests(texts):
    return [Request(messages=({"role": "user", "content": text},), sample=7) for text in texts]


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 1), (3, 1), (1, 4)])
def test_replies_come_in_order_and_refusals_are_none(workers, batch_size):
    texts = [str(i) if i % 7 else "no" for i in range(40)]
    replies = ask_all(model := Echo(workers, batch_size), requests(texts), "asking")
    assert [reply and reply.text for reply in replies] == [t if t != "no" else None for t in texts]
    assert batch_size > 1 or len(model.requests) == 40  # a refusal costs its neighbours nothing


def test_a_model_out_of_reach_stops_it():
    model = Echo(2)
    with pytest.raises(InfrastructureError, match="no route"):
        ask_all(model, requests(["a", "gone", *map(str, range(60))]), "asking")
    assert len(model.requests) < 20


SYSTEM, HI = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
YES, CALL = {"role": "assistant", "content": "Yes?"}, {"role": "assistant", "tool_calls": [{"id": "c"}]}


@pytest.mark.parametrize(
    ("messages", "users", "rest"),
    [
        ([SYSTEM, HI, YES], ["Be brief.\n\nHi"], [YES]),
        ([SYSTEM, YES], ["Be brief."], [YES]),
        ([HI, YES], ["Hi"], [YES]),
        ([SYSTEM, HI, HI], ["Be brief.\n\nHi\n\nHi"], []),
        ([HI, CALL, YES], ["Hi"], [CALL, YES]),
    ],
)
def test_roles_are_made_user_and_assistant_in_turns(messages, users, rest):
    assert alternating(messages) == [{"role": "user", "content": text} for text in users] + rest


class Form(BaseModel):
    n: int


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply(text='{"n": 3}'), ""),
        (Reply(text='Sure, here it is: {"n": 3}'), ""),
        (Reply(text='```json\n{"n": 3, "m": 1}\n```\nSo.'), ""),
        (Reply(text="none"), "no JSON object"),
        (Reply(text="}{"), "no JSON object"),
        (Reply(text="{n: 3}"), "no valid JSON"),
        (Reply(text='{"n": "many"}'), "n: Input should be a valid integer"),
        (Reply(text='{"n": 3}', finish_reason="length"), "cut off"),
        (Reply(text='{"n":' + "[" * 100_000 + "}"), "no valid JSON"),
    ],
)
def test_a_json_object_is_read_or_what_is_wrong_is_told_in_one_line(reply, problem):
    if not problem:
        assert read_reply(reply, Form).n == 3
        return
    with pytest.raises(ValueError, match=problem) as error:
        read_reply(reply, Form)
    assert "\n" not in str(error.value)


@given(st.text())
def test_any_reply_is_read_or_refused(text):
    with suppress(ValueError):
        assert isinstance(read_reply(Reply(text="{" + text + "}"), Form).n, int)


def test_a_bad_reply_is_sent_back_once_with_what_is_wrong():
    def read(reply):
        if (n := read_reply(reply, Form).n) < 0:
            raise Stray("it is below zero", n)
        return n

    def ask(texts, second):
        model, failures = Echo(second=second), Counter()
        return ask_twice(model, requests(texts), [read] * len(texts), "numbers", failures), failures, model

    results, failures, model = ask(['{"n": 1}', "hm", "no"], '{"n": 0}')
    assert results == [1, 0, None] and failures == {"repaired": 1, "unreadable": 0, "refused": 1}
    again = model.requests[-1]
    assert [m["role"] for m in again.messages] == ["user", "assistant", "user"] and again.sample == 7
    assert "it holds no JSON object" in again.messages[-1]["content"]
    results, failures, model = ask(["hm", '{"n": -1}'], "hm")  # a stray reply is better than none
    assert results == [None, -1] and len(model.requests) == 4
    assert failures == {"repaired": 0, "unreadable": 1, "refused": 0}
