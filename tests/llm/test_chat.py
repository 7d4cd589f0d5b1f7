"""Conversations in, replies out: what was written is parted, many are asked at once, JSON is read."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pwagents.errors import InfrastructureError, NotEvaluableError
from pwagents.llm.chat import Reply, Request, ask_all
from pwagents.llm.replies import read_reply

from ..agents.conftest import ScriptedModel
from .conftest import CIRCUMSTANCES

TEXTS = [(text, "Red?", "Size?", []) for text in CIRCUMSTANCES["thoughts"].values()]
TEXTS += [(text, "", "", ['search({"query": "a coat"})']) for text in CIRCUMSTANCES["calls"].values()]


@pytest.mark.parametrize(("written", "thought", "text", "calls"), TEXTS + CIRCUMSTANCES["marks"])
def test_a_text_is_parted_into_thought_text_and_calls(written, thought, text, calls):
    reply = Reply(text=written)
    assert (reply.thought, reply.text, reply.whole) == (thought, text, written)
    assert [f"{call.name}({call.arguments})" for call in reply.tool_calls] == calls
    assert reply.finish_reason == ("tool_calls" if calls else "stop")
    ids = {call.id for call in reply.tool_calls}
    assert len(ids) == len(calls) and all(re.fullmatch("[a-z0-9]{9}", each) for each in ids)


MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "', '"', "}", "<function="]


@given(
    st.text(st.characters(codec=None, exclude_categories=[])) | st.lists(st.sampled_from(MARKS)).map("".join)
)
def test_any_text_is_parted_and_kept(text):
    reply = Reply(text=text)
    assert Reply.model_validate_json(reply.model_dump_json()) == reply
    assert reply.whole == text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 1), (3, 1), (1, 4)])
def test_replies_come_in_order_refusals_are_none_and_a_model_out_of_reach_stops_it(workers, batch_size):
    def answer(request):
        text = request.messages[0]["content"]
        if text in errors:
            raise errors[text]
        return text

    model = ScriptedModel(answer)
    model.workers, model.batch_size = workers, batch_size
    asked = [Request(messages=({"role": "user", "content": str(i)},)) for i in range(60)]
    errors = {str(i): NotEvaluableError("too long") for i in range(0, 60, 7)}
    replies = ask_all(model, asked, "asking")
    assert [reply and reply.text for reply in replies] == [None if i % 7 == 0 else str(i) for i in range(60)]
    assert batch_size > 1 or len(model.requests) == 60  # a refusal costs its neighbours nothing
    errors["1"] = InfrastructureError("no route")
    model.requests.clear()
    with pytest.raises(InfrastructureError, match="no route"):
        ask_all(model, asked, "asking")
    assert len(model.requests) < 20


class Form(BaseModel):
    n: int


@given(st.text() | st.just("[" * 100_000))
def test_any_reply_is_read_or_what_is_wrong_is_told_in_one_line(text):
    with suppress(ValueError):
        read_reply(Reply(text="{" + text + "}"), Form)
