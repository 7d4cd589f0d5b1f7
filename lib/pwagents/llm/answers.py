"""Chat completions as servers write them, read as one reply or one failure."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pwagents.llm.budget import cost_usd
from pwagents.llm.chat import Message, Reply
from pwagents.llm.failures import Failure, one_line, sort_failure, without_secrets
from pwagents.llm.parts import ToolCall, call_id
from pwagents.schema import Usage
from pwagents.words import read_yaml

MOST_TOKENS = 10**8  # of a call; an endpoint that reports more is not believed
_REASONS = read_yaml(__package__, "answers.yaml")
_FINISH_REASONS = {"": "stop", **{word: reason for reason, words in _REASONS.items() for word in words}}
_THOUGHTS = ("thinking", "reasoning")  # types of a content's parts
# The fields that are read here, and values that say nothing. All else is between a server and itself.
_READ = ("role", "content", "refusal", "tool_calls", "function_call")
_READ += ("id", "type", "index", "function", "name", "arguments")
_EMPTY = (None, [], {})


def read_answer(
    written: bytes, secrets: tuple[str, ...], model: str, length: int, sent: Mapping[str, Any], server: str
) -> Reply:
    """Return the reply in a chat completion, with what it cost.

    Args:
        secrets: the endpoint's, which are removed wherever they stand.
        length: of the request, in bytes.
        sent: the request's sampling parameters.
        server: who answers; see :func:`give_back`.

    Raises:
        Failure: it holds an error, or no reply that can be read.
    """
    answer = read_json(written, secrets)
    try:
        # Some gateways answer 200 and put the error into the body, or next to the reply.
        choice = {} if (error := answer.get("error")) else answer["choices"][0]
        error = error or choice.get("error")
        reason = (choice.get("finish_reason") or "").lower()
        if error or reason == "error":
            code = str(error.get("code", error.get("status"))) if isinstance(error, dict) else ""
            status = int(code) if code.isdigit() and 400 <= int(code) < 600 else 502
            raise sort_failure(status, error or choice, {}, sent)

        # Thought, text and calls, each in the fields and forms that servers have for it.
        message = choice["message"]
        text, thought = _said(message.get("content")), _said(message.get("content"), _THOUGHTS)
        fields = (message.get(name) for name in ("reasoning_content", "reasoning"))
        thought = thought or next((field for field in fields if isinstance(field, str)), "")
        calls = []
        older = [{"function": message["function_call"]}] if message.get("function_call") else []
        listed = [*filter(None, message.get("tool_calls") or older)]
        for call in listed:
            function = call.get("function", call)
            name = (call["name"] if function is call else function.get("name")) or ""
            arguments = function.get("arguments") or ""
            arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
            own = call["id"] if isinstance(call.get("id"), str) else ""
            own = own or call_id(name + arguments, len(calls))
            calls.append(ToolCall(id=own, name=name, arguments=arguments))

        # Why it ended. Servers differ in the word for a plain end.
        if not text and (text := _said(message.get("refusal"))):
            reason = "refusal"
        known = _FINISH_REASONS[reason]
        if not calls and not text and (known == "tool_calls" or not reason):
            raise ValueError("nothing is there")
        if known in ("stop", "tool_calls"):
            known = "tool_calls" if calls else "stop"
        call = listed[0] if listed else {}
        levels = message, call, call.get("function") or {}
        levels = [{k: v for k, v in each.items() if k not in _READ and v not in _EMPTY} for each in levels]
        extras = json.dumps([server, *levels]) if any(levels) else ""
        said = {"text": text, "thought": thought, "extras": extras}
        reply = Reply(**said, tool_calls=tuple(calls), finish_reason=known)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError):
        text = one_line(written.decode("utf-8", "replace"), secrets)
        raise Failure("later", f"the answer is no chat completion: {text}") from None

    # What it cost: as reported or, where that cannot be true, by its size.
    told = answer.get("usage")
    parts = [reply.text, reply.thought, *(call.name + call.arguments for call in reply.tool_calls)]
    counts = {"prompt_tokens": length, "completion_tokens": len((reply.written or "".join(parts)).encode())}
    for name, size in counts.items():
        count = told.get(name) if isinstance(told, dict) else None
        is_likely = type(count) is int and (size > 0) <= count <= MOST_TOKENS
        counts[name] = count if is_likely else -(-size // 3)  # more than tokenizers make of as many bytes
    usage = Usage(calls=1, **counts, usd=cost_usd(model, **counts), parted=int(bool(reply.written)))
    return reply.model_copy(update={"usage": usage})


def give_back(messages: Sequence[Message], server: str, taken: Mapping) -> tuple[list[Message], set[str]]:
    """Return messages with what this server put beside them, and the names of its fields.

    Some servers refuse a turn without it. What another server put there is left out, and so is what this one
    writes and does not take: a field that is None in ``taken``.
    """
    given, names = [], set[str]()
    for message in messages:
        message = dict(message)
        sender, *levels = json.loads(message.pop("extras", "[null]"), parse_constant=lambda _: None)
        if sender == server:
            said, call, function = ({k: v for k, v in each.items() if taken.get(k, k)} for each in levels)
            names.update(said, call, function)
            if calls := message.get("tool_calls"):  # the one that was made
                calls = [each | call | {"function": each["function"] | function} for each in calls]
            message |= said | ({"tool_calls": calls} if calls else {})
        given.append(message)
    return given, names


def read_json(written: bytes, secrets: tuple[str, ...]) -> Any:
    """Return an answer's JSON, or its text, without secrets. Half a letter, as of a cut reply, is U+FFFD."""
    text = without_secrets(written.decode(json.detect_encoding(written), "replace"), secrets)
    try:
        # A raw line end within a text is no JSON, yet some servers let it through. Integers of thousands of
        # digits, which may stand where they matter to nobody, Python refuses to read.
        return json.loads(text, parse_int=lambda n: int(n) if len(n) < 300 else math.inf, strict=False)
    except (ValueError, RecursionError):
        return text


def _said(content: Any, types: Collection[str] = ("text", "output_text", "refusal")) -> str:
    """Return the text of a message's content; some endpoints send it in parts, each of a type."""
    if content is None or isinstance(content, str):
        return content or "" if "text" in types else ""
    texts = []
    for each in [content] if isinstance(content, dict) else content:
        each = {"text": each} if isinstance(each, str) else each
        if (kind := each.get("type", "text")) in types:
            inner = each["text"] if "text" in each else each[kind]
            texts.append(inner if isinstance(inner, str) else _said(inner))
    return "".join(texts)
