"""What goes wrong at an endpoint, sorted: what passes with time, what never will, what no score can come of.

Texts of a server are shortened to one line, and the key is taken out of them: some servers send it back.
"""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache

from pwagents.errors import InfrastructureError, NotEvaluableError

_TRANSIENT_STATUS = {408, 409, 425, 429}  # and all of 500 and above
_CONTEXT = re.compile(
    r"context.{0,30}(length|size|window)|(prompt|input|request)( is)? too (long|large)"
    r"|too many (input )?tokens",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"content.?(filter|management.policy|policy|exists.risk)|data.?inspection.?failed", re.IGNORECASE
)
_LOOKS_LIKE_A_KEY = re.compile(r"\bsk-[\w*-]{4,}")
_SHORTEST_KEY = 8  # shorter ones ("none", "EMPTY") are stand-ins for local endpoints, and words


class EndpointError(InfrastructureError):
    """An endpoint gave no answer, however often it was asked."""


class RefusedError(InfrastructureError):
    """An endpoint refuses for good: a bad request, no or a wrong key, an unknown model, no money left."""


class ContextTooLongError(NotEvaluableError):
    """The request is longer than the model's context: this episode cannot be scored with this model.

    An agent may catch it and ask again with less.
    """


class ContentFilterError(NotEvaluableError):
    """The provider's content filter refused the request: this episode cannot be scored with this model."""


class TransientError(Exception):
    """A call failed for a reason that may pass. Never leaves this room.

    Args:
        retry_after: seconds the server asks to wait; 0 where it does not say.
        congested: the server has more to do than it can: fewer calls at once may help.
    """

    def __init__(self, message: str, retry_after: float = 0.0, congested: bool = False):
        self.retry_after, self.congested = retry_after, congested
        super().__init__(message)


def sort_failure(error: Exception, key: str) -> Exception:
    """What to raise for an error of the openai client."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return _sort_status(error, key)
    if isinstance(error, openai.APITimeoutError):
        return TransientError("no answer in time", congested=True)
    reason = error.__cause__ or error
    return TransientError(f"no connection ({one_line(str(reason) or type(reason).__name__, key)})")


def without_key(text: str, key: str) -> str:
    """``text`` with "[key]" where the key stands, written out or in JSON's escapes."""
    return _written(key).sub("[key]", text) if len(key) >= _SHORTEST_KEY else text


def one_line(text: str, key: str, length: int = 300) -> str:
    """``text`` on one line of at most ``length`` characters, without the key and what looks like one."""
    text = " ".join(_LOOKS_LIKE_A_KEY.sub("[key]", without_key(text, key)).split())
    return text if len(text) <= length else text[: length - 3] + "..."


@cache
def _written(key: str) -> re.Pattern:
    """All ways of writing a key within JSON, and within JSON that stands in a text of JSON."""
    return re.compile("".join(rf"(?:\\*{re.escape(c)}|\\+(?i:u00{ord(c):02x}))" for c in key))


def _sort_status(error, key: str) -> Exception:
    status, message = error.status_code, _server_message(error)
    text = one_line(f"HTTP {status}: {message}", key)
    if status < 400:
        return RefusedError(f"HTTP {status}: it redirects, which is never followed; name the endpoint itself")
    if error.code == "insufficient_quota":
        return RefusedError(text)
    if status == 429 and _CONTEXT.search(message):  # larger than a minute's tokens: waiting does not help
        return ContextTooLongError(text)
    if (status in _TRANSIENT_STATUS or status >= 500) and status != 501:
        wait = _retry_after(error.response.headers)
        text = f"{text}; it asks to wait {wait:,.0f} s" if wait else text
        return TransientError(text, wait, congested=status == 429)
    if status != 401 and _CONTEXT.search(f"{error.code} {message}"):
        return ContextTooLongError(text)
    if status != 401 and _FILTER.search(f"{error.code} {message}"):
        return ContentFilterError(text)
    return RefusedError(text)


def _server_message(error) -> str:
    """The server's own words; servers wrap them in different ways."""
    body = error.body
    if isinstance(body, dict):
        body = body.get("message") or body.get("detail") or body.get("error") or body
    try:
        return str(body or error.message)
    except RecursionError:
        return "a message nested too deep to be told"


def _retry_after(headers) -> float:
    """Seconds to wait by the headers Retry-After-Ms or Retry-After (seconds or a date); 0 without one."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        text = headers.get("retry-after", "0")
        if text.strip()[:1].isdigit():
            return float(text)
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
