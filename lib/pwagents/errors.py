"""The errors a user of this library can meet, each with one clear message."""


class DataError(ValueError):
    """Input data are not what they should be: names file, record and field, what was found and expected."""

    def __init__(self, file, record, field, found, expected):
        # Of these an error that was raised in another process is made again.
        super().__init__(*map(str, (file, record, field, found, expected)))

    def __str__(self) -> str:
        return "{}, record {}, field '{}': found {}; expected {}".format(*self.args)


class InfrastructureError(RuntimeError):
    """An episode could not be finished for a reason outside the agent (endpoint down, disk full).

    The runner counts it apart and tries the episode again at the next run.
    """


class NotEvaluableError(RuntimeError):
    """An episode cannot be scored at all (for instance, a review task whose real review is empty)."""


class SettingsError(ValueError):
    """Settings are not what they should be; a line for each says where, and what was expected."""


class StaysHere(Exception):
    """What is to be pickled belongs to this process, so what holds it runs here; the message says why."""
