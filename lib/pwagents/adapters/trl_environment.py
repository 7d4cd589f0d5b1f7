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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pwagents.adapters.core import Session, TaskSet, tool_method
from pwagents.lm.tokens import without_control_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ShopEnvironment:
    """One episode after another. The functions of the task set are methods of a subclass.

    Args:
        tokenizer: the policy's; its control tokens are broken up where foreign text holds them.
    """

    def __init__(self, tasks: TaskSet, tokenizer: "PreTrainedTokenizerBase"):
        self._session, self._tokenizer = Session(tasks), tokenizer

    def reset(self, task_id: str, **_: Any) -> str:
        """Begin a task; TRL appends what it returns to the prompt."""
        return without_control_tokens(self._tokenizer, self._session.reset(task_id))

    def get_reward(self) -> float:
        """The reward of the episode; what failed outside the policy is raised here."""
        return self._session.finish()

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        return without_control_tokens(self._tokenizer, self._session.step(name, arguments).text)


def environment_factory(
    tasks: TaskSet, tokenizer: "PreTrainedTokenizerBase"
) -> Callable[[], ShopEnvironment]:
    """What makes an environment whose public methods are the functions that the task set offers."""
    methods = {name: tool_method(name) for name in tasks.functions}
    shop = type("ShopEnvironment", (ShopEnvironment,), methods)
    return lambda: shop(tasks, tokenizer)


def prompt_rows(tasks: TaskSet) -> list[dict[str, Any]]:
    """The rows of a data set: room for what ``reset`` tells, and which task it is."""
    return [{"prompt": [{"role": "user", "content": ""}], "task_id": task_id} for task_id in tasks]
