"""The shop as a Gymnasium environment of texts (``pip install -e .[gymnasium]``).

env = ShopEnv(load_tasks(preset="smoke"))
text, info = env.reset(options={"task_id": "..."})     # without options: a random task
text, reward, terminated, truncated, info = env.step(
    '{"name": "search_product_by_query", "arguments": {"query": "yoga mat"}}'
)
"""

from typing import Any

import gymnasium

from pwagents.adapters import Session, TaskSet
from pwagents.agents.replies import parse_arguments


class AnyText(gymnasium.spaces.Text):
    """Texts of any length and any characters: those of products are not known beforehand."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class ShopEnv(gymnasium.Env[str, str]):
    """One episode after another. An action is a call as JSON, an observation what an agent is told.

    The reward comes with the last step. A text that is no call is a step with an error for its answer.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium has it)

    def __init__(self, tasks: TaskSet):
        self._session = Session(tasks)
        # 256: of samples, which are drawn from letters and digits.
        self.action_space, self.observation_space = AnyText(256), AnyText(256)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        ids = list(self._session.tasks)
        task_id = (options or {}).get("task_id", ids[int(self.np_random.integers(len(ids)))])
        return self._session.reset(task_id), {"task_id": task_id}

    def step(self, action: str):
        call, mistake = parse_arguments(action)
        answer = self._session.step(call.get("name", ""), action if mistake else call.get("arguments", {}))
        return answer.text, answer.reward, answer.done, False, {}
