"""From what a model says to the action it means.

Models make their calls in three forms, and each has a function here: natively (:func:`read_call`), as text
in ReAct's form (:func:`read_react`), and as a thought followed by a call (:func:`read_turn`). Whether the
function that is called exists, and whether its arguments fit, is for the environment to judge.
"""

import json
import math
import re
from typing import Any

from pwagents.llm.chat import Reply, parse_tool_calls
from pwagents.schema import Action, ProblemKind

MOST_BRACKETS = 100  # in a call's arguments: what is nested deeper than some 250 cannot be stored


def read_call(reply: Reply) -> Action:
    """The action of a reply with native tool calls.

    As in the code published with PersonalWAB only the first call counts, and a reply without a call is said
    to the user.
    """
    if reply.tool_calls:
        call = reply.tool_calls[0]
        written = f"{reply.text}\n{call.name}({call.arguments})".strip()
        arguments, mistake = parse_arguments(call.arguments)
        if mistake:
            return problem_of(reply, written, "malformed_json", f"the arguments of {call.name}: {mistake}")
        return Action(name=call.name, arguments=arguments, thought=reply.text, usage=reply.usage)
    if not reply.text.strip() or reply.finish_reason == "length":
        return problem_of(reply, reply.text, "empty", "the reply is empty")
    return Action(name="respond", arguments={"content": reply.text}, usage=reply.usage)


_NOT_REACT = "the reply must be Thought:, Action: and Arguments:, in this order, each on a line of its own"
_REACT = re.compile(
    r"\A\s*(?:```\w*\s*)?Thought:(?P<thought>.*?)^Action:(?P<name>.*?)^Arguments:(?P<arguments>.*?)"
    r"(?:^(?:Thought|Action|Observation|Result|API output):.*)?\Z",
    re.DOTALL | re.MULTILINE,
)


def read_react(reply: Reply) -> Action:
    """The action of a reply in ReAct's form: Thought, Action, Arguments (A.2).

    What follows the first action is the model talking to itself and left out. The arguments of ``respond``
    may be plain text.
    """
    match = _REACT.match(reply.text)
    if not match:
        return problem_of(reply, reply.text, "malformed_json" if reply.text.strip() else "empty", _NOT_REACT)
    name, text = match["name"].strip(), match["arguments"].strip().removesuffix("```").strip()
    arguments, mistake = parse_arguments(text)
    is_plain_text = name == "respond" and text and not text.startswith("{")
    if mistake and is_plain_text and reply.finish_reason != "length":
        arguments, mistake = {"content": text}, ""
    if mistake:
        return problem_of(reply, reply.text, "malformed_json", f"the arguments of {name}: {mistake}")
    return Action(name=name, arguments=arguments, thought=match["thought"].strip(), usage=reply.usage)


_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)\s*", re.DOTALL)


def read_turn(reply: Reply) -> Action:
    """The action of a reply that is a thought and then exactly one call. Anything else is a lost step.

    Models that were trained write such turns; the call is native, or in ``<tool_call></tool_call>``. The
    thought keeps its marks, and a lost step all that was written, so that the turn can be told to the model
    again exactly as it wrote it.
    """
    text, calls = reply.text, reply.tool_calls
    if not calls:
        text, calls = parse_tool_calls(reply.text, "call")
    if len(calls) != 1 or _THOUGHT.sub("", text).strip():
        message = "the reply must be a thought in <think></think> and then one call"
        kind = "malformed_json" if reply.text.strip() or calls else "empty"
        return problem_of(reply, reply.text, kind, message)
    action = read_call(reply.model_copy(update={"text": text, "tool_calls": calls}))
    if action.problem and reply.tool_calls:
        return action
    return action.model_copy(update={"thought": reply.text if action.problem else text.strip()})


def parse_arguments(text: str) -> tuple[dict[str, Any], str]:
    """The arguments that ``text`` holds as a JSON object, and what is wrong with it, else an empty text.

    No text at all is a call without arguments. Half a surrogate pair, which no file can hold, becomes "?".
    """
    # Brackets are counted first: what is nested too deep would overflow the parser's stack.
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        return {}, f"more than {MOST_BRACKETS} opening brackets"
    try:
        arguments = json.loads(text, parse_constant=_refuse, parse_float=_finite) if text.strip() else {}
    except ValueError as error:
        return {}, f"no valid JSON ({error})"
    if arguments is None:  # "arguments": null, as local models write a call without any
        arguments = {}
    if not isinstance(arguments, dict):
        return {}, "they must be a JSON object"
    # UTF-8 and back: half a surrogate pair may stand in any key or value.
    whole = json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace")
    return json.loads(whole), ""


def _finite(number: str) -> float:
    return float(number) if math.isfinite(float(number)) else _refuse(number)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def problem_of(reply: Reply, written: str, kind: ProblemKind, message: str) -> Action:
    """The action of a reply that holds no call.

    Args:
        written: all that the model wrote, for the thought.
        kind, message: what is wrong. Of a reply at the token limit it is that, whatever else is wrong.
    """
    if reply.finish_reason == "length":
        kind, message = "cut_off", "the reply was cut off at the token limit before its call was complete"
    return Action(thought=written, problem=" ".join(message.split()), problem_kind=kind, usage=reply.usage)
