"""What a model wrote, split into thought, text and calls: once, for every provider, where a reply is made.

Servers that do not know a model's format send all of it as text, in the model's own marks (``parts.yaml``).
"""

import ast
import hashlib
import json
import re
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from pwagents.schema import Record
from pwagents.words import read_yaml


def utf8(text: Any) -> Any:
    """Replace half a surrogate pair, which a cut-off reply may end in and no file can hold, by "?"."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


Written = Annotated[str, BeforeValidator(utf8)]  # a text by a model


class ToolCall(Record):
    """A call as the model wrote it: ``arguments`` is its JSON text, which may be malformed."""

    id: Written
    name: Written
    arguments: Written


class Parts(NamedTuple):
    """What a model wrote."""

    thought: str
    text: str
    calls: tuple[ToolCall, ...]


_MARKS = read_yaml(__package__, "parts.yaml")
# Read from left to right: what stands within a thought is no call, and what stands within a call no thought.
# A thought that is not closed ends where a whole call ends the text.
_WHOLE_CALL = r"(?=<tool_call>(?:(?!</?think>).)*</tool_call>\s*\Z)"
_THOUGHTS = [rf"(?:{opening})(.*?)((?:{end})\s*|{_WHOLE_CALL}|\Z)" for opening, end in _MARKS["thoughts"]]
_CALLS = [rf"(?:{opening})(.*?)({end}|\Z)" for opening, end in _MARKS["calls"]]
# Two groups a mark: what is within, and the end.
_MARKED = re.compile("|".join(_THOUGHTS + _CALLS), re.DOTALL | re.IGNORECASE)
_LAST_THOUGHT = 2 * len(_THOUGHTS)  # group
_THOUGHT_START, _THOUGHT_END = (  # "<|end|>" ends other models' turns, too
    re.compile("|".join(mark for mark in marks if mark != r"<\|end\|>"), re.IGNORECASE)
    for marks in zip(*_MARKS["thoughts"], strict=True)
)
_FRAME = re.compile("|".join(_MARKS["frames"]))
# Forms of a call: a name and then JSON, with marks and no words between them; tags with the arguments as tags
# within; a line of Python; half an object.
_NAMED = re.compile(
    r"(?:function<\uff5c?tool\u2581sep\uff5c>)?(?:functions\.)?([\w.-]+)(?::\d+)?"
    r"(?:\s|\[\w+\](?:\w{9})?|<(?!tool_call)[^<>]*>(?:commentary|json|\s)*|```json)*(\{.*)",
    re.DOTALL,
)
_TAGGED = re.compile(r'<(?:function=|invoke name=)"?([^>\s"]*)"?>(.*?)(</function>|</invoke>|\Z)', re.DOTALL)
_ARGUMENT = re.compile(
    r'<(?:parameter(?:=| name=)"?([^>\s"]*)"?[^<>]*|arg_key>(.*?)</arg_key>\s*<arg_value)>\n?(.*?)\n?'
    r"(?:</(?:parameter|arg_value)>|(?=<parameter)|\Z)",
    re.DOTALL,
)
_PYTHON = re.compile(r"\A\s*(?:\[\w+\(.*\)\]|\w+\(\w+=.*\))\s*\Z", re.DOTALL)
_FENCED = re.compile(r"\A\s*```\w*\n(.*?)\n?```\s*\Z", re.DOTALL)
_REACT = re.compile(r"^Action:.*^Arguments:\s*(\{.*)", re.DOTALL | re.MULTILINE)
_BETWEEN = re.compile(r"\}\s*;?\s*\{")  # two calls
# A call without a mark, by its last letter: all of a text, or its last lines. They may stand in a fence.
_BEGINS = {
    end: re.compile(rf"^[ \t]*{begin}", re.MULTILINE)
    for end, begin in {"}": r"\{", "]": r"\[", ")": r"\w+\(\w+="}.items()
}
_FENCE = re.compile(r"```\w*\s*\Z")
# Names that some makers put before the tags of their calls.
_PREFIX = re.compile(r"(?<=[</])(?:\uff5cDSML\uff5c|\w+:)(?=(?:invoke|parameter|(?:tool|function)_calls?)\b)")
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*(.*)', re.DOTALL)


def part(written: str) -> Parts:
    """Split a text; without any mark of a thought or a call, it is the text of the result, unchanged."""
    thoughts, bodies, text = list[str](), list[tuple[str, str]](), _PREFIX.sub("", written)
    if not _THOUGHT_START.search(text):  # the template may have opened the thought
        *thoughts, text = _THOUGHT_END.split(text)
    for match in _MARKED.finditer(text):
        body, is_closed = match[match.lastindex - 1], bool(match[match.lastindex])
        if match.lastindex <= _LAST_THOUGHT:
            thoughts.append(body)
        else:
            bodies += _calls_in(body.strip(), is_closed)
    *nested, text = _THOUGHT_END.split(_MARKED.sub("", text))
    text = _FRAME.sub("", text)
    # The text may end in a call, or in a list of calls.
    body = text.rstrip("` \n")
    first = begin.search(body) if not bodies and (begin := _BEGINS.get(body[-1:])) else None
    if first and (last := _as_calls(body[first.start() :], alone=True)):
        text, bodies = _FENCE.sub("", text[: first.start()]), last
    thought = "\n".join(filter(None, map(str.strip, thoughts + nested)))
    numbered = enumerate(bodies)
    calls = (ToolCall(id=call_id(written, i), name=name, arguments=given) for i, (name, given) in numbered)
    return Parts(thought, text if text == written else text.strip(), tuple(calls))


def ends_with_call(written: str, before: str = "") -> bool:
    """Return whether a text holds a whole call, and not in a thought, which ``before`` may have opened."""
    *closed, text = _THOUGHT_END.split(_PREFIX.sub("", written))
    opened = any(mark.end() == len(before.rstrip()) for mark in _THOUGHT_START.finditer(before))
    if _THOUGHT_START.search(text) or (opened and not closed):
        return False
    if call := _MARKED.search(text):
        return bool(call[call.lastindex])
    if of_react := _REACT.search(text):
        with suppress(ValueError, RecursionError):
            return isinstance(json.loads(of_react[1]), dict)
        return False
    return text.endswith(("}", "]")) and bool(part(written).calls)


def without_calls(written: str) -> str:
    """Return what a model wrote besides its calls, the marks of its thought included."""
    return _MARKED.sub(lambda mark: "" if mark.lastindex > _LAST_THOUGHT else mark[0], written).strip()


def call_id(text: str, number: int) -> str:
    """Return an id that every server accepts, nine hex digits, always the same for text and number."""
    return hashlib.sha256(f"{number} {text}".encode("utf-8", "replace")).hexdigest()[:9]


def _calls_in(body: str, is_closed: bool) -> list[tuple[str, str]]:
    """Return names and arguments of the calls in one mark; unreadable text is arguments without a name."""
    body = _FENCED.sub(r"\1", body)
    if (calls := _as_calls(body)) is not None:
        return calls
    if tagged := _TAGGED.findall(body):
        return [(name, _tags_to_json(inner.strip(), is_closed or end)) for name, inner, end in tagged]
    if "<arg_key>" in body:
        name, mark, rest = body.partition("<arg_key>")
        return [(name.strip(), _tags_to_json(mark + rest, is_closed))]
    if not body.startswith(("{", "[")) and (match := _NAMED.match(body)):
        return [(match[1], match[2].rstrip("`) \n"))]
    name, arguments = _NAME.search(body), _ARGUMENTS.search(body)  # half a call
    return [(name[1] if name else "", arguments[1] if arguments else body)]


def _as_calls(text: str, alone: bool = False) -> list[tuple[str, str]] | None:
    """Return names and arguments of calls in JSON, one or a list, or in Python; None if it is neither.

    Args:
        alone: no mark says that it is a call, so it must hold arguments, and no other field.
    """
    try:
        # [search(query="a coat")], as Llama 3.2 and 4 write calls; or one, without brackets
        if _PYTHON.match(text):
            listed = text.strip().removeprefix("[").removesuffix("]")
            return [
                (call.func.id, _json({each.arg: ast.literal_eval(each.value) for each in call.keywords}))
                for call in ast.parse(f"[{listed}]", mode="eval").body.elts
                if call.args == []  # arguments have names
            ]
        try:
            listed = json.loads(text)
        except ValueError:  # one after the other
            listed = json.loads(f"[{_BETWEEN.sub('},{', text)}]")
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        return None
    calls, listed = [], listed.get("tool_calls", listed) if isinstance(listed, dict) else listed
    for call in listed if isinstance(listed, list) else [listed]:
        if isinstance(call, dict) and isinstance(call.get("function"), dict):  # as in OpenAI's own form
            call = call["function"]
        given = call if isinstance(call, dict) else {}
        name = next((n for k in ("name", "tool_name") if isinstance(n := given.get(k), str)), None)
        fields = [field for field in ("arguments", "parameters") if field in given]
        other = given.keys() - {"name", "tool_name", "id", "tool_call_id", "type", *fields}
        if name is None or (alone and (other or not fields)):
            return None if alone else [("", text)]
        arguments = given[fields[0]] if fields else {}
        calls.append((name, arguments if isinstance(arguments, str) else _json(arguments)))
    return calls or None


def _tags_to_json(inner: str, is_whole: bool) -> str:
    """Return arguments, written as JSON or a tag each, as JSON text; tags of half a call stay as written."""
    arguments = _ARGUMENT.findall(inner)
    if inner.startswith("{") or not arguments or not is_whole:
        return inner or "{}"
    values = {}
    for name, key, value in arguments:
        try:
            values[name or key] = json.loads(value)
        except (ValueError, RecursionError):
            values[name or key] = value
    return _json(values)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
