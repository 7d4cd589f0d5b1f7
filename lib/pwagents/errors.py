"""The errors a user of this library can meet, each with one clear message."""


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


_UNREACHABLE = ("APIConnectionError", "APITimeoutError")  # of the official clients


def is_outage(error: BaseException) -> bool:
    """Return whether an error says that an endpoint cannot answer now: no connection, time-out, busy.

    Clients of endpoints raise errors of their own, from an OSError or with a status. They are recognized
    without importing any client.
    """
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    is_busy = isinstance(status, int) and (status in (408, 409, 429) or status >= 500)
    if is_busy or isinstance(error, OSError) or type(error).__name__ in _UNREACHABLE:
        return True
    return error.__cause__ is not None and is_outage(error.__cause__)
