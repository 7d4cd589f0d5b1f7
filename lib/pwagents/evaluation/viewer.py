"""One episode as a readable conversation, several beside each other, in a notebook.

All texts are escaped: product titles, reviews and what models wrote can hold anything.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from pwagents.evaluation.metrics import attempts, grade
from pwagents.schema import Product, Step, Task, Trajectory

MAX_TEXT = 600  # characters of a text that are shown; the record holds the rest


def show_episodes(
    task: Task,
    trajectories: Mapping[str, Trajectory],
    products: Mapping[str, Product],
    profiles: Mapping[str, str] | None = None,
):
    """The episodes of several methods on one task, beside each other; more than three get narrow.

    Args:
        task: whose target is marked where it is shown. The agents did not know it.
        trajectories: name of the method -> its episode.
        profiles: name of the method -> the contextual profile it began with, where it has one.

    Returns:
        An ``IPython.display.HTML`` for the end of a cell; its ``data`` is the page's text.

    Raises:
        ValueError: a trajectory is of another task.
    """
    from IPython.display import HTML
    from jinja2 import Environment

    for method, trajectory in trajectories.items():
        if trajectory.task_id != task.task_id:
            raise ValueError(f"{method} worked on task {trajectory.task_id}, not on {task.task_id}")
    template = files("pwagents.evaluation").joinpath("trajectory.html").read_text("utf-8")
    episodes = [
        _episode(method, task, trajectory, products, (profiles or {}).get(method, ""))
        for method, trajectory in trajectories.items()
    ]
    return HTML(Environment(autoescape=True).from_string(template).render(episodes=episodes))


def _episode(method: str, task: Task, trajectory: Trajectory, products, profile: str) -> dict[str, Any]:
    graded = grade(trajectory)
    return {
        "title": method,
        "subtitle": f"{task.type} task of user {task.user_id}",
        "instruction": task.instruction,
        "profile": profile,
        "steps": _steps(task, trajectory, products),
        "summary": (
            f"{graded.steps} steps, {graded.attempts} attempts; function accuracy "
            f"{graded.function_accuracy:.0f}, result accuracy {graded.result_official:.2f} at best, "
            f"{graded.result_final:.2f} in the end"
        ),
    }


def _steps(task: Task, trajectory: Trajectory, products: Mapping[str, Product]) -> list[dict[str, Any]]:
    results = iter(attempts(trajectory))
    return [
        _step(step, task, products)
        | {"result": f"{next(results):.2f}" if trajectory.is_attempt(step) else ""}
        for step in trajectory.steps
    ]


def _step(step: Step, task: Task, products: Mapping[str, Product]) -> dict[str, Any]:
    shown = [
        {"title": _short(products[asin].title), "target": asin == task.target}
        for asin in step.observation.products
    ]
    return {
        "thought": _short(step.action.thought),
        "name": step.action.name or "(no call)",
        "arguments": [(key, _short(_as_text(value))) for key, value in step.action.arguments.items()],
        "error": _short(step.error),
        "products": shown,
        "speaker": "User" if step.action.name == "respond" else "Shop",
        "text": _short(step.observation.text),
    }


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "\N{HORIZONTAL ELLIPSIS}"
