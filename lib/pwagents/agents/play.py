"""How the prompting methods are played: in which ways, and one task by each of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, TypeAdapter

from pwagents.agents.chat import Setup
from pwagents.agents.interec import InteRecAgent, play_interec
from pwagents.agents.methods import AGENTS
from pwagents.errors import DataError
from pwagents.schema import FUNCTION_OF, Protocol, Task, Trajectory
from pwagents.settings import PlaySettings, project_path
from pwagents.shop.environment import Environment, Shop, UserSimulator, run_episode

PROTOCOLS = {"leak_free": "leak-free", "published": "as published"}  # as tables call them


class Way(NamedTuple):
    """One way to play the prompting methods.

    Args:
        policy: the name of their model.
        items: that a memory recalls at most; 0 for as many as the paper has.
    """

    policy: str
    protocol: Protocol
    items: int = 0


def name_ways(policies: Iterable[str], settings: PlaySettings) -> dict[str, Way]:
    """Return all ways to play, named by the policy and what differs between them: "gpt-4o, leak-free"."""
    ways = {}
    for policy in policies:
        for protocol in settings.protocols:
            for items in settings.published_items if protocol == "published" else (0,):
                words = [policy]
                if len(settings.protocols) > 1:
                    words.append(PROTOCOLS[protocol])
                if protocol == "published" and len(settings.published_items) > 1:
                    words.append(f"{items} items" if items else "the paper's items")
                ways[", ".join(words)] = Way(policy, protocol, items)
    return ways


def make_player(
    method: str, setup: Setup, shop: Shop, protocol: Protocol = "leak_free", user: UserSimulator | None = None
) -> tuple[Callable[..., Any], dict[str, Any] | None]:
    """Return what plays a task by a method, and the memory that it begins with (None: it has none).

    Both are as :func:`pwagents.store.episodes` takes them.

    Args:
        method: one of :data:`pwagents.agents.methods.AGENTS`.
        user: answers the agent in the multi-turn track.
    """
    user = user if setup.track == "multi_turn" else None
    if limits := getattr(setup.model, "limits", {}):  # the offline policy has none
        setup = replace(setup, sampling={"max_tokens": limits[protocol], **setup.sampling})
    if AGENTS[method] is not InteRecAgent:
        agent = AGENTS[method](setup)
        return lambda task: run_episode(shop, task, agent, setup.track, protocol, user), None

    # Its profile goes from task to task; as published the first is made from all before the first train task.
    benchmark = shop.benchmark
    trained = {task.user_id for task in benchmark.tasks["train"]} if protocol == "published" else ()

    def play(task: Task, profile: dict[str, Any]) -> tuple[Trajectory, dict[str, Any]]:
        first = None
        if task.user_id in trained:
            first = benchmark.before(task.user_id, benchmark.first_task(task.user_id, "train"))
        return play_interec(setup, Environment(shop, task, setup.track, protocol, user), profile, first)

    return play, {}


def read_functions(file: str, tasks: Sequence[Task]) -> dict[str, str]:
    """Read which function PUMA's fine-tuned model named for each instruction; empty without the file.

    Args:
        file: JSON: instruction -> function (empty if the model named none), or a list of them.
        tasks: those whose instructions must be in it.

    Raises:
        DataError: the file is no such object, or lacks an instruction.
    """
    path = project_path(file)
    if not file or not path.exists():
        return {}
    # Of a list, which published scripts write, the first counts.
    first = BeforeValidator(lambda named: named[0] if isinstance(named, list) and named else named)
    function = Annotated[Literal["", *FUNCTION_OF.values()], first]
    try:
        functions = TypeAdapter(dict[str, function]).validate_json(path.read_bytes())
    except ValueError as error:
        expected = "one JSON object: instruction -> the name of a function"
        raise DataError(path, "-", "(file)", " ".join(str(error).split())[:400], expected) from error
    for task in tasks:
        is_playable = task.type != "review" or task.review.text
        if is_playable and task.instruction not in functions:
            wrong, expected = "no function for its instruction", "one for every test task"
            raise DataError(path, f"task {task.task_id}", "instruction", wrong, expected)
    return functions
