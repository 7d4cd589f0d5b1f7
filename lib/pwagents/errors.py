"""The errors a user of this library can meet, each with one clear message."""

from contextlib import suppress


class DataError(ValueError):
    """Input data are not what they should be: names file, record and field, what was found and expected."""

    def __init__(self, file, record, field, found, expected):
        # Errors from other processes are rebuilt from these arguments.
        super().__init__(*map(str, (file, record, field, found, expected)))

    def __str__(self) -> str:
        return "{}, record {}, field '{}': found {}; expected {}".format(*self.args)


class InfrastructureError(RuntimeError):
    """An episode could not be finished for a reason outside the agent (endpoint down, disk full).

    The runner counts it apart and tries the episode again at the next run.
    """


class NotEvaluableError(RuntimeError):
    """An episode cannot be scored at all (for instance, a review task whose real review is empty)."""


class StaleCodeError(RuntimeError):
    """A file of the library is not what was loaded, so results would not be what their keys say."""


class SettingsError(ValueError):
    """Settings are not what they should be; a line for each says where, and what was expected."""


class StaysHere(Exception):
    """What is to be pickled belongs to this process, so what holds it runs here; the message says why."""


# Of clients of endpoints (OpenAI's, httpx, aiohttp): errors that are no OSError, and fields with a status.
_UNREACHABLE = {"APIConnectionError", "TimeoutException", "NetworkError", "RemoteProtocolError"}
_UNREACHABLE |= {"ServerDisconnectedError"}
_STATUS = ("status_code", "status", "code", "http_status")


def is_outage(error: BaseException) -> bool:
    """Return whether an error says that an endpoint cannot answer now: no connection, time-out, busy.

    Clients of endpoints raise errors of their own, from an OSError or with a status. They are recognized
    without importing any client.
    """
    seen: list[BaseException] = []
    while error is not None and not any(error is each for each in seen):
        statuses: list[int] = []
        with suppress(Exception):  # a property of another's class may raise
            response = getattr(error, "response", None)
            found = [str(getattr(each, name, "")) for each in (error, response) for name in _STATUS]
            if isinstance(response, dict):  # boto's
                found.append(str(response["ResponseMetadata"]["HTTPStatusCode"]))
            statuses = [int(text) for text in found if text.isdecimal()]
        if any(status in (408, 409, 429) or 500 <= status < 600 for status in statuses):
            return True
        # Where there is a status, it decides: several clients make each of their errors an OSError.
        classes = {each.__name__ for each in type(error).__mro__}
        if not statuses and (isinstance(error, OSError) or _UNREACHABLE & classes):
            return True
        seen, error = [*seen, error], error.__cause__
    return False


def describe(error: BaseException) -> str:
    """Return an error's class and message, which any file can hold and which may not be readable at all."""
    try:
        text = str(error)
    except Exception as unreadable:
        text = f"(its message raises {type(unreadable).__name__})"
    return f"{type(error).__name__}: {text}".encode("utf-8", "replace").decode()
