"""From what a model says to the action it means.

A reply is split into thought, text and calls already (:class:`pwagents.llm.chat.Reply`). Each form of an
action has a function here: a call or talk (:func:`read_call`), ReAct's form (:func:`read_react`), and exactly
one call after a thought (:func:`read_turn`). Whether the function that is called exists, and whether its
arguments fit, is for the environment to judge.
"""

import json
import math
import re
from typing import Any

from pwagents.llm.chat import Reply
from pwagents.llm.parts import without_calls
from pwagents.schema import Action, ProblemKind

MOST_BRACKETS = 100  # in a call's arguments: what is nested deeper than some 250 cannot be stored


def read_call(reply: Reply) -> Action:
    """Return the action of a reply: its first call, else what it says.

    As in the code published with PersonalWAB only the first call counts, and a reply without a call is said
    to the user.
    """
    if reply.tool_calls:
        call = reply.tool_calls[0]
        written = f"{reply.text}\n{call.name}({call.arguments})".strip()
        arguments, mistake = parse_arguments(call.arguments)
        if reply.is_cut and not call.arguments.strip():
            mistake = "they are missing"
        if mistake:
            return problem_of(reply, written, "malformed_json", f"the arguments of {call.name}: {mistake}")
        return Action(name=call.name, arguments=arguments, thought=reply.text, **_kept(reply))
    if not reply.text.strip() or reply.is_cut:
        return problem_of(reply, reply.text, "empty", "the reply is empty")
    return Action(name="respond", arguments={"content": reply.text}, **_kept(reply))


_NOT_REACT = "the reply must be Thought:, Action: and Arguments:, in this order, each on a line of its own"
_REACT = re.compile(
    r"\A\s*(?:```\w*\s*)?Thought:(?P<thought>.*?)^Action:(?P<name>.*?)^Arguments:(?P<arguments>.*?)"
    r"(?:^(?:Thought|Action|Observation|Result|API output):.*)?\Z",
    re.DOTALL | re.MULTILINE,
)


def read_react(reply: Reply) -> Action:
    """Return the action of a reply in ReAct's form: Thought, Action, Arguments (PersonalWAB, A.2).

    What follows the first action is the model talking to itself and left out. The arguments of ``respond``
    may be plain text.
    """
    if reply.tool_calls and not reply.text.strip():
        return read_call(reply)  # a model that was trained on calls makes one all the same
    match = _REACT.match(reply.text)
    if not match:
        return problem_of(reply, reply.text, "malformed_json" if reply.text.strip() else "empty", _NOT_REACT)
    name, text = match["name"].strip(), match["arguments"].strip().removesuffix("```").strip()
    arguments, mistake = parse_arguments(text)
    is_plain_text = name == "respond" and text and not text.startswith("{")
    if mistake and is_plain_text and not reply.is_cut:
        arguments, mistake = {"content": text}, ""
    if mistake:
        return problem_of(reply, reply.text, "malformed_json", f"the arguments of {name}: {mistake}")
    return Action(name=name, arguments=arguments, thought=match["thought"].strip(), **_kept(reply))


def read_published_react(reply: Reply) -> Action:
    """Return the action of a reply as the published ReAct agent reads it.

    It takes what follows the last "Action:" and the first line after the last "Arguments:". The reply is
    noted, since it is shown again as it was written.
    """
    name = reply.text.split("Action:")[-1].split("Arguments:")[0].strip()
    line = reply.text.split("Arguments:")[-1].strip().split("\n")[0]
    arguments, mistake = ({"content": line}, "") if name == "respond" else parse_arguments(line)
    if mistake:
        return problem_of(reply, reply.text, "malformed_json", f"the arguments of {name}: {mistake}")
    return Action(name=name, arguments=arguments, notes={"reply": reply.text}, **_kept(reply))


def read_turn(reply: Reply) -> Action:
    """Return the action of a reply that is a thought and then exactly one call; all else is a lost step.

    Trained models write such turns; the call is native, or in ``<tool_call></tool_call>``. The thought keeps
    its marks, and a lost step all that was written, so that the turn can be shown to the model again exactly
    as it wrote it.
    """
    if len(reply.tool_calls) != 1 or reply.text.strip():
        message = "the reply must be a thought in <think></think> and then one call"
        kind = "malformed_json" if reply.whole.strip() or reply.tool_calls else "empty"
        return problem_of(reply, reply.whole, kind, message)
    action = read_call(reply)
    if not reply.written:
        return action
    return action.model_copy(
        update={"thought": reply.whole if action.problem else without_calls(reply.whole)}
    )


def parse_arguments(text: str) -> tuple[dict[str, Any], str]:
    """Return the arguments that ``text`` holds as a JSON object, and what is wrong with it, else "".

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
    """Return the action of a reply that holds no call.

    Args:
        written: all that the model wrote, for the thought.
        kind, message: what is wrong. Of a reply at the token limit it is that, whatever else is wrong.
    """
    if reply.finish_reason == "length":
        kind, message = "cut_off", "the reply was cut off at the token limit before its call was complete"
    return Action(thought=written, problem=" ".join(message.split()), problem_kind=kind, **_kept(reply))


def _kept(reply: Reply) -> dict[str, Any]:
    return {"usage": reply.usage, "extras": reply.extras}
