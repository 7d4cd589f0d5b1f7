"""What goes wrong at an endpoint, sorted by its structure: what passes with time, and what never will.

Servers agree on statuses and hardly on words. So the status comes first, then the fields beside the message
(code, type, param), and of the message only which things it names: a size and a bound, say, never a phrase.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
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
    """The endpoint refuses this request, for a reason of its own, and answers a short question."""


Kind = Literal["later", "congested", "too_long", "filtered", "parameter", "roles", "rejected", "refused"]


class Failure(Exception):
    """A call failed. Never leaves this room.

    Args:
        kind: "later" may pass with time; "congested" may, with fewer calls at once; "parameter" and "roles":
            the request can be said otherwise; "too_long" and "filtered": this request is refused; "rejected":
            it is, or every one; "refused": every one is.
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
    re.compile(
        r"\b(?:max\w*|exceed\w*|limit\w*|overflow\w*|longer|larger|too|range|most|less|fewer|reduce)\b|[<>]",
        re.I,
    ),
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
_ROLES = re.compile(
    r"\b(system|developer)\b.*\b(role|message|support|instruction)|\broles?\b.*\balternat", re.I
)
_NO_MONEY = re.compile(r"insufficient_?(?:quota|balance|credit|fund)|billing|payment|arrears", re.I)
_LATER = {408, 409, 424, 425, 429, 498}  # and all of 500 and above but 501 and 505
_SENTENCES = ("", "message", "msg", "detail", "error", "raw")  # fields that hold the server's own words
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
    fields = list(_walk(body))
    # Servers wrap their words, and a gateway those of the server behind it: the outermost first.
    words = dict.fromkeys(value for name, value in fields if name in _SENTENCES and value)
    message = ": ".join(words) or json.dumps({k: v for k, v in fields if v}, ensure_ascii=False)
    labels = " ".join(f"{name} {value if ' ' not in value else ''}" for name, value in fields)
    text = f"HTTP {status}: {message}"
    param = next((value for name, value in fields if name in ("param", "loc") and value), "")
    is_size = bool(_SIZE_FIELD.search(labels)) or _SIZE.are_in(message)
    is_roles = bool(_ROLES.search(message)) or ("messages" in param and "role" in param)
    if status < 400:
        return Failure(
            "refused", f"HTTP {status}: it redirects, which is never followed; name the endpoint itself"
        )
    if status in (401, 402, 404, 407, 501, 505) or _NO_MONEY.search(labels):
        return Failure("refused", text)
    if status == 413 or (status == 429 and re.search(r"\btoo (large|long)\b", message, re.I)):
        return Failure("too_long", text)  # more than a minute's share of tokens: waiting does not help
    # Gateways hand on a prompt's own failure as theirs, and some errors come without a status.
    is_prompts = bool(_SIZE_FIELD.search(labels) or _FILTER_FIELD.search(labels))
    is_prompts |= status == 500 and (is_size or is_roles)
    if status in _LATER or (status >= 500 and not is_prompts):
        wait = _retry_after(headers, dict(fields))
        text += f"; it asks to wait {wait:,.0f} s" if wait else ""
        return Failure("congested" if status == 429 else "later", text, wait)
    if status == 403:  # of an account or a country, if not of what was written
        return Failure("filtered" if _FILTER_FIELD.search(labels) else "rejected", text)
    if is_size:
        return Failure("too_long", text)
    named = {name.rpartition(".")[2] for name in re.split(r"[,\s]+", param)}
    if parameters := tuple(name for name in sent if name in named):
        return Failure("parameter", text, parameters=parameters)
    if _FILTER_FIELD.search(labels) or _FILTER.are_in(message):
        return Failure("filtered", text)
    # A word such as "stop" is a parameter's name where it stands in quotes; "max_tokens" is anywhere. Of
    # several the first is meant: others are the remedy, or may stay without it.
    quoted = {name: rf"[`'\"]{name}[`'\"]" if len(name) < 6 else rf"\b{name}\b" for name in sent}
    quoted |= {name: r"\bmax_(completion_)?tokens\b" for name in sent if re.match(r"max_\w*tokens", name)}
    places = {name: match.start() for name, p in quoted.items() if (match := re.search(p, message))}
    if places:
        return Failure("parameter", text, parameters=(min(places, key=places.__getitem__),))
    return Failure("roles" if is_roles else "rejected", text)


def _walk(value: Any, name: str = "", depth: int = 7) -> Iterator[tuple[str, str]]:
    """Names and values of all fields of an error, and of what lies in it, also as a text of JSON."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, dict):
        yield name, ""
        for field, inner in value.items() if depth else ():
            if field != "input":  # the request, sent back
                yield from _walk(inner, field, depth - 1)
    elif isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        for inner in value if depth else ():
            yield from _walk(inner, name, depth - 1)
    elif value is not None:
        yield name, ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _retry_after(headers: Mapping[str, str], fields: Mapping[str, str]) -> float:
    """Seconds to wait: a number, with a unit or without, or a date in any of HTTP's three forms.

    It stands in Retry-After-Ms or Retry-After, or in the body (Gemini's ``retryDelay``).
    """
    names = (("retry-after-ms", 0.001), ("retry-after", 1.0), ("retryDelay", 1.0), ("retry_after", 1.0))
    for name, unit in names:
        text = headers.get(name) or fields.get(name, "")
        if number := re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\d+)?)\s*(ms|s\w*)?\s*(?:,.*)?", text, re.I):
            return min(float(number[1]) * (0.001 if number[2] == "ms" else unit), 1e9)
        try:
            date = parsedate_to_datetime(text)
            date = date if date.tzinfo else date.replace(tzinfo=UTC)  # asctime and "-0000" name no zone
            return max(0.0, (date - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError, OverflowError):
            continue
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
