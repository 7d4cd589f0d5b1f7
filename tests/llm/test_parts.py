"""What a model wrote, parted: thoughts and calls as servers send them when they do not know the model."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.llm.chat import Reply
from pwagents.llm.parts import part

from .conftest import CIRCUMSTANCES

CALL = '{"name": "search", "arguments": {"query": "a coat"}}'


@pytest.mark.parametrize("name", CIRCUMSTANCES["thoughts"])
def test_a_thought_is_no_text(name):
    written = CIRCUMSTANCES["thoughts"][name]
    reply = Reply(text=written)
    assert (reply.text, reply.thought, reply.tool_calls, reply.whole) == ("Size?", "Red?", (), written)


@pytest.mark.parametrize("name", CIRCUMSTANCES["calls"])
def test_a_call_in_the_text_is_a_call(name):
    reply = Reply(text=CIRCUMSTANCES["calls"][name])
    (call,) = reply.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("search", {"query": "a coat"})
    assert reply.text in ("", "Let me look.") and reply.finish_reason == "tool_calls"
    assert len(call.id) == 9 and call.id.isalnum()


@pytest.mark.parametrize(
    ("written", "thought", "text", "calls"),
    [
        ("<think>Red? Perhaps", "Red? Perhaps", "", []),  # not closed
        ("<think>a <think> b</think> c</think> Size?", "a <think> b\nc", "Size?", []),
        ("Size?<|end|>", "", "Size?", []),  # the end of a turn, let through
        ('<tool_call>{"name": "s", "arguments": {"a": "<think>"}}</tool_call>', "", "", ['{"a": "<think>"}']),
        (f"<think>Or <tool_call>{CALL}</tool_call>? No.</think>Size?", "Or <tool_call>", "Size?", []),
        (f"<think>Yes: <tool_call>{CALL}</tool_call>", "Yes:", "", ['{"query": "a coat"}']),
        ("  I would ask. ", "", "  I would ask. ", []),
        ('{"colour": "red", "name": "x"}', "", '{"colour": "red", "name": "x"}', []),
        ("```\nx\n```", "", "```\nx\n```", []),
        ("[1, 2]", "", "[1, 2]", []),
        ("see [a(b=c)]", "", "see [a(b=c)]", []),
        # Malformed calls stay as they were written, and half a call is not taken for a whole one.
        ('<tool_call>{"name": "s", "arguments": {"a": "b</tool_call>', "", "", ['{"a": "b']),
        ("<tool_call>search(coat)</tool_call>", "", "", ["search(coat)"]),
        ("<tool_call>[1, 2]</tool_call>", "", "", ["[1, 2]"]),
        ('<tool_call>{"name": "stop"}</tool_call>', "", "", ["{}"]),
        ("<function=search><parameter=query>a co", "", "", ["<parameter=query>a co"]),
        ("<tool_call>x<arg_key>a</arg_key><arg_value>1", "", "", ["<arg_key>a</arg_key><arg_value>1"]),
    ],
)
def test_marks_within_others_and_what_only_looks_like_a_mark(written, thought, text, calls):
    parts = part(written)
    assert parts.text == text and parts.thought.startswith(thought) and bool(parts.thought) == bool(thought)
    assert [call.arguments for call in parts.calls] == calls


def test_calls_of_one_reply_differ_in_their_ids():
    calls = part("<tool_call>{}</tool_call><tool_call>{}</tool_call>").calls
    assert len({call.id for call in calls}) == 2


MARKS = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "[TOOL_CALLS]",
    '{"name": "',
    '"',
    "}",
    "<function=",
]
TEXTS = st.text(st.characters(codec=None, exclude_categories=[]))


@given(TEXTS | st.lists(st.sampled_from(MARKS)).map("".join))
def test_any_text_is_parted_and_kept(text):
    reply = Reply(text=text)
    assert Reply.model_validate_json(reply.model_dump_json()) == reply
    assert reply.whole == text.encode("utf-8", "replace").decode()
