"""What a model wrote, parted: thoughts and calls as servers send them when they do not know the model."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.llm.chat import Reply
from pwagents.llm.parts import part

CALL = '{"name": "search", "arguments": {"query": "a coat"}}'
SEARCH = [("search", {"query": "a coat"})]
THOUGHTS = {
    "as Qwen and DeepSeek think": "<think>\nRed?\n</think>\n\nSize?",
    "opened by the template": "Red?\n</think>\nSize?",
    "twice": "<think>Red?</think><think></think>Size?",
    "in another tag": "<thinking>Red?</thinking>Size?",
    "in capitals": "<Think>Red?</Think>Size?",
    "as Seed's, its end let through": "<seed:think>Red?</seed:think>Size?</s>",
    "as Hunyuan's": "<think>Red?</think>\n<answer>\nSize?\n</answer>",
    "as Mistral's": "[THINK]Red?[/THINK]Size?",
    "as gpt-oss": "<|channel|>analysis<|message|>Red?<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Size?",
    "as Cohere's": "<|START_THINKING|>Red?<|END_THINKING|><|START_RESPONSE|>Size?<|END_RESPONSE|>",
    "as Kimi's": "\u25c1think\u25b7Red?\u25c1/think\u25b7Size?",
}


def deepseek(text):
    """Its marks are written with signs of their own."""
    return text.replace("|", "\uff5c").replace("_", "\u2581")


CALLS = {
    "Hermes and Qwen": f"<tool_call>\n{CALL}\n</tool_call>",
    "not closed": f"<tool_call>{CALL}",
    "after talk": f"Let me look.\n<tool_call>{CALL}</tool_call>",
    "after a thought of another": f"<think><tool_call>x</tool_call></think><tool_call>{CALL}</tool_call>",
    "Mistral, a list": f"[TOOL_CALLS] [{CALL}]",
    "Mistral, by name": '[TOOL_CALLS]search[ARGS]{"query": "a coat"}',
    "Mistral, with an id": '[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{"query": "a coat"}',
    "Llama 3, alone": '{"name": "search", "parameters": {"query": "a coat"}}',
    "Llama 3, after its tag": '<|python_tag|>{"name": "search", "parameters": {"query": "a coat"}}',
    "Llama 3, custom": '<function=search>{"query": "a coat"}</function>',
    "Qwen3-Coder": "<tool_call>\n<function=search>\n<parameter=query>\na coat\n</parameter>\n</function>\n"
    "</tool_call>",
    "in a fence": f"```json\n{CALL}\n```",
    "OpenAI's own form": f'<tool_call>{{"type": "function", "function": {CALL}}}</tool_call>',
    "Phi and Granite": f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "a list, alone": f"[{CALL}]",
    "Llama 4, as Python": '<|python_start|>[search(query="a coat")]<|python_end|>',
    "Llama 3.2, as Python": '[search(query="a coat")]',
    "Cohere": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "search", '
    '"parameters": {"query": "a coat"}}]<|END_ACTION|>',
    "DeepSeek V3": deepseek(
        "<|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>search\n"
        '```json\n{"query": "a coat"}\n```<|tool_call_end|><|tool_calls_end|>'
    ),
    "DeepSeek V3.1": deepseek('<|tool_call_begin|>search<|tool_sep|>{"query": "a coat"}<|tool_call_end|>'),
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
    '{"query": "a coat"}<|tool_call_end|><|tool_calls_section_end|>',
    "GLM": "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a coat</arg_value>\n</tool_call>",
    "MiniMax": '<minimax:tool_call>\n<invoke name="search">\n<parameter name="query">a coat</parameter>\n'
    "</invoke>\n</minimax:tool_call>",
    "gpt-oss": "<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
    '{"query": "a coat"}<|call|>',
}


@pytest.mark.parametrize("written", THOUGHTS.values(), ids=THOUGHTS)
def test_a_thought_is_no_text(written):
    reply = Reply(text=written)
    assert (reply.text, reply.thought, reply.tool_calls, reply.whole) == ("Size?", "Red?", (), written)


def test_a_thought_that_is_not_closed_leaves_no_text_nor_one_within_another():
    assert part("<think>Red? Perhaps")[:2] == ("Red? Perhaps", "")
    assert part("Size?<|end|>")[:2] == ("", "Size?")  # the end of a turn, let through
    assert part("<think>a <think> b</think> c</think> Size?")[1:] == ("Size?", ())


def test_half_a_call_is_not_taken_for_a_whole_one():
    for written in ("<function=search><parameter=query>a co", "<tool_call>x<arg_key>a</arg_key><arg_value>1"):
        (call,) = Reply(text=written, finish_reason="length").tool_calls
        with pytest.raises(ValueError, match="Expecting value"):
            json.loads(call.arguments)


@pytest.mark.parametrize("written", CALLS.values(), ids=CALLS)
def test_a_call_in_the_text_is_a_call(written):
    reply = Reply(text=written)
    assert [(call.name, json.loads(call.arguments)) for call in reply.tool_calls] == SEARCH
    assert reply.text in ("", "Let me look.") and reply.finish_reason == "tool_calls"
    assert all(len(call.id) == 9 and call.id.isalnum() for call in reply.tool_calls)


def test_marks_within_a_call_or_a_thought_are_its_text():
    (call,) = Reply(text='<tool_call>{"name": "say", "arguments": {"a": "<think> b"}}</tool_call>').tool_calls
    assert call.arguments == '{"a": "<think> b"}'
    assert Reply(text=f"<think>Perhaps <tool_call>{CALL}</tool_call>? No.</think>Size?").tool_calls == ()
    assert Reply(
        text=f"<think>Yes: <tool_call>{CALL}</tool_call>"
    ).tool_calls  # a thought that nothing closed


def test_calls_of_one_reply_differ_in_their_ids():
    calls = part("<tool_call>{}</tool_call><tool_call>{}</tool_call>").calls
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize(
    ("body", "name", "arguments"),
    [
        ('{"name": "search", "arguments": {"query": "a', "search", '{"query": "a'),
        ("search(coat)", "", "search(coat)"),
        ('a coat, then {"name": "stop", "arguments": {}}', "stop", "{}}"),
        ("search\n<arg_key>query</arg_key>", "search", "<arg_key>query</arg_key>"),
        ("[1, 2]", "", "[1, 2]"),
        ('{"name": "stop"}', "stop", "{}"),
    ],
)
def test_malformed_calls_stay_as_they_were_written(body, name, arguments):
    (call,) = part(f"<tool_call>{body}</tool_call>").calls
    assert (call.name, call.arguments) == (name, arguments)


@pytest.mark.parametrize(
    "text",
    [
        "  I would ask. ",
        '{"colour": "red", "name": "x"}',
        "a < b",
        "```\nx\n```",
        "[1, 2]",
        "see [a(b=c)]",
        "[]",
    ],
)
def test_other_text_stays_as_it_is(text):
    assert part(text) == ("", text, ())


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
    "x",
]


@given(
    st.text(st.characters(codec=None, exclude_categories=[])) | st.lists(st.sampled_from(MARKS)).map("".join)
)
def test_any_text_is_parted_and_kept(text):
    reply = Reply(text=text)
    assert Reply.model_validate_json(reply.model_dump_json()) == reply
    assert reply.whole == text.encode("utf-8", "replace").decode()
