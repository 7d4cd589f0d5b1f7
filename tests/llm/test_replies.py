"""JSON replies: what is read of them, and that a bad one is sent back once."""

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pwagents.errors import NotEvaluableError
from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.llm.replies import ask_twice, read_reply


class Form(BaseModel):
    n: int


class Script(ChatModel):
    """Answers the first request of a conversation by its text, and a correction by ``second``."""

    name = "script"

    def __init__(self, second):
        self.second, self.requests = second, []

    def reply(self, request):
        self.requests.append(request)
        if request.messages[0]["content"] == "refuse":
            raise NotEvaluableError("too long")
        return Reply(text=self.second if len(request.messages) > 1 else request.messages[0]["content"])


def ask(texts, second):
    model, failures = Script(second), Counter()
    requests = [Request(messages=({"role": "user", "content": text},), sample=7) for text in texts]

    def read(reply):
        return read_reply(reply, Form).n

    return ask_twice(model, requests, [read] * len(texts), "numbers", failures), failures, model


@pytest.mark.parametrize(
    "text", ['{"n": 3}', 'Sure, here it is: {"n": 3}', '```json\n{"n": 3, "m": 1}\n```\nSo.']
)
def test_text_around_the_object_is_passed_over(text):
    assert read_reply(Reply(text=text), Form).n == 3


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply(text="none"), "no JSON object"),
        (Reply(text="}{"), "no JSON object"),
        (Reply(text="{n: 3}"), "no valid JSON"),
        (Reply(text='{"n": "many"}'), "n: Input should be a valid integer"),
        (Reply(text='{"n": 3}', finish_reason="length"), "cut off"),
        (Reply(text='{"n":' + "[" * 100_000 + "}"), "no valid JSON"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(reply, problem):
    with pytest.raises(ValueError, match=problem) as error:
        read_reply(reply, Form)
    assert "\n" not in str(error.value)


@given(st.text())
def test_any_reply_is_read_or_refused(text):
    with suppress(ValueError):
        assert isinstance(read_reply(Reply(text="{" + text + "}"), Form).n, int)


def test_a_bad_reply_is_sent_back_once_with_what_is_wrong():
    results, failures, model = ask(['{"n": 1}', "hm", "refuse"], '{"n": 0}')
    assert results == [1, 0, None]
    assert failures == {"repaired": 1, "unreadable": 0, "refused": 1}
    again = model.requests[-1]
    assert [m["role"] for m in again.messages] == ["user", "assistant", "user"] and again.sample == 7
    assert "it holds no JSON object" in again.messages[-1]["content"]


def test_what_cannot_be_read_at_the_second_try_is_none():
    results, failures, model = ask(["hm"], "hm")
    assert results == [None] and len(model.requests) == 2
    assert failures == {"repaired": 0, "unreadable": 1, "refused": 0}
