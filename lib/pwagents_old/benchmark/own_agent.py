"""An agent of one's own: what may be given for one, and how it plays.

- A function from what an agent knows (:class:`pwagents.shop.environment.BeliefState`) to its next call
  (:class:`pwagents.schema.Action`), or an object that is called like one.
- A class of such objects: each episode gets a new one. A class that takes ``products`` is given the
  catalogue, to be read alone. What an object holds in ``memory``, a dict of plain JSON values, goes from one
  task of a user to the next, in the order of time, and to no other user.
"""

import copy
import inspect
import json
import reprlib
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pwagents.errors import InfrastructureError, NotEvaluableError, is_outage, SettingsError
from pwagents.schema import Action, Task, Trajectory
from pwagents.shop.environment import BeliefState, Track
from pwagents_old.benchmark.agent_key import agent_key, is_own_file
from pwagents_old.benchmark.study import Study
from pwagents.store import Episode, Store, chain_episodes

EXPECTED = "Action(name='search_product_by_query', arguments={'query': '...'})"
KINDS = (
    "a function from BeliefState to Action, a class or an object that is called like one, a chat model "
    "(openai:NAME, local:FOLDER, replay:NAME, offline) or the folder of a trained model"
)
# The code that decides an episode of an agent of one's own.
_PLAYED = ("agents", "web", "users", "llm", "embedding", "words", "schema", "seeds")
_PLAYED += ("benchmark/study", "benchmark/own_agent")
_AGAIN = "infrastructure_error"
_TRIED = 3  # tasks after which an agent that meets the same error on each is given up


class AgentError(Exception):
    """An agent raised, or returned something else than an action.

    Attributes:
        said: the error in one line, without where in the reader's code it was raised.
        kind: its class and place: the same mistake on every task, whatever it says of each.
    """

    def __init__(self, error: BaseException):
        frames = [each for each in traceback.extract_tb(error.__traceback__) if is_own_file(each.filename)]
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        self.said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"  # pydantic's take lines
        self.kind = type(error), place
        super().__init__(self.said + place)


class OwnRun(NamedTuple):
    """The episodes of an agent of one's own."""

    records: list[Episode]  # in the order of the tasks
    stored: int  # how many of them were stored before
    why_anew: str  # why the agent cannot be told from others, so that each call plays it anew; else empty


def require_agent(agent: Any) -> None:
    """Refuse what is no agent with a SettingsError."""
    if "__call__" not in dir(agent):  # unlike callable(), of a class: what its objects have
        raise SettingsError(f"agent: found {_describe(agent)}; expected {KINDS}")


def name_of(agent: Any) -> str:
    """Return what a function, class or object is called in its code."""
    while isinstance(agent, partial):
        agent = agent.func
    return getattr(agent, "__name__", type(agent).__name__)


@dataclass(frozen=True)
class _Player:
    """Plays single tasks: a new agent each, whose errors are told from those of what it needs."""

    agent: Any
    study: Study
    track: Track

    def make(self) -> Any:
        """Make the agent of an episode."""
        with _own_errors():
            if not isinstance(self.agent, type):
                return copy.copy(self.agent)
            takes_products = "products" in inspect.signature(self.agent).parameters
            products = MappingProxyType(self.study.benchmark.products)
            return self.agent(products) if takes_products else self.agent()

    def attempt(self, task: Task, *memory: dict[str, Any]) -> tuple[Trajectory, Any, AgentError | None]:
        """Play a task: the episode, the memory afterwards, the agent's error if there was one."""
        environment = self.study.environment(task, self.track)
        try:
            own = self.make()
            for before in memory:
                own.memory = copy.deepcopy(before or own.memory)
            trajectory = environment.play(partial(_act, own))
            return trajectory, _memory_of(own) if memory else None, None
        except AgentError as error:
            ended = {"end": "error", "message": str(error)}
            return environment.trajectory.model_copy(update=ended), *(memory or [None]), error


def play(study: Study, track: Track, agent: Any, name: str, version: str = "") -> OwnRun:
    """Play an agent on a study's sample; what is stored of the same agent is not played again.

    Args:
        version: of the agent, in place of what it pickles to (:mod:`pwagents_old.benchmark.agent_key`).

    Raises:
        InfrastructureError: some episode could not be played. All others are stored.
        RuntimeError: the agent cannot be made, or its first tasks all end in the same error of its own.
    """
    player = _Player(agent, study, track)

    # What tells its episodes from others.
    try:
        remembers = hasattr(player.make(), "memory")
    except AgentError as error:
        raise RuntimeError(f"agent {name} cannot be made: {error.said}") from error.__cause__
    key, why_anew = f"version {version}", ""
    if not version:
        try:
            key = agent_key(agent)
        except Exception as error:  # whatever pickle meets in it
            key, why_anew = uuid.uuid4().hex, AgentError(error).said
    params = study.params(*_PLAYED, track=track, agent=key, **study.settings.players.facts("user"))
    fields = {"method": name, "model": "own agent", "params": params}
    file, tasks = "evaluate.jsonl", study.sample
    keys = {key for chain in chain_episodes(tasks, **fields, by_user=remembers) for _, key in chain}
    stored = {
        each.key for each in Store(study.folder / file, Episode).read(keys) if each.outcome != _AGAIN
    }

    # An agent that meets the same error on each of its first tasks has a mistake: nothing is stored of it.
    tried, errors = {}, []
    for task in tasks[: 0 if stored else _TRIED]:
        try:
            *played, error = player.attempt(task, *([{}] if remembers else []))
        except (NotEvaluableError, InfrastructureError, OSError):
            break  # for the run to say
        tried[task.task_id], errors = played, [*errors, error]
        if error is None or error.kind != errors[0].kind:
            break
    else:
        if errors:
            counted = f"the first {len(errors)} tasks" if len(errors) > 1 else f"task {tasks[0].task_id}"
            raise RuntimeError(f"agent {name}, {counted}: {errors[0].said}") from errors[0].__cause__

    def solve(task: Task, *memory: dict[str, Any]) -> Any:
        played = None if any(memory) else tried.pop(task.task_id, None)
        trajectory, after = played or player.attempt(task, *memory)[:2]
        return (trajectory, after) if memory else trajectory

    records = study.run(tasks, solve, file, {} if remembers else None, **fields)
    return OwnRun(records, len(stored), why_anew)


def _act(agent: Any, state: BeliefState) -> Action:
    with _own_errors():
        action = agent(state)
        if not isinstance(action, Action):
            raise TypeError(f"the agent returned {_describe(action)}; expected an action, such as {EXPECTED}")
        try:
            json.dumps(action.model_dump())
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"the agent returned an action that cannot be stored: {error}") from None
    return action


def _memory_of(agent: Any) -> dict[str, Any]:
    with _own_errors():
        if not isinstance(agent.memory, dict):
            found = _describe(agent.memory)
            raise TypeError(f"the agent's memory is {found}; expected a dict of plain JSON values")
        json.dumps(agent.memory, allow_nan=False)
    return agent.memory


@contextmanager
def _own_errors() -> Iterator[None]:
    """Tell an agent's errors from those of what it needs: an endpoint that is down, a model that refuses."""
    try:
        yield
    except (InfrastructureError, NotEvaluableError, OSError):
        raise
    except (Exception, SystemExit) as error:
        if is_outage(error):  # of an endpoint that the agent asks
            raise InfrastructureError(str(AgentError(error))) from error
        raise AgentError(error) from error


def _describe(value: Any) -> str:
    """A value in a message: its type, and how a plain one begins; the address of another is chance."""
    if value is None:
        return "None"
    kind, is_plain = type(value).__name__, isinstance(value, str | int | float | dict | list | tuple)
    return f"the {kind} {reprlib.repr(value)}" if is_plain else f"a value of type {kind}"
