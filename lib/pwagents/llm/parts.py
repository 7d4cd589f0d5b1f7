"""What a model wrote, parted into thought, text and calls: once, for every provider, where a reply is made.

Servers that know a model's format do this themselves. Others send all of it as text, each model's in marks of
its own; and a template that opens the thought leaves only its end in the reply.
"""

import hashlib
import json
import re
from typing import Any, NamedTuple

# Marks around a thought, by the models that use them. One that is not closed reaches to the end.
_THOUGHT_MARKS = (
    *((f"<{tag}>", f"</{tag}>") for tag in ("think", "thinking", "thought", "reasoning")),
    ("[THINK]", "[/THINK]"),  # Mistral's
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Cohere's
    ("<|channel|>analysis<|message|>", "<|end|>"),  # gpt-oss
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi's
)
_THOUGHTS = [
    (close, re.compile(f"{re.escape(open_)}(.*?)(?:{re.escape(close)}|\\Z)\\s*", re.DOTALL))
    for open_, close in _THOUGHT_MARKS
]
# What gpt-oss and Cohere's models put around the answer itself.
_FRAME = re.compile(
    r"<\|start\|>assistant|<\|channel\|>final<\|message\|>|<\|(?:START|END)_RESPONSE\|>|<\|(?:return|end)\|>"
)

# Calls within a text. One that is not closed reaches to the end: the model was cut off, or forgot.
_CALL = re.compile(
    r"<tool_call>(?P<hermes>.*?)(?:</tool_call>|\Z)"  # Qwen, Hermes and others: JSON, or the next form
    r"|(?P<xml><function=.*?(?:</function>|\Z))"  # Llama 3.1's custom calls, Qwen3-Coder
    r"|\[TOOL_CALLS\](?P<mistral>.*?)(?=\[TOOL_CALLS\]|\Z)"
    r"|<\|python_tag\|>(?P<python>.*?)(?:<\|eom_id\|>|\Z)",  # Llama 3.1's own
    re.DOTALL,
)
_XML = re.compile(r"<function=([^>\s]*)>(.*?)(?:</function>|\Z)", re.DOTALL)
_XML_ARGUMENT = re.compile(r"<parameter=([^>\s]*)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_MISTRAL = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(\{.*)", re.DOTALL)
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
    thoughts, text = [], written
    for close, pattern in _THOUGHTS:
        head, mark, rest = text.partition(close)
        if mark and not pattern.search(head + close):  # the template opened it
            thoughts, text = [head], rest
        thoughts += pattern.findall(text)
        text = pattern.sub("", text)
    text = _FRAME.sub("", text)
    bodies: list[tuple[str, str]] = []
    for match in _CALL.finditer(text):
        bodies += _calls_in(match.lastgroup or "", match[match.lastgroup or 0])
    text = _CALL.sub("", text)
    if not bodies and (whole := _as_call(_FENCED.sub(r"\1", text))):  # the text is a call and nothing else
        bodies, text = [whole], ""
    if text != written:
        text = text.strip()
    calls = (Call(call_id(written, i), *body) for i, body in enumerate(bodies))
    return Parts("\n".join(filter(None, (t.strip() for t in thoughts))), text, tuple(calls))


def without_calls(written: str) -> str:
    """What a model wrote beside its calls, the marks of its thought included."""
    return _CALL.sub("", written).strip()


def call_id(text: str, number: int = 0) -> str:
    """An id that every server takes, nine of a to f and 0 to 9: always the same for a text and number."""
    return hashlib.sha256(f"{number} {text}".encode("utf-8", "replace")).hexdigest()[:9]


def _calls_in(form: str, body: str) -> list[tuple[str, str]]:
    """Names and arguments of the calls in one mark. What cannot be read is arguments, without a name."""
    body = body.strip()
    if functions := _XML.findall(body):
        return [(name, _xml_arguments(inner.strip())) for name, inner in functions]
    if form == "mistral":
        if match := _MISTRAL.match(body):
            return [(match[1], match[2].strip())]
        try:
            listed = json.loads(body)
        except (ValueError, RecursionError):
            listed = None
        if isinstance(listed, list):
            return [
                _as_call(json.dumps(call, ensure_ascii=False)) or ("", json.dumps(call)) for call in listed
            ]
    if call := _as_call(body, alone=False):
        return [call]
    try:
        json.loads(body)
        return [("", body)]
    except (ValueError, RecursionError):  # half a call
        name, arguments = _NAME.search(body), _ARGUMENTS.search(body)
        return [(name[1] if name else "", arguments[1] if arguments else body)]


def _as_call(text: str, alone: bool = True) -> tuple[str, str] | None:
    """Name and arguments of a JSON object that is a call; ``alone``: it holds no other field."""
    try:
        call: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    given = [name for name in ("arguments", "parameters") if name in call]
    if alone and (not given or call.keys() - {"name", "id", "type", *given}):
        return None
    arguments = call[given[0]] if given else {}
    return call["name"], arguments if isinstance(arguments, str) else json.dumps(
        arguments, ensure_ascii=False
    )


def _xml_arguments(inner: str) -> str:
    """The arguments of ``<function=...>`` as JSON text: already JSON, or a tag each."""
    if inner.startswith("{") or not (found := _XML_ARGUMENT.findall(inner)):
        return inner
    values = {}
    for name, value in found:
        try:
            values[name] = json.loads(value)
        except (ValueError, RecursionError):
            values[name] = value
    return json.dumps(values, ensure_ascii=False)
