"""What a server offers to many clients at once: sessions by id, each with a task of its own.

A client whose connection is lost says nothing of it, and the protocol keeps no connection between two calls:
so a session that nobody has used for ``idle_s`` is gone. Ids cannot be guessed; who has none of a session's
cannot reach it.
"""

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from pydantic import ConfigDict, ValidationError, validate_call

from pwagents.adapters.core import Session, TaskSet

_checked = validate_call(config=ConfigDict(strict=True))
VERBS = ("tasks", "tools", "reset", "step", "reward")


class BadRequestError(ValueError):
    """A request that cannot be carried out, by the client's fault; the message is one line."""


class Sessions:
    """All sessions of a server. What it returns is JSON.

    Args:
        idle_s: seconds without a call, after which a session ends.
        most: sessions at a time; more are refused.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        tasks: TaskSet,
        idle_s: float = 600.0,
        most: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.task_set, self.idle_s, self.most, self._clock = tasks, idle_s, most, clock
        self._ids = {f"task-{i}": task_id for i, task_id in enumerate(tasks)}  # ids tell types
        self._open: dict[str, tuple[Session, threading.Lock]] = {}
        self._used: dict[str, float] = {}  # the one used longest ago comes first
        self._ended: dict[str, dict[str, Any]] = {}  # what ``reward`` said of the latest ones
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Sessions that are open."""
        with self._lock:
            self._end_idle()
            return len(self._open)

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Carry out a verb, or a web function, which takes its session as one more argument.

        Raises:
            BadRequestError: there is no such verb or session, or its arguments are wrong.
        """
        if name in self.task_set.functions:
            rest = {key: value for key, value in arguments.items() if key != "session"}
            arguments = {**arguments, "name": name, "arguments": rest}
            arguments = {key: arguments[key] for key in ("session", "name", "arguments") if key in arguments}
            name = "step"
        if name not in VERBS:
            known = ", ".join((*VERBS, *self.task_set.functions))
            raise BadRequestError(f"found no tool {name!r}; expected one of {known}")
        try:
            return getattr(self, name)(**arguments)
        except ValidationError as error:
            if error.title != f"Sessions.{name}":  # not of the arguments: something inside the shop
                raise
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "arguments"
            raise BadRequestError(" ".join(f"{name}: {where}: {first['msg']}".split())) from None

    @_checked
    def tasks(self) -> dict[str, Any]:
        """The names of all tasks, in the order in which they are to be played."""
        return {"tasks": list(self._ids)}

    @_checked
    def tools(self) -> dict[str, Any]:
        """The functions that ``step`` takes, as OpenAI tools."""
        return {"tools": list(self.task_set.tools)}

    @_checked
    def reset(self, task: str) -> dict[str, Any]:
        """Begin a task in a new session; its id is what all other calls need.

        Args:
            task: One of ``tasks``.
        """
        if task not in self._ids:
            known = f"one of the {len(self._ids):,} of tasks"
            raise BadRequestError(f"reset: task: found {task!r}; expected {known}")
        session = Session(self.task_set)
        told = session.reset(self._ids[task])
        session_id = secrets.token_urlsafe(16)
        with self._lock:
            self._end_idle()
            if len(self._open) >= self.most:
                raise BadRequestError(f"reset: {self.most:,} sessions are open; end one, or try again later")
            self._open[session_id] = session, threading.Lock()
            self._used[session_id] = self._clock()
        return {"session": session_id, "observation": told}

    @_checked
    def step(self, session: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a function of the shop. The reward comes with the last step; it is 0 before.

        Args:
            session: What ``reset`` returned.
            name: The function.
            arguments: Its arguments.
        """
        played, lock = self._find(session)
        with lock:
            answer = played.step(name, arguments)
        return {"observation": answer.text, "reward": answer.reward, "done": answer.done}

    @_checked
    def reward(self, session: str) -> dict[str, Any]:
        """End a session: the reward of its episode, and all its steps. Asked again, the same.

        Args:
            session: What ``reset`` returned.
        """
        if session in self._ended:
            return self._ended[session]
        played, lock = self._find(session)
        with lock:
            reward = played.finish()
        answer = {"reward": reward, "trajectory": played.trajectory.model_dump(mode="json")}
        with self._lock:
            self._forget(session)
            self._ended[session] = answer
            while len(self._ended) > self.most:
                del self._ended[next(iter(self._ended))]
        return answer

    def _find(self, session_id: str) -> tuple[Session, threading.Lock]:
        with self._lock:
            self._end_idle()
            if session_id not in self._open:
                raise BadRequestError("session: unknown, or ended; begin one with reset(task)")
            self._used.pop(session_id)  # to the end of the order
            self._used[session_id] = self._clock()
            return self._open[session_id]

    def _end_idle(self) -> None:
        now = self._clock()
        while self._used and now - next(iter(self._used.values())) >= self.idle_s:
            self._forget(next(iter(self._used)))

    def _forget(self, session_id: str) -> None:
        self._open.pop(session_id, None)
        self._used.pop(session_id, None)
