"""The errors a user of this library can meet, each with one clear message."""


class DataError(ValueError):
    """Input data are not what they should be: names file, record and field, what was found and expected."""

    def __init__(self, file, record, field, found, expected):
        self.file, self.record, self.field = str(file), str(record), str(field)
        # Of these an error that was raised in another process is made again.
        super().__init__(self.file, self.record, self.field, str(found), str(expected))

    def __str__(self) -> str:
        *_, found, expected = self.args
        return f"{self.file}, record {self.record}, field '{self.field}': found {found}; expected {expected}"


class InfrastructureError(RuntimeError):
    """An episode could not be finished for a reason outside the agent (endpoint down, disk full).

    The runner counts it apart and tries the episode again at the next run.
    """


class NotEvaluableError(RuntimeError):
    """An episode cannot be scored at all (for instance, a review task whose real review is empty)."""


class SettingsError(ValueError):
    """Settings are not what they should be; a line for each says where, and what was expected."""
