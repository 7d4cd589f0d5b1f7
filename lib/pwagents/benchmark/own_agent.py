"""An agent of one's own: what may be given for one, and how it plays.

- A function from what an agent knows (:class:`pwagents.web.environment.BeliefState`) to its next call
  (:class:`pwagents.schema.Action`), or an object that is called like one.
- A class of such objects: each episode gets a new one. A class that takes ``products`` is given the
  catalogue. What an object holds in ``memory``, a dict of plain JSON values, goes from one task of a user to
  the next, in the order of time, and to no other user.
- The URL of an HTTP endpoint (:mod:`pwagents.agents.http_agent`).
"""

import copy
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError

from pwagents.agents.http_agent import HttpAgent
from pwagents.errors import SettingsError
from pwagents.evaluation.records import EpisodeRecord
from pwagents.evaluation.runner import run_episodes, run_user_episodes
from pwagents.schema import Action, Behavior, Product, Task, Trajectory
from pwagents.web.environment import Agent, BeliefState, WebEnvironment, run_episode

EXPECTED = "Action(name='search_product_by_query', arguments={'query': '...'})"
KINDS = (
    "a function from BeliefState to Action, a class or an object that is called like one, the URL of an "
    "HTTP endpoint, a chat model (openai:NAME, local:FOLDER, replay:NAME, offline) or the folder of a "
    "trained model"
)


class OwnAgent(NamedTuple):
    """An agent and what stored episodes know it by.

    Args:
        given: an object that is called, or a class of them.
        version: changes with the source of the agent and of its base classes, with the numbers and texts that
            it holds, and with the ``name`` of a model that it holds; of an endpoint, with its address. Not
            with code that it imports, nor with what a server does.
    """

    name: str
    given: Any
    version: str

    def make(self, products: Mapping[str, Product]) -> Any:
        """The agent that plays an episode."""
        if not isinstance(self.given, type):
            return copy.copy(self.given)
        takes = inspect.signature(self.given).parameters
        return self.given(products) if "products" in takes else self.given()


class Stage(NamedTuple):
    """Where episodes are played.

    Args:
        products: the catalogue.
        environment: task -> an environment of its own.
        history: task -> the past behaviours that an agent may see.
        store: the file of episode records.
        params: all that decides results besides the agent, for the keys of the records.
    """

    products: Mapping[str, Product]
    environment: Callable[[Task], WebEnvironment]
    history: Callable[[Task], tuple[Behavior, ...]]
    store: Path
    params: Mapping[str, Any]
    workers: int = 1


def own_agent(agent: Any, name: str = "") -> OwnAgent:
    """What plays for ``agent``, and under which name.

    Raises:
        SettingsError: it is no agent, or its source cannot be read, so that stored episodes could not be told
            from those of a changed agent.
    """
    if isinstance(agent, str):
        url = urlsplit(agent)
        place = url.netloc.rpartition("@")[2] + url.path  # user, password and query may be secret
        query = hashlib.sha256(url.query.encode()).hexdigest()[:16] if url.query else ""
        return OwnAgent(name or place, HttpAgent(agent), place + query)
    is_class = isinstance(agent, type)
    if not (any("__call__" in vars(each) for each in agent.__mro__) if is_class else callable(agent)):
        raise SettingsError(f"agent: found {_told(agent)}; expected {KINDS}")
    held = "" if is_class else _values(agent)
    version = hashlib.sha256(f"{_source(agent)}\n{held}".encode()).hexdigest()[:16]
    return OwnAgent(name or _name(agent), agent, version)


def play(own: OwnAgent, tasks: Sequence[Task], stage: Stage) -> list[EpisodeRecord]:
    """The agent's episodes, in the order of the tasks; stored ones are not played again.

    Raises:
        RuntimeError: the agent raised, or returned something else than an action; names the task.
    """

    def episode(task: Task, agent: Agent) -> Trajectory:
        return run_episode(stage.environment(task), task, stage.history(task), checked(agent))

    def solve(task: Task) -> Trajectory:
        return episode(task, own.make(stage.products))

    def solve_next(task: Task, memory: dict[str, Any]) -> tuple[Trajectory, dict[str, Any]]:
        agent = own.make(stage.products)
        agent.memory = memory or copy.deepcopy(agent.memory)
        trajectory = episode(task, agent)
        if not isinstance(agent.memory, dict):
            raise TypeError(
                f"the agent's memory is {_told(agent.memory)}; expected a dict of plain JSON values"
            )
        return trajectory, agent.memory

    options = {
        "method": own.name,
        "model": "own agent",
        "params": {**stage.params, "agent": own.version},
        "workers": stage.workers,
    }
    if hasattr(own.make(stage.products), "memory"):
        return run_user_episodes(tasks, solve_next, stage.store, **options)
    return run_episodes(tasks, solve, stage.store, **options)


def checked(agent: Agent) -> Agent:
    """The agent, with one clear error where it returns something else than an action.

    Raises (from a call):
        TypeError: says what was returned and what was expected.
    """

    def act(state: BeliefState) -> Action:
        try:
            returned = agent(state)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            expected = first["msg"].removeprefix("Input should be ")
            raise TypeError(
                f"{error.title}, field {field}: found {_told(first['input'])}; expected {expected}"
            ) from error
        if not isinstance(returned, Action):
            raise TypeError(f"the agent returned {_told(returned)}; expected an action, such as {EXPECTED}")
        return returned

    return act


def _told(value: Any) -> str:
    """A value in a message: its kind, and of plain ones how they begin."""
    if value is None:
        return "None"
    kind = {"str": "text"}.get(type(value).__name__, type(value).__name__)
    if not isinstance(value, str | int | float | dict | list | tuple):
        return f"a value of type {kind}"
    text = repr(value)
    return f"the {kind} {text if len(text) <= 80 else text[:77] + '...'}"


def _name(agent: Any) -> str:
    while isinstance(agent, partial):
        agent = agent.func
    return getattr(agent, "__name__", type(agent).__name__)


def _source(agent: Any) -> str:
    """The files in which the code of an agent and of its base classes stands; in a notebook, their lines."""
    while isinstance(agent, partial):
        agent = agent.func
    agent = getattr(agent, "__func__", agent)  # of a bound method
    functions = [agent]
    if not inspect.isfunction(agent):
        classes = (agent if isinstance(agent, type) else type(agent)).__mro__
        held = [value for each in classes for _, value in sorted(vars(each).items())]
        functions = [value for value in held if inspect.isfunction(value)]
    # Each once, in their order; methods that a dataclass is given have no source.
    sources = list(dict.fromkeys(filter(None, map(_source_of, functions))))
    if not sources:
        raise SettingsError(
            f"agent {_name(agent)}: found no source, which tells its episodes from those of another version; "
            "expected Python in a file or a notebook's cell"
        )
    return "\n".join(sources)


def _source_of(function: Callable[..., Any]) -> str:
    """The function's file; its own lines where that is no file; empty where there is neither."""
    file = Path(function.__code__.co_filename)
    try:
        return file.read_text("utf-8") if file.is_file() else inspect.getsource(function)
    except OSError:
        return ""


def _values(agent: Any) -> str:
    """Numbers and texts that an agent holds: as attributes, bound to it, or closed over by its function.

    Objects are told by their type and ``name``, which a model has; what may grow while it plays (a cache, a
    count of calls in a list) by its type alone.
    """
    if isinstance(agent, partial):
        held = {**dict(enumerate(agent.args)), **agent.keywords, "func": _values(agent.func)}
    elif inspect.isfunction(agent):
        defaults = dict(enumerate(agent.__defaults__ or ()))
        held = {**defaults, **(agent.__kwdefaults__ or {}), **inspect.getclosurevars(agent).nonlocals}
    else:
        held = getattr(getattr(agent, "__self__", agent), "__dict__", {})
    return repr({name: _plain(value) for name, value in held.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, str | int | float | None):
        return value
    name = getattr(value, "name", "")
    return f"{type(value).__name__} {name}" if isinstance(name, str) else type(value).__name__
