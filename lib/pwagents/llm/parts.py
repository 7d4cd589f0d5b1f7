"""What a model wrote, parted into thought, text and calls: once, for every provider, where a reply is made.

Servers that know a model's format do this themselves. Others send all of it as text, each model's in marks of
its own; and a template that opens the thought leaves only its end in the reply.
"""

import ast
import hashlib
import json
import re
from typing import Any, NamedTuple

# Marks around a thought, by the models that use them. One that is not closed reaches to the end.
_THOUGHT_MARKS = (
    *((f"<{tag}>", f"</{tag}>") for tag in ("think", "thinking", "thought", "reasoning", "seed:think")),
    ("[THINK]", "[/THINK]"),  # Mistral's
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Cohere's
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),  # gpt-oss
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi's
)
# What models put around the answer itself, and around several calls; what ends a turn, where a server lets
# it through.
_FRAME = re.compile(
    r"<\|start\|>assistant|<\|channel\|>(?:final|commentary)(?:<\|message\|>)?|<\|(?:START|END)_RESPONSE\|>"
    r"|\A\s*<answer>|</answer>\s*\Z|</?(?:tool_calls|minimax:tool_call)>|<\|tool_calls_section_(?:begin|end)\|>"
    r"|<\uff5ctool\u2581calls\u2581(?:begin|end)\uff5c>"
    r"|(?:<\|(?:return|end|im_end|eot_id|endoftext)\|>|</s>|<end_of_turn>"
    r"|<\uff5cend\u2581of\u2581sentence\uff5c>)\s*\Z"
)

# Marks around a call. One that is not closed reaches to the end: the model was cut off, or forgot.
_CALL_MARKS = (
    (r"<tool_call>", r"</tool_call>"),  # Qwen, Hermes, GLM and others
    (r"(?=<function=|<invoke )", r"</function>|</invoke>"),  # Llama 3.1's custom calls; MiniMax
    (r"\[TOOL_CALLS\]", r"(?=\[TOOL_CALLS\])"),  # Mistral's
    (r"<\|python_tag\|>|<\|python_start\|>", r"<\|eom_id\|>|<\|python_end\|>"),  # Llama 3.1's own; 4
    (r"<\|tool_call\|>", r"<\|/tool_call\|>"),  # Phi, Granite
    (r"<\|START_ACTION\|>", r"<\|END_ACTION\|>"),  # Cohere's
    (r"\s*to=functions\.", r"<\|call\|>"),  # gpt-oss
    (r"<\|tool_call_begin\|>", r"<\|tool_call_end\|>"),  # Kimi's
    (r"<\uff5ctool\u2581call\u2581begin\uff5c>", r"<\uff5ctool\u2581call\u2581end\uff5c>"),  # DeepSeek's
)
# Read from left to right: what stands within a thought is no call, and what stands within a call no thought.
# A thought that is not closed ends where a whole call ends the text.
_WHOLE_CALL = r"(?=<tool_call>(?:(?!</?think>).)*</tool_call>\s*\Z)"
_MARKED = re.compile(
    "|".join(
        [
            *(
                rf"(?i:{re.escape(opening)})(.*?)((?i:{re.escape(end)})\s*|{_WHOLE_CALL}|\Z)"
                for opening, end in _THOUGHT_MARKS
            ),
            *(rf"(?:{opening})(.*?)({end}|\Z)" for opening, end in _CALL_MARKS),
        ]
    ),
    re.DOTALL,
)
_THOUGHT_START, _THOUGHT_END = (  # "<|end|>" ends other models' turns, too
    re.compile("|".join(re.escape(m[i]) for m in _THOUGHT_MARKS if m[i] != "<|end|>"), re.IGNORECASE)
    for i in (0, 1)
)
# Forms of a call: a name and then JSON; tags with the arguments as tags within; a line of Python.
_NAMED = re.compile(  # between them marks alone, no words
    r"(?:function<\uff5c?tool\u2581sep\uff5c>)?(?:functions\.)?([\w.-]+)(?::\d+)?"
    r"(?:\s|\[\w+\](?:\w{9})?|<(?!tool_call)[^<>]*>(?:json)?|```json)*(\{.*)",
    re.DOTALL,
)
_TAGGED = re.compile(r'<(?:function=|invoke name=)"?([^>\s"]*)"?>(.*?)(</function>|</invoke>|\Z)', re.DOTALL)
_ARGUMENT = re.compile(
    r'<(?:parameter(?:=| name=)"?([^>\s"]*)"?|arg_key>(.*?)</arg_key>\s*<arg_value)>\n?(.*?)\n?'
    r"(?:</(?:parameter|arg_value)>|(?=<parameter)|\Z)",
    re.DOTALL,
)
_PYTHON = re.compile(r"\A\s*\[\w+\(.*\)\]\s*\Z", re.DOTALL)
_FENCED = re.compile(r"\A\s*```\w*\n(.*?)\n?```\s*\Z", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*(.*)', re.DOTALL)


class Call(NamedTuple):
    """A call as it was written: ``arguments`` is its JSON text, which may be malformed."""

    id: str
    name: str
    arguments: str


class Parts(NamedTuple):
    """What a model wrote: its thought, what it says, and its calls."""

    thought: str
    text: str
    calls: tuple[Call, ...]


def part(written: str) -> Parts:
    """Part a text. Without any mark of a thought or a call it is the text of the result, unchanged."""
    thoughts, bodies, text = list[str](), list[tuple[str, str]](), written
    if not _THOUGHT_START.search(text):  # the template may have opened the thought
        *thoughts, text = _THOUGHT_END.split(text)
    for match in _MARKED.finditer(text):
        body, is_closed = match[match.lastindex - 1], bool(match[match.lastindex])
        if match.lastindex <= 2 * len(_THOUGHT_MARKS):
            thoughts.append(body)
        else:
            bodies += _calls_in(body.strip(), is_closed)
    *nested, text = _THOUGHT_END.split(_MARKED.sub("", text))
    thoughts, text = thoughts + nested, _FRAME.sub("", text)
    # The text may be a call, or a list of calls, and nothing else.
    if not bodies and (bodies := _as_calls(_FENCED.sub(r"\1", text), alone=True) or []):
        text = ""
    if text != written:
        text = text.strip()
    calls = (Call(call_id(written, i), *body) for i, body in enumerate(bodies))
    return Parts("\n".join(filter(None, (t.strip() for t in thoughts))), text, tuple(calls))


def without_calls(written: str) -> str:
    """What a model wrote beside its calls, the marks of its thought included."""
    is_call = 2 * len(_THOUGHT_MARKS)
    return _MARKED.sub(lambda mark: "" if mark.lastindex > is_call else mark[0], written).strip()


def call_id(text: str, number: int = 0) -> str:
    """An id that every server takes, nine of a to f and 0 to 9: always the same for a text and number."""
    return hashlib.sha256(f"{number} {text}".encode("utf-8", "replace")).hexdigest()[:9]


def _calls_in(body: str, is_closed: bool) -> list[tuple[str, str]]:
    """Names and arguments of the calls in one mark. What cannot be read is arguments, without a name."""
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
    """Names and arguments of calls as JSON, one or a list, or as Python; None where ``text`` is neither.

    Args:
        alone: no mark says that it is a call, so it must hold arguments, and no other field.
    """
    if _PYTHON.match(text):
        return _python_calls(text)
    try:
        listed: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    calls = []
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


def _python_calls(text: str) -> list[tuple[str, str]] | None:
    """Names and arguments of ``[search(query="a coat")]``, as Llama 3.2 and 4 write calls."""
    try:
        made = ast.parse(text.strip(), mode="eval").body.elts
        return [
            (call.func.id, _json({each.arg: ast.literal_eval(each.value) for each in call.keywords}))
            for call in made
            if call.args == []  # arguments have names
        ]
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        return None


def _tags_to_json(inner: str, is_whole: bool) -> str:
    """Arguments as JSON text: already JSON, or a tag each. Tags of half a call stay as they are written."""
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
