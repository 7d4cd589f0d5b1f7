"""Replies of a model and the actions they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.agents.replies import read_call, read_react, read_turn
from pwagents.llm.chat import Reply, ToolCall
from pwagents.schema import Action, Usage


def call_reply(*calls, text="", finish="tool_calls"):
    tool_calls = tuple(ToolCall(id=str(i), name=name, arguments=a) for i, (name, a) in enumerate(calls))
    return Reply(text=text, tool_calls=tool_calls, finish_reason=finish, usage=Usage(calls=1))


def test_only_the_first_call_counts_and_what_is_said_beside_it_is_the_thought():
    reply = call_reply(("search_product_by_query", '{"query": "mug"}'), ("stop", "{}"), text="a mug then")
    assert read_call(reply) == Action(
        name="search_product_by_query", arguments={"query": "mug"}, thought="a mug then", usage=Usage(calls=1)
    )


def test_a_reply_without_a_call_is_said_to_the_user():
    action = read_call(Reply(text="Which color?"))
    assert (action.name, action.arguments, action.thought) == ("respond", {"content": "Which color?"}, "")


@pytest.mark.parametrize("arguments", ["", "null"])
def test_no_arguments_at_all_are_no_mistake(arguments):
    assert read_call(call_reply(("stop", arguments))) == Action(name="stop", usage=Usage(calls=1))


def test_half_a_surrogate_pair_does_not_get_into_a_conversation():
    reply = call_reply(("respond", r'{"content": "caf\u00e9 \ud83d\ude00 \ud83d"}'))
    assert read_call(reply).arguments == {"content": "café \U0001f600 ?"}


@pytest.mark.parametrize(
    ("reply", "kind", "message"),
    [
        (call_reply(("stop", "{oops")), "malformed_json", "the arguments of stop: no valid JSON"),
        (call_reply(("stop", "[1]")), "malformed_json", "must be a JSON object"),
        (call_reply(("stop", '{"a": NaN}')), "malformed_json", "NaN is no JSON"),
        (call_reply(("stop", '{"query": 1e999}')), "malformed_json", "1e999 is no JSON"),
        (
            call_reply(("stop", '{"a": ' + "[" * 300 + "]" * 300 + "}")),
            "malformed_json",
            "100 opening brackets",
        ),
        (Reply(), "empty", "empty"),
        (Reply(text=" \n", finish_reason="content_filter"), "empty", "empty"),
        (Reply(text="I was about to", finish_reason="length"), "cut_off", "token limit"),
        (Reply(finish_reason="length"), "cut_off", "token limit"),
        (call_reply(("stop", '{"a": "b'), finish="length"), "cut_off", "token limit"),
    ],
)
def test_replies_without_a_call_that_can_be_carried_out(reply, kind, message):
    action = read_call(reply)
    assert (action.name, action.problem_kind) == ("", kind)
    assert message in action.problem and "\n" not in action.problem


def test_a_whole_call_counts_even_at_the_token_limit():
    assert read_call(call_reply(("stop", "{}"), finish="length")).name == "stop"


def react(thought="why", name="search_product_by_query", arguments='{"query": "mug"}'):
    return f"Thought:\n{thought}\nAction:\n{name}\nArguments:\n{arguments}"


def test_react_is_a_thought_an_action_and_arguments():
    action = read_react(Reply(text=react(), usage=Usage(calls=1)))
    assert action == Action(
        name="search_product_by_query", arguments={"query": "mug"}, thought="why", usage=Usage(calls=1)
    )


@pytest.mark.parametrize(
    "text",
    [
        react().replace(":\n", ": "),  # all on three lines
        f"```\n{react()}\n```",
        f"```text\n{react()}\n```\nObservation: 10 mugs\nThought: more",
        react() + "\n\nResult:\nmugs\nThought:\nnow stop\nAction:\nstop\nArguments:\n{}",
        react(arguments='{\n  "query":\n  "mug"\n}'),
    ],
)
def test_react_reads_the_first_action_in_whatever_layout(text):
    action = read_react(Reply(text=text))
    assert (action.name, action.arguments) == ("search_product_by_query", {"query": "mug"})


@pytest.mark.parametrize(
    ("arguments", "content"),
    [('{"content": "Which color?"}', "Which color?"), ("Which color?", "Which color?")],
)
def test_react_respond_takes_json_or_plain_text(arguments, content):
    action = read_react(Reply(text=react(name="respond", arguments=arguments)))
    assert (action.name, action.arguments) == ("respond", {"content": content})


def test_react_stop_needs_no_arguments():
    assert read_react(Reply(text=react(name="stop", arguments=""))).name == "stop"


@pytest.mark.parametrize(
    ("text", "finish", "kind"),
    [
        ("I would search for a mug.", "stop", "malformed_json"),
        (react(arguments="query: mug"), "stop", "malformed_json"),
        (react(name="respond", arguments='{"content": "Wh'), "stop", "malformed_json"),
        (react().replace("Thought:", "**Thought:**"), "stop", "malformed_json"),
        ("", "stop", "empty"),
        (react(name="respond", arguments="Which co"), "length", "cut_off"),
        ("Thought:\nlet me see", "length", "cut_off"),
    ],
)
def test_react_is_read_strictly(text, finish, kind):
    action = read_react(Reply(text=text, finish_reason=finish))
    assert (action.name, action.problem_kind, action.thought) == ("", kind, text)


def written(call, thought="<think>open: color</think>"):
    return Reply(text=f"{thought}<tool_call>{call}</tool_call>")


GOOD = '{"name": "respond", "arguments": {"content": "Which color?"}}'


def test_a_thought_and_one_call_are_an_action():
    action = read_turn(written(GOOD))
    assert (action.name, action.arguments) == ("respond", {"content": "Which color?"})
    assert (action.thought, action.problem) == ("<think>open: color</think>", "")
    assert read_turn(written(GOOD, "")).name == "respond", "a thought may be left out"


def test_native_calls_of_an_endpoint_are_read_alike():
    call = ToolCall(id="x", name="respond", arguments='{"content": "Which color?"}')
    reply = Reply(text="<think>open: color</think>\n", tool_calls=(call,), finish_reason="tool_calls")
    assert read_turn(reply) == read_turn(written(GOOD))


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(text=written(GOOD).text * 2), "malformed_json"),
        (Reply(text="<think>nothing</think>"), "malformed_json"),
        (Reply(text="Which color would you like?"), "malformed_json"),
        (Reply(text=written(GOOD).text + " Thank you."), "malformed_json"),
        (Reply(text="Hello. " + written(GOOD).text), "malformed_json"),
        (written('{"name": "respond", "arguments": {"content": }}'), "malformed_json"),
        (written('{"name": "respond", "arguments": ["Which color?"]}'), "malformed_json"),
        (Reply(text=""), "empty"),
        (Reply(text="<think>open: color</think><tool_call>{", finish_reason="length"), "cut_off"),
        (Reply(text="<think>open: col", finish_reason="length"), "cut_off"),
    ],
)
def test_anything_else_is_a_lost_step_that_keeps_what_was_written(reply, kind):
    action = read_turn(reply)
    assert action.problem_kind == kind and action.problem and not action.name
    assert "\n" not in action.problem
    assert action.thought == reply.text


def test_an_unknown_function_is_for_the_environment_to_judge():
    assert read_turn(written('{"name": "buy", "arguments": {}}')).name == "buy"


words = st.sampled_from(["Thought:", "Action:", "Arguments:", "\n", "{", "}", '"', "respond", "a", "```"])


@given(st.lists(words, max_size=30).map("".join), st.text(max_size=20), st.booleans())
def test_whatever_a_model_says_is_a_call_or_a_problem(text, arguments, cut):
    finish = "length" if cut else "stop"
    for action in (
        read_call(Reply(text=text, finish_reason=finish)),
        read_call(call_reply(("stop", arguments), text=text, finish=finish)),
        read_react(Reply(text=text, finish_reason=finish)),
        read_turn(Reply(text=text, finish_reason=finish)),
    ):
        assert bool(action.problem) == bool(action.problem_kind)
        assert not (action.problem and action.name)
