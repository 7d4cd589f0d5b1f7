"""The shop as a TRL environment: the way to GRPO with TRL's own generation, on a GPU with vLLM.

    GRPOTrainer(
        model,
        environment_factory=environment_factory(tasks, tokenizer),
        train_dataset=Dataset.from_list(prompt_rows(tasks)),
        processing_class=tokenizer,
        args=GRPOConfig(max_tool_calling_iterations=MAX_STEPS, ...),
    )

As TRL (1.16) has it, a turn without a readable call ends the episode, and the model may go on after the end,
where every call gets the same short answer.
"""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from pwagents.adapters import Session, TaskSet
from pwagents.llm.fence import without_control_tokens
from pwagents.shop.environment import FUNCTIONS


class ShopEnvironment:
    """One episode after another. The functions of the task set are methods of a subclass."""

    def __init__(self, tasks: TaskSet, tokenizer: Any):
        self._session = Session(tasks)
        self._tell = partial(without_control_tokens, tokenizer)  # they are broken up in foreign text

    def reset(self, task_id: str, **_: Any) -> str:
        """Begin a task; TRL appends what it returns to the prompt."""
        return self._tell(self._session.reset(task_id))

    def get_reward(self) -> float:
        """Return the episode's reward; what failed outside the policy is raised here."""
        return self._session.finish()

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        return self._tell(self._session.step(name, arguments).text)


def environment_factory(tasks: TaskSet, tokenizer: Any) -> Callable[[], ShopEnvironment]:
    """Make environments whose public methods are the functions that the task set offers."""
    methods = {name: tool_method(name) for name in tasks.functions}
    return partial(type("ShopEnvironment", (ShopEnvironment,), methods), tasks, tokenizer)


def tool_method(name: str) -> Callable[..., str]:
    """Make a method of a web function: TRL reads tools from signatures and docstrings. It calls ``_call``."""
    function = FUNCTIONS[name].raw_function

    @wraps(function)
    def method(self, **arguments: Any) -> str:
        return self._call(name, arguments)

    hints = inspect.get_annotations(function)  # what it returns is no part of the tool's schema
    method.__annotations__ = {key: hint for key, hint in hints.items() if key != "return"}
    return method


def prompt_rows(tasks: TaskSet) -> list[dict[str, Any]]:
    """The rows of a data set: room for what ``reset`` tells, and which task it is."""
    return [{"prompt": [{"role": "user", "content": ""}], "task_id": task_id} for task_id in tasks]
