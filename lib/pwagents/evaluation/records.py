"""What is kept of an episode that a method played on a task of the shop."""

from typing import Any

from pydantic import model_validator

from pwagents.evaluation.metrics import GRADER_VERSION, Grade, grade
from pwagents.evaluation.store import Keyed
from pwagents.schema import Outcome, TaskType, Trajectory


class EpisodeRecord(Keyed):
    """One episode as it is stored; its key is of :func:`pwagents.evaluation.runner.episode_key`.

    ``seconds`` is wall time, ``message`` says why it was not scored. ``memory`` is what a method with memory
    across tasks knew of the user afterwards (None for other methods, and where the task must be tried again).
    """

    task_id: str
    user_id: str
    type: TaskType
    method: str
    model: str
    params: dict[str, Any]
    outcome: Outcome
    message: str = ""
    seconds: float
    trajectory: Trajectory | None = None
    grade: Grade | None = None
    memory: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _grade_anew(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Grade from the stored trajectory what another version of the grader has graded."""
        stored = data.get("grade")
        if isinstance(stored, dict) and stored.get("grader_version") != GRADER_VERSION:
            return data | {"grade": grade(Trajectory.model_validate(data["trajectory"]))}
        return data
