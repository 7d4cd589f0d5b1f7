"""Play an agent of one's own: what may be given for one, and whose fault an error is.

- A function from what an agent knows (:class:`pwagents.shop.environment.BeliefState`) to its next call
  (:class:`pwagents.schema.Action`), or an object that is called like one.
- A class of such objects: each episode gets a new one. A class that takes ``products`` is given the
  catalog, which it cannot change. What an object holds in ``memory``, a dict of plain JSON values, goes from
  one task of a user to the next, in the order of time, and to no other user.
"""

import copy
import inspect
import json
import reprlib
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pwagents.errors import InfrastructureError, NotEvaluableError, SettingsError, describe, is_outage
from pwagents.schema import Action, Product, Task, Trajectory
from pwagents.shop.environment import CODE as ENVIRONMENT
from pwagents.shop.environment import BeliefState, Environment
from pwagents.store import Episode, Store, chain_episodes, episodes, with_code
from pwagents.users.llm import CODE as USER

# The modules that decide an episode of such an agent besides itself, whoever plays the user.
CODE = tuple(dict.fromkeys((*ENVIRONMENT, *USER, "evaluation.own_agent")))
EXPECTED = "Action(name='search_product_by_query', arguments={'query': '...'})"
KINDS = (
    "a function from BeliefState to Action, a class or an object that is called like one, a chat model "
    "(openai:NAME, local:FOLDER, replay:NAME, offline) or the folder of a trained model"
)
TRIED = 3  # tasks after which an agent that meets the same error on each is given up
_NOT_OWN = (Path(__file__).parents[2], sysconfig.get_path("stdlib"))


class AgentError(Exception):
    """An agent raised, or returned something else than an action; the message is one line with its place.

    Attributes:
        kind: the error's class and place: the same mistake on every task, whatever it says of each.
    """

    def __init__(self, error: BaseException):
        place = place_of(error)
        self.kind = type(error), place
        message = " ".join(describe(error).split())[:300]  # pydantic's take lines
        super().__init__(f"{message}{place}")


def place_of(error: BaseException) -> str:
    """Return where the reader's code raised, as " (FILE, line N)"; an empty text where it did not."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if _is_own(each.filename)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _is_own(file: str) -> bool:
    """Return whether a file of code is the reader's: not this library's, not Python's, not installed."""
    if {"site-packages", "dist-packages"} & {*Path(file).parts} or file.startswith("<frozen"):
        return False
    return not any(Path(file).is_relative_to(folder) for folder in _NOT_OWN)


def require_agent(agent: Any) -> None:
    """Check that something is an agent; a SettingsError says what was found."""
    if "__call__" not in dir(agent):  # unlike callable(), of a class: what its objects have
        raise SettingsError(f"agent: found {_describe(agent)}; expected {KINDS}")


def name_of(agent: Any) -> str:
    """Return what a function, class or object is called in its code."""
    while isinstance(agent, partial):
        agent = agent.func
    return getattr(agent, "__name__", type(agent).__name__)


@dataclass(frozen=True)
class _Player:
    """Plays single tasks, each with a new agent."""

    agent: Any
    begin: Callable[[Task], Environment]
    products: Mapping[str, Product]

    def make(self) -> Any:
        """Make the agent of an episode."""
        with _own_errors():
            if not isinstance(self.agent, type):
                return copy.copy(self.agent)
            takes_products = "products" in inspect.signature(self.agent).parameters
            return self.agent(MappingProxyType(self.products)) if takes_products else self.agent()

    def attempt(self, task: Task, *memory: dict[str, Any]) -> tuple[Trajectory, Any, AgentError | None]:
        """Play a task: the episode, the memory afterwards, the agent's error if there was one."""
        environment = self.begin(task)
        try:
            own = self.make()
            for before in memory:
                with _own_errors():
                    own.memory = copy.deepcopy(before or own.memory)
            trajectory = environment.play(partial(_act, own))
            return trajectory, _memory_of(own) if memory else None, None
        except AgentError as error:
            ended = {"end": "error", "message": str(error)}
            return environment.trajectory.model_copy(update=ended), *(memory or [None]), error


def play_agent(
    agent: Any,
    tasks: Sequence[Task],
    begin: Callable[[Task], Environment],
    products: Mapping[str, Product],
    file: Path,
    facts: Mapping[str, Any],
    *,
    name: str,
    version: str = "",
    **options: Any,
) -> list[Episode]:
    """Play an agent on tasks; return the episodes in the tasks' order.

    Args:
        begin: task -> an environment in which it has begun.
        file: where episodes are stored.
        facts: what decides an episode besides the agent and the code.
        version: stored episodes of this name and version are not played again; empty: all are played.
        options: of :func:`pwagents.store.episodes`.

    Raises:
        InfrastructureError: some episode could not be played. All others are stored.
        RuntimeError: the agent cannot be made, or its first tasks all end in the same error of its own.
    """
    player = _Player(agent, begin, products)
    try:
        remembers = hasattr(player.make(), "memory")
    except AgentError as error:
        raise RuntimeError(f"agent {name} cannot be made: {error}") from error.__cause__
    facts = {**facts, "agent": version, "code": CODE}
    fields, stored = {"method": name, "model": "own agent"}, set()
    if version:
        chains = chain_episodes(tasks, **fields, params=with_code(facts)[0], by_user=remembers)
        keys = {key for chain in chains for _, key in chain}
        records = Store(file, Episode).read(keys)
        stored = {each.key for each in records if each.outcome != "infrastructure_error"}

    # An agent that meets the same error on each of its first tasks has a mistake: nothing is stored of it.
    tried, errors = {}, []
    for task in tasks[: 0 if stored else TRIED]:
        try:
            *played, error = player.attempt(task, *([{}] if remembers else []))
        except (NotEvaluableError, InfrastructureError, OSError):
            break  # the run says so
        tried[task.task_id], errors = played, [*errors, error]
        if error is None or error.kind != errors[0].kind:
            break
    else:
        if errors:
            counted = f"the first {len(errors)} tasks" if len(errors) > 1 else f"task {tasks[0].task_id}"
            raise RuntimeError(f"agent {name}, {counted}: {errors[0]}") from errors[0].__cause__

    def solve(task: Task, *memory: dict[str, Any]) -> Any:
        played = None if any(memory) else tried.pop(task.task_id, None)
        trajectory, after = played or player.attempt(task, *memory)[:2]
        return (trajectory, after) if memory else trajectory

    options |= {"anew": not version, "memory": {} if remembers else None}
    return episodes(file, tasks, solve, facts, **fields, **options)


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
    """Distinguish an agent's errors from those of what it needs: an endpoint is down, a model refuses."""
    try:
        yield
    except (InfrastructureError, NotEvaluableError):
        raise
    except (Exception, SystemExit) as error:
        if is_outage(error):  # of an endpoint that the agent asks
            raise InfrastructureError(str(AgentError(error))) from error
        raise AgentError(error) from error


def _describe(value: Any) -> str:
    """Describe a value by its type and, if it is plain, its beginning; the address of another is chance."""
    if value is None:
        return "None"
    kind, is_plain = type(value).__name__, isinstance(value, str | int | float | dict | list | tuple)
    return f"the {kind} {reprlib.repr(value)}" if is_plain else f"a value of type {kind}"
