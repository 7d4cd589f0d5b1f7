"""Tool calls in the text of a local model, whatever it wrote."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pwagents.llm.chat import parse_tool_calls

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def parse(text):
    rest, calls = parse_tool_calls(text, "call")
    return rest, [(call.name, call.arguments) for call in calls]


def test_text_and_two_calls():
    text = (
        'So.\n<tool_call>\n{"name": "search", "arguments": {"query": "a coat"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "stop"}\n</tool_call>'
    )
    rest, calls = parse_tool_calls(text, "call_7")
    assert rest == "So."
    assert [(call.id, call.name) for call in calls] == [("call_7_0", "search"), ("call_7_1", "stop")]
    assert [json.loads(call.arguments) for call in calls] == [{"query": "a coat"}, {}]


def test_malformed_json_is_kept_as_it_is():
    assert parse('<tool_call>{"name": "search", "arguments": {"query": "a</tool_call>') == (
        "",
        [("search", '{"query": "a')],
    )
    assert parse("<tool_call>search(coat)</tool_call>") == ("", [("", "search(coat)")])
    assert parse("<tool_call>[1, 2]</tool_call>") == ("", [("", "[1, 2]")])


def test_a_call_that_is_not_closed_reaches_to_the_end():
    assert parse('<tool_call>{"name": "stop", "arguments": {}}') == ("", [("stop", "{}")])


def test_text_without_calls_stays():
    assert parse("  I would ask first. ") == ("I would ask first.", [])


@given(st.text(), st.text(), json_values)
def test_a_written_call_comes_back(before, name, arguments):
    body = json.dumps({"name": name, "arguments": arguments})
    _, calls = parse_tool_calls(before + "<tool_call>" + body + "</tool_call>", "call")
    got = calls[-1]
    if "</tool_call>" not in body and "<tool_call>" not in before + body:
        assert got.name == name
        assert (got.arguments if isinstance(arguments, str) else json.loads(got.arguments)) == arguments


@given(
    st.text()
    | st.lists(st.sampled_from(["<tool_call>", "</tool_call>", '{"name": "', '"', "}", "x"])).map("".join)
)
def test_any_text_is_parsed(text):
    rest, calls = parse_tool_calls(text, "call")
    assert "<tool_call>" not in rest or not calls
    assert len(calls) <= text.count("<tool_call>")
