"""What goes wrong at an endpoint, sorted by its structure: what passes with time, and what never will.

Servers agree on statuses and hardly on words. So the status comes first, then the fields beside the message
(code, type, param), and of the message only which things it names: a size and a bound, say, never a phrase.
"""

import json
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Literal, NamedTuple

from pwagents.errors import InfrastructureError, NotEvaluableError


class EndpointError(InfrastructureError):
    """An endpoint gave no answer, however often it was asked."""


class RefusedError(InfrastructureError):
    """An endpoint refuses for good: a bad request, no or a wrong key, an unknown model, no money left."""


class ContextTooLongError(NotEvaluableError):
    """The request is longer than the model's context. An agent may catch it and ask again with less."""


class ContentFilterError(NotEvaluableError):
    """The provider's content filter refused the request."""


class RejectedError(NotEvaluableError):
    """The endpoint refuses this request, for a reason of its own, while it answers others."""


Kind = Literal["later", "congested", "too_long", "filtered", "parameter", "system", "rejected", "refused"]


class Failure(Exception):
    """A call failed. Never leaves this room.

    Args:
        kind: "later" may pass with time; "congested" may, with fewer calls at once; "parameter" and "system":
            the request can be said otherwise; "too_long", "filtered" and "rejected": this request is refused;
            "refused": every request is.
        wait: seconds that the server asks to wait; 0 where it does not say.
        parameters: those of the request that it will not take.
    """

    def __init__(self, kind: Kind, text: str, wait: float = 0.0, parameters: tuple[str, ...] = ()):
        self.kind, self.text, self.wait, self.parameters = kind, text, wait, parameters
        super().__init__(text)


class _Words(NamedTuple):
    """What a message speaks of: ``least`` different words of the one set, and one of the other."""

    subjects: re.Pattern[str]
    least: int
    others: re.Pattern[str]

    def are_in(self, text: str) -> bool:
        subjects = {word.lower().rstrip("s") for word in self.subjects.findall(text)}
        return len(subjects) >= self.least and self.others.search(text) is not None


_SIZE = _Words(
    re.compile(r"\b(?:context|prompt|inputs?|request|messages?|length|size|tokens?|window)\b", re.I),
    2,
    re.compile(r"\b(?:max\w*|exceed\w*|limit\w*|longer|larger|too|range|most|fewer|reduce)\b|[<>]", re.I),
)
_FILTER = _Words(
    re.compile(r"\b(?:content|prompts?|inputs?|outputs?|text|request|messages?)\b", re.I),
    1,
    re.compile(
        r"\b(?:filter\w*|polic(?:y|ies)|inappropriate|sensitive|unsafe|safety|moderation|flagged|risk"
        r"|prohibited|harm\w*|inspection|guardrails?)\b",
        re.I,
    ),
)
# In code, type and the names of neighbouring fields, written in one case or another.
_SIZE_FIELD = re.compile(
    r"context_?(?:length|size|window)|too_?(?:long|large)|max_?length|tokens?_?exceeded", re.I
)
_FILTER_FIELD = re.compile(
    r"content_?(?:filter|policy|exists)|safety|moderation|inspection|sensitive|flagged|guardrail|invalid_prompt",
    re.I,
)
_NO_MONEY = re.compile(r"insufficient|billing|balance|payment", re.I)
_LATER = {408, 409, 425, 429}  # and all of 500 and above but 501 and 505
_KEY = re.compile(r"\bsk-[\w*-]{4,}")
_SHORTEST_KEY = 8  # shorter ones ("none", "EMPTY") are stand-ins for local endpoints, and words


def sort_failure(
    status: int, body: Any, headers: Mapping[str, str] = {}, sent: Collection[str] = ()
) -> Failure:
    """Sort an answer that is no reply.

    Args:
        body: of the answer: JSON, or text.
        sent: names of the request's sampling parameters.
    """
    error = body.get("error", body) if isinstance(body, dict) else body
    fields, message = _fields(error), _message(error)
    text = f"HTTP {status}: {message}"
    param = next((fields[name] for name in ("param", "loc") if fields.get(name)), "")
    labels = " ".join([*fields, *(value for name, value in fields.items() if name not in _WORDS)])
    is_size = bool(_SIZE_FIELD.search(labels)) or _SIZE.are_in(message)
    if status < 400:
        return Failure(
            "refused", f"HTTP {status}: it redirects, which is never followed; name the endpoint itself"
        )
    if status in (401, 402, 404, 407, 501, 505) or _NO_MONEY.search(labels):
        return Failure("refused", text)
    if status == 413 or (status == 429 and re.search(r"\btoo (large|long)\b", message, re.I)):
        return Failure("too_long", text)  # more than a minute's share of tokens: waiting does not help
    if status in _LATER or status > 500 or (status == 500 and not is_size):
        wait = _retry_after(headers)
        text += f"; it asks to wait {wait:,.0f} s" if wait else ""
        return Failure("congested" if status == 429 else "later", text, wait)
    if status == 403:  # of an account or a country, if not of what was written
        return Failure("filtered" if _FILTER_FIELD.search(labels) else "refused", text)
    if named := tuple(name for name in sent if name == param.rpartition(".")[2]):
        return Failure("parameter", text, parameters=named)
    if is_size:
        return Failure("too_long", text)
    if _FILTER_FIELD.search(labels) or _FILTER.are_in(message):
        return Failure("filtered", text)
    # A word such as "stop" is a parameter's name where it stands in quotes; "max_tokens" is anywhere.
    quoted = {name: rf"[`'\"]{name}[`'\"]" if len(name) < 6 else rf"\b{name}\b" for name in sent}
    if named := tuple(name for name, pattern in quoted.items() if re.search(pattern, message)):
        return Failure("parameter", text, parameters=named)
    is_system = re.search(r"\bsystem\b.*\b(role|message|support)", message, re.I)
    if is_system or ("messages" in param and "role" in param):
        return Failure("system", text)
    return Failure("rejected", text)


_WORDS = ("message", "msg", "detail", "error", "raw")  # fields that hold sentences


def _fields(error: Any, depth: int = 3) -> dict[str, str]:
    """All fields of an error and of what lies in it, by name; a later one of a name does not replace it."""
    found: dict[str, str] = {}
    if isinstance(error, list):
        error = {"": error[0]} if error else {}
    for name, value in error.items() if isinstance(error, dict) and depth else ():
        if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            found = _fields(value, depth - 1) | found | {name: ""}
        elif value is not None:
            found[name] = ".".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


def _message(error: Any) -> str:
    """The server's own words; servers wrap them in different ways."""
    fields = _fields(error)
    words = next((fields[name] for name in _WORDS if fields.get(name)), "")
    try:
        return words or (error if isinstance(error, str) else json.dumps(error, ensure_ascii=False))
    except (RecursionError, ValueError):
        return "a message nested too deep to be told"


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait by Retry-After-Ms or Retry-After: a number, or a date in any of HTTP's three forms."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return min(max(0.0, float(headers[name]) * unit), 1e9)
        except (KeyError, ValueError):
            continue
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        date = date if date.tzinfo else date.replace(tzinfo=UTC)  # asctime's form and "-0000" name no zone
        return max(0.0, (date - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def without_key(text: str, key: str) -> str:
    """``text`` with "[key]" where the key stands, written out or in JSON's escapes."""
    return _written(key).sub("[key]", text) if len(key) >= _SHORTEST_KEY else text


@cache
def _written(key: str) -> re.Pattern[str]:
    """All ways of writing a key within JSON, and within JSON that stands in a text of JSON."""
    return re.compile("".join(rf"(?:\\*{re.escape(c)}|\\+(?i:u00{ord(c):02x}))" for c in key))


def one_line(text: str, key: str = "", length: int = 300) -> str:
    """``text`` on one line of at most ``length`` characters, without the key and what looks like one."""
    text = " ".join(_KEY.sub("[key]", without_key(text, key)).split())
    return text if len(text) <= length else text[: length - 3] + "..."
