"""The shop for other people's trainers and harnesses, as texts and calls: one core, an adapter for each.

    from pwagents.adapters import Session, load_tasks

    tasks = load_tasks(preset="smoke")
    session = Session(tasks)
    print(session.reset(next(iter(tasks))))          # the rules, the user's past, what the user asks for
    print(session.step("search_product_by_query", {"query": "yoga mat"}).text)
    print(session.finish(), session.trajectory)      # the reward, and all steps

An agent is told all in the words of a prompting method of notebook 03, so that a model that plays through an
adapter reads what it would read there: no grade, no target, and no reward before the end.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pwagents.agents.chat import ChatAgent, Setup
from pwagents.agents.methods import METHODS
from pwagents.agents.replies import parse_arguments
from pwagents.evaluation.testbed import open_testbed
from pwagents.llm.chat import Tool
from pwagents.schema import Action, Split, Task, Trajectory
from pwagents.shop.environment import Environment, Track, tool_schemas
from pwagents.shop.score import grade

ENDED = "The task has ended."  # what calls after the end get for an answer


@dataclass(frozen=True)
class TaskSet:
    """Tasks, where they are played, and how they are told. Shared by all sessions and threads.

    Args:
        tasks: task_id -> task, in the order in which they are to be played.
        start: task -> an environment in which it has begun.
        teller: the prompting method in whose words an agent is told; its model is never asked.
    """

    tasks: Mapping[str, Task]
    start: Callable[[Task], Environment]
    teller: ChatAgent

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that an agent may call."""
        return self.teller.allowed

    @property
    def tools(self) -> tuple[Tool, ...]:
        """These functions as OpenAI tools."""
        return tuple(tool_schemas(self.functions))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


def load_tasks(
    preset: str = "smoke",
    track: Track = "multi_turn",
    split: Split = "test",
    *,
    tasks: int | None = None,
    output_dir: str | Path = "",
    **changes: Any,
) -> TaskSet:
    """Load data, shop and user of a preset, leak-free; an agent is told the user's latest purchases.

    Args:
        split: "test", or "train" for tasks to learn from. The recommender has learned from the train period,
            the training tasks' own purchases included: what it earns there says nothing of test tasks.
        tasks, output_dir, changes: as of :func:`pwagents.evaluate`.

    Raises:
        SettingsError: an argument is wrong; says what was found and what was expected.
    """
    bed = open_testbed(preset, track, tasks, output_dir, changes, split)
    world, seed = bed.world, bed.settings.seed
    playable = [task for task in world.tasks if task.type != "review" or task.review.text.strip()]
    setup = Setup(None, world.shop.benchmark.products, track, prompts=world.prompts.texts, seed=seed)
    return TaskSet({task.task_id: task for task in playable}, bed.begin, METHODS["Last memory"](setup))


class Answer(NamedTuple):
    """What comes back for a call."""

    text: str  # for the agent
    reward: float  # of the episode where it ends with this call, else 0
    done: bool


class Session:
    """One task after another, for one agent. Each thread needs its own.

    The reward of an episode is the result accuracy of its last attempt, as in our tables ("final"); 0 without
    an attempt.
    """

    def __init__(self, tasks: TaskSet):
        self.tasks = tasks
        self._environment: Environment | None = None
        self._failure: Exception | None = None

    def reset(self, task_id: str) -> str:
        """Begin a task: the rules, what the user bought before, what the user asks for.

        Raises:
            ValueError: there is no such task.
        """
        task = self.tasks.tasks.get(task_id) if isinstance(task_id, str) else None
        if task is None:
            raise ValueError(f"task_id: found {task_id!r}; expected one of the {len(self.tasks):,} tasks")
        self._environment, self._failure = self.tasks.start(task), None
        system, request = self.tasks.teller.messages(self._environment.state)
        return f"{system['content']}\n\n{request['content']}"

    def step(self, name: str, arguments: Mapping[str, Any] | str) -> Answer:
        """Carry out a call. One that is malformed is a step, too, and the answer says what is wrong with it.

        Args:
            arguments: as a dict of JSON values or as JSON text.

        Raises:
            ValueError: no task was begun.
        """
        if self.done:
            return Answer(ENDED, 0.0, True)
        read, mistake = parse_arguments(arguments if isinstance(arguments, str) else json.dumps(arguments))
        problem = f"the arguments of {name}: {mistake}" if mistake else ""
        kind = "malformed_json" if mistake else ""
        action = Action(name=str(name), arguments=read, problem=problem, problem_kind=kind)
        try:
            step = self._environment.step(action)
        except Exception as error:
            self._failure = error
            raise
        answer = self.tasks.teller.step_messages(len(self._environment.state.session) - 1, step)[-1]
        reward = grade(self.trajectory).result_final if self.done else 0.0
        return Answer(answer["content"], reward, self.done)

    def finish(self) -> float:
        """End the episode, if it goes on, and tell its reward.

        Raises:
            ValueError: no task was begun.
            Exception: what failed in a step by no fault of the agent's (an endpoint, the disk): a harness may
                have shown it to the agent as an answer, and nobody should learn from that.
        """
        if not self.done:
            self._environment.end = "cut_off"
        if self._failure is not None:
            raise self._failure
        return grade(self.trajectory).result_final

    @property
    def done(self) -> bool:
        """Whether the task has ended; ValueError where none was begun."""
        if self._environment is None:
            raise ValueError("no task is under way; begin one with reset(task_id)")
        return self._environment.end is not None

    @property
    def trajectory(self) -> Trajectory:
        """The episode so far, with target and ledger: not for the agent."""
        return self._environment.trajectory
