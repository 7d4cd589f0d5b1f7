"""What goes wrong at an endpoint, sorted by its structure: what passes with time, and what never will.

The status comes first, then the fields next to the message (code, type, param), and of the message only which
things it names (``failures.yaml``): servers agree on statuses, and hardly on words.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from pwagents.errors import InfrastructureError, NotEvaluableError
from pwagents.words import read_yaml


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
            the request can be written differently; "too_long" and "filtered": this request is refused;
            "rejected": it is, or every one; "refused": every one is.
        wait: seconds that the server asks to wait.
        parameters: those of the request that it does not accept.
    """

    def __init__(self, kind: Kind, text: str, wait: float = 0.0, parameters: tuple[str, ...] = ()):
        self.kind, self.text, self.wait, self.parameters = kind, text, wait, parameters
        super().__init__(text)


_SERVERS = read_yaml(__package__, "failures.yaml")
_WORDS = {name: re.compile(rf"\b(?:{'|'.join(w)})\b", re.I) for name, w in _SERVERS["words"].items()}
_FIELDS = {name: re.compile("|".join(parts), re.I) for name, parts in _SERVERS["fields"].items()}
_SIGNS = re.compile("[<>\u2264\u2265]")
_SENTENCES = ("", "message", "msg", "detail", "error", "raw")  # fields that hold the server's own words
_WAIT = re.compile(r"(?:x-ms-)?retry[-_]?(?:after|delay)(?:[-_](ms|s)\w*)?", re.IGNORECASE)
# Nothing is tried twice ("+"), or a long text would take for ever.
_PART = re.compile(r"(\d++(?:\.\d*+)?+(?:e\d++)?+)\s*+((?>ms|[smh]?))[a-z]*+\s*+", re.IGNORECASE)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.IGNORECASE)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_KEY = re.compile(r"\bsk-[\w*-]{4,}")


def sort_failure(
    status: int, body: Any, headers: Mapping[str, str] = {}, sent: Mapping[str, Any] = {}
) -> Failure:
    """Return what failed, by an answer's body (JSON, or text) to a request with these sampling parameters."""
    fields = list(_walk(body))
    # Servers wrap their words, and a gateway those of the server behind it: the outermost first.
    words = dict.fromkeys(value for name, value in fields if name in _SENTENCES and value)
    message = ": ".join(words) or json.dumps({k: v for k, v in fields if v}, ensure_ascii=False)
    labels = " ".join(f"{name} {value if ' ' not in value else ''}" for name, value in fields)
    marks = {name for name, pattern in _FIELDS.items() if pattern.search(labels)}
    names = {name for name, pattern in _WORDS.items() if pattern.search(message)}
    text = f"HTTP {status}: {message}"
    param = next((value for name, value in fields if name in ("param", "loc") and value), "")
    sizes = {word.lower().rstrip("s") for word in _WORDS["sizes"].findall(message)}
    has_bound = "bounds" in names or _SIGNS.search(message)
    is_unsupported = "unsupported" in marks | names
    is_size = "size" in marks or (len(sizes) > 1 and has_bound)
    is_roles = "roles" in names or ("messages" in param and "role" in param)

    # By the status.
    if status < 400:
        text = f"HTTP {status}: it redirects, which is never followed; name the endpoint itself"
    if status < 400 or status in (401, 402, 407, 501, 505) or "money" in marks:
        return Failure("refused", text)
    if status == 413 or (status == 429 and re.search(r"\btoo (large|long)\b", message, re.I)):
        return Failure("too_long", text)  # more than a minute's share of tokens: waiting does not help
    # Gateways hand on a prompt's own failure as theirs, and some errors come without a status.
    is_prompts = not marks.isdisjoint({"size", "filter"}) or (status == 500 and (is_size or is_roles))
    if status in (408, 409, 424, 425, 429, 498) or (status >= 500 and not is_prompts):
        wait = _retry_after(headers, dict(fields))
        text += f"; it asks to wait {wait:,.0f} s" if wait else ""
        return Failure("congested" if status == 429 else "later", text, wait)
    if "signatures" in names:
        return Failure("refused", text)
    if status == 403:  # of an account or a country, if not of what was written
        return Failure("filtered" if "filter" in marks else "rejected", text)

    # By what is wrong with the request.
    if is_size:
        return Failure("too_long", text)
    by_field = {name.rpartition(".")[2] for name in re.split(r"[,\s]+", param)}
    parameters = tuple(name for name in sent if name in by_field)
    if not parameters and ("filter" in marks or names >= {"texts", "filters"}):
        return Failure("filtered", text)
    if not parameters:
        # A word such as "stop" is a parameter's name where it stands in quotes; "max_tokens" is anywhere. Of
        # several the first is meant: others are the remedy, or may stay without it.
        is_word = {name: name.isalpha() and len(name) < 6 and not is_unsupported for name in sent}
        quoted = {name: rf"[`'\"]{name}[`'\"]" if is_word[name] else rf"\b{name}\b" for name in sent}
        quoted |= {name: r"\bmax_(completion_)?tokens\b" for name in sent if re.match(r"max_\w*tokens", name)}
        places = {name: match.start() for name, p in quoted.items() if (match := re.search(p, message))}
        parameters = (min(places, key=places.__getitem__),) if places else ()
    # A value out of range: another would do, so the setting is wrong, and the parameter stays.
    has_range = "ranges" in names or "range" in marks or _SIGNS.search(message)
    if parameters and has_range and not is_unsupported:
        values = ", ".join(f"{name}: {sent[name]!r}" for name in parameters)
        text = f"{values} is no value that it takes; set another (players.sampling). {text}"
        return Failure("refused", text)
    if parameters:
        return Failure("parameter", text, parameters=parameters)
    return Failure("roles" if is_roles else "rejected", text)


def _walk(value: Any, name: str = "", depth: int = 7) -> Iterator[tuple[str, str]]:
    """Yield names and values of all fields of an error, and of what lies in it, also as a text of JSON."""
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
    """Return seconds to wait, told as a number or a date, in a header or in the body (Gemini)."""
    for name, text in (*headers.items(), *fields.items()):
        if not (match := _WAIT.fullmatch(name)):
            continue
        if _DURATION.fullmatch(number := text.partition(",")[0].strip(' +;"')):
            parts, unit = _PART.findall(number), _UNITS[(match[1] or "s").lower()]
            return min(sum(float(n) * _UNITS.get(u.lower(), unit) for n, u in parts), 1e9)
        for read in (parsedate_to_datetime, datetime.fromisoformat):
            with suppress(ValueError, TypeError, OverflowError):
                date = read(text)
                date = date if date.tzinfo else date.replace(tzinfo=UTC)  # asctime and "-0000" name no zone
                return max(0.0, (date - datetime.now(UTC)).total_seconds())
    return 0.0


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text with "[key]" in place of secrets, written out or in the escapes of JSON (within JSON)."""
    for secret in secrets:
        letters = (rf"(?:\\*{re.escape(c)}|\\+(?i:u{ord(c):04x}))" for c in secret)
        text = re.sub("".join(letters), "[key]", text)
    return text


def one_line(text: str, secrets: tuple[str, ...] = (), length: int = 300) -> str:
    """Return a text on one line of at most ``length`` characters, without what is a key or looks like one."""
    text = " ".join(_KEY.sub("[key]", without_secrets(text, secrets)).split())
    return text if len(text) <= length else text[: length - 3] + "..."
