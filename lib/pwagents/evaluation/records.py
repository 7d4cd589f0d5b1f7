"""What is kept of an episode that a method played: of any task (:class:`Episode`), and of the shop's."""

from math import nan
from typing import Any, Protocol

from pydantic import model_validator

from pwagents.evaluation.metrics import GRADER_VERSION, METRICS, Grade, grade
from pwagents.evaluation.store import Keyed
from pwagents.schema import Outcome, Task, TaskType, Trajectory

_COSTS = ("tokens", "usd")  # of the agent's model: tokens read and written, US dollars
NUMBERS = (*METRICS, *_COSTS)


class PlayedTask(Protocol):
    """What the runner needs to know of a task."""

    task_id: str
    user_id: str


class Episode(Keyed):
    """One episode as it is stored; its key is of :func:`pwagents.evaluation.runner.episode_key`.

    A subclass adds a field ``trajectory`` (None where there is none), and what :meth:`details` fills in.

    ``seconds`` is wall time, ``message`` says why it was not scored. ``memory`` is what a method with memory
    across tasks knew of the user afterwards (None for other methods, and where the task must be tried again).
    """

    task_id: str
    user_id: str
    method: str
    model: str
    params: dict[str, Any]
    outcome: Outcome
    message: str = ""
    seconds: float
    memory: dict[str, Any] | None = None

    @classmethod
    def details(cls, task: Any, trajectory: Any) -> dict[str, Any]:
        """The subclass's own fields; ``trajectory`` is None where the episode was not scored."""
        return {"trajectory": trajectory}


class EpisodeRecord(Episode):
    """One episode of the shop, graded."""

    type: TaskType
    trajectory: Trajectory | None = None
    grade: Grade | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """:data:`NUMBERS` by name; NaN where the episode was not scored."""
        scores = {name: getattr(self.grade, name, nan) for name in METRICS}
        if self.trajectory is None:
            return scores | dict.fromkeys(_COSTS, nan)
        usage = self.trajectory.usage
        return scores | {name: float(getattr(usage, name)) for name in _COSTS}

    @classmethod
    def details(cls, task: Task, trajectory: Trajectory | None) -> dict[str, Any]:
        graded = grade(trajectory) if trajectory else None
        return {"type": task.type, "trajectory": trajectory, "grade": graded}

    @model_validator(mode="before")
    @classmethod
    def _grade_anew(cls, data: dict[str, Any]) -> dict[str, Any]:
        return regraded(data)


def regraded(data: dict[str, Any]) -> dict[str, Any]:
    """A record as it is stored, graded anew from its trajectory where another version graded it."""
    stored = data.get("grade")
    if not isinstance(stored, dict) or stored.get("grader_version") == GRADER_VERSION:
        return data
    return data | {"grade": grade(Trajectory.model_validate(data["trajectory"])).model_dump()}
