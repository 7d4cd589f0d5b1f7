"""AgentOccam's plan tree: parts of a plan that the agent branches off and gives up again, and its notes."""

from collections.abc import Sequence


class Plans:
    """A tree of plans; the first is the task. Steps of a plan that was given up are not told again."""

    def __init__(self, task: str):
        self._texts, self._parents = [task], [-1]
        self._active, self._notes = 0, []
        self._plan_of: dict[int, int] = {}  # step -> the plan it was taken under

    def do(self, name: str, arguments: Sequence[str]) -> str:
        """Carry out ``note``, ``branch`` or ``prune``; what is wrong, or an empty text."""
        text = " ".join(arguments).strip()
        if not text:
            return f"{name} needs a text in brackets"
        if name == "note":
            self._notes.append(text)
        elif name == "branch":
            self._texts.append(text)
            self._parents.append(self._active)
            self._active = len(self._texts) - 1
        elif not (arguments[0].isdecimal() and int(arguments[0][:4]) in self._line()[1:]):
            return f"prune needs the number of a plan above the present one, not {arguments[0][:20]!r}"
        else:
            self._active = int(arguments[0])
        return ""

    def note_step(self, step: int) -> None:
        """Remember under which plan a step was taken."""
        self._plan_of[step] = self._active

    def tells(self, step: int) -> bool:
        """Whether the step belongs to the present plan or one above it."""
        return self._plan_of[step] in self._line()

    def text(self) -> str:
        """The present plan, those above it, and all notes."""
        plans = [f"[{i}] {self._texts[i]}" for i in reversed(self._line())]
        return "\n".join(plans + [f"note: {note}" for note in self._notes])

    def _line(self) -> list[int]:
        """The present plan and those above it, upwards."""
        line = [self._active]
        while self._parents[line[-1]] >= 0:
            line.append(self._parents[line[-1]])
        return line
