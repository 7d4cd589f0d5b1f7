"""Replies of a model and the actions they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.agents.replies import read_call, read_react, read_turn
from pwagents.llm.chat import Reply, ToolCall
from pwagents.schema import Action, Usage


def calls(*pairs, text="", finish="tool_calls"):
    tool_calls = tuple(ToolCall(id=str(i), name=name, arguments=a) for i, (name, a) in enumerate(pairs))
    return Reply(text=text, tool_calls=tool_calls, finish_reason=finish, usage=Usage(calls=1))


def react(thought="why", name="search_product_by_query", arguments='{"query": "mug"}'):
    return f"Thought:\n{thought}\nAction:\n{name}\nArguments:\n{arguments}"


def test_only_the_first_call_counts_and_what_is_said_beside_it_is_the_thought():
    reply = calls(("search_product_by_query", '{"query": "mug"}'), ("stop", "{}"), text="a mug then")
    assert read_call(reply) == Action(
        name="search_product_by_query", arguments={"query": "mug"}, thought="a mug then", usage=Usage(calls=1)
    )


def test_no_arguments_at_all_are_no_mistake_and_a_whole_call_counts_at_the_token_limit():
    for reply in (calls(("stop", "")), calls(("stop", "null")), calls(("stop", "{}"), finish="length")):
        assert read_call(reply) == Action(name="stop", usage=Usage(calls=1))
    assert read_react(Reply(text=react(name="stop", arguments=""))).name == "stop"


def test_half_a_surrogate_pair_does_not_get_into_a_conversation():
    reply = calls(("respond", r'{"content": "caf\u00e9 \ud83d\ude00 \ud83d"}'))
    assert read_call(reply).arguments == {"content": "café \U0001f600 ?"}


@pytest.mark.parametrize(
    "text",
    [
        react(),
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
    assert action.thought == "why"


def test_what_is_said_to_the_user_is_a_text_without_a_call_and_in_react_json_or_plain_text():
    for arguments in ('{"content": "Which color?"}', "Which color?"):
        action = read_react(Reply(text=react(name="respond", arguments=arguments)))
        assert (action.name, action.arguments) == ("respond", {"content": "Which color?"})
    action = read_call(Reply(text="Which color?"))
    assert (action.name, action.arguments, action.thought) == ("respond", {"content": "Which color?"}, "")


GOOD = '<tool_call>{"name": "respond", "arguments": {"content": "Which color?"}}</tool_call>'
THOUGHT = "<think>open: color</think>"


def test_a_thought_and_one_call_are_an_action():
    action = read_turn(Reply(text=THOUGHT + GOOD))
    assert (action.name, action.arguments) == ("respond", {"content": "Which color?"})
    assert (action.thought, action.problem) == (THOUGHT, "")
    assert read_turn(Reply(text=GOOD)).name == "respond", "a thought may be left out"
    native = calls(("respond", '{"content": "Which color?"}'), text=THOUGHT + "\n")
    assert read_turn(native) == action.model_copy(update={"usage": Usage(calls=1)})
    unknown = GOOD.replace("respond", "buy")  # which functions there are is for the environment to judge
    assert read_turn(Reply(text=unknown)).name == "buy"


def text(content, finish="stop"):
    return Reply(text=content, finish_reason=finish)


LOST = {  # reader -> (reply, the kind of its problem, what the model is told)
    read_call: [
        (calls(("stop", "{oops")), "malformed_json", "the arguments of stop: no valid JSON"),
        (calls(("stop", '{"query": 1e999}')), "malformed_json", "1e999 is no JSON"),
        (calls(("stop", '{"a": ' + "[" * 300 + "]" * 300 + "}")), "malformed_json", "100 opening brackets"),
        (text(" \n", "content_filter"), "empty", "empty"),
        (calls(("stop", '{"a": "b'), finish="length"), "cut_off", "token limit"),
    ],
    read_react: [
        (text(react(arguments="query: mug")), "malformed_json", "no valid JSON"),
        (text(react().replace("Thought:", "**Thought:**")), "malformed_json", "must be Thought:"),
        (text(""), "empty", "must be Thought:"),
        (text(react(name="respond", arguments="Which co"), "length"), "cut_off", "token limit"),
    ],
    read_turn: [
        (text((THOUGHT + GOOD) * 2), "malformed_json", "a thought in <think></think> and then one call"),
        (text("Hello. " + THOUGHT + GOOD), "malformed_json", "one call"),
        (text(GOOD.replace('{"content": "Which color?"}', "[1]")), "malformed_json", "a JSON object"),
        (text(""), "empty", "one call"),
        (text(THOUGHT + "<tool_call>{", "length"), "cut_off", "token limit"),
    ],
}


@pytest.mark.parametrize("read", LOST)
def test_a_reply_without_a_call_is_a_lost_step_that_keeps_what_was_written(read):
    for reply, kind, message in LOST[read]:
        action = read(reply)
        assert (action.name, action.problem_kind) == ("", kind)
        assert message in action.problem and "\n" not in action.problem
        assert action.thought == reply.whole or reply.tool_calls


words = st.sampled_from(["Thought:", "Action:", "Arguments:", "\n", "{", "}", '"', "respond", "a", "```"])


@given(st.lists(words, max_size=30).map("".join), st.text(max_size=20), st.sampled_from(["length", "stop"]))
def test_whatever_a_model_says_is_a_call_or_a_problem(text, arguments, finish):
    reply = Reply(text=text, finish_reason=finish)
    called = calls(("stop", arguments), text=text, finish=finish)
    for action in (read_call(reply), read_call(called), read_react(reply), read_turn(reply)):
        assert bool(action.problem) == bool(action.problem_kind)
        assert not (action.problem and action.name)
