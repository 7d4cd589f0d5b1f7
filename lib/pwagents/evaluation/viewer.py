"""One episode as a readable conversation, several beside each other, in a notebook.

All texts are escaped: product titles, reviews and what models wrote can hold anything.
"""

import json
from collections.abc import Mapping
from importlib.resources import files

from pwagents.evaluation.metrics import attempts, grade
from pwagents.schema import Product, Task, Trajectory

MAX_TEXT = 600  # characters of a text that are shown; the record holds the rest
# Why an episode counts 0, whatever was done in it.
FAILURES = {"refused": "refused by its model", "error": "the agent's error"}


def show_episodes(
    task: Task,
    trajectories: Mapping[str, Trajectory],
    products: Mapping[str, Product],
    profiles: Mapping[str, str] | None = None,
):
    """Show the episodes of several methods on one task, beside each other; more than three get narrow.

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

    episodes = []
    for method, trajectory in trajectories.items():
        if trajectory.task_id != task.task_id:
            raise ValueError(f"{method} worked on task {trajectory.task_id}, not on {task.task_id}")
        results = iter(attempts(trajectory))  # one for each step that is an attempt
        steps = [
            {
                "action": step.action,
                "arguments": {
                    name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                    for name, value in step.action.arguments.items()
                },
                "error": step.error,
                "products": [
                    (products[asin].title, asin == task.target) for asin in step.observation.products
                ],
                "speaker": "User" if step.action.name == "respond" else "Shop",
                "text": step.observation.text,
                "result": f"{next(results):.2f}" if trajectory.is_attempt(step) else "",
            }
            for step in trajectory.steps
        ]
        about = {"method": method, "profile": (profiles or {}).get(method, "")}
        episodes.append({**about, "steps": steps, "summary": describe_outcome(trajectory)})
    environment = Environment(autoescape=True)
    environment.filters["short"] = _shorten
    template = files("pwagents.evaluation").joinpath("trajectory.html").read_text("utf-8")
    return HTML(environment.from_string(template).render(task=task, episodes=episodes))


def describe_outcome(trajectory: Trajectory) -> str:
    """Describe in one line what came of an episode, and why where its model refused or the agent failed."""
    grades = grade(trajectory)
    failure = FAILURES.get(trajectory.end)
    reason = f"{failure} ({_shorten(trajectory.message)}); " if failure else ""
    return (
        f"{reason}{grades.steps} steps, {grades.attempts} attempts; function accuracy "
        f"{grades.function_accuracy:.0f}, result accuracy {grades.result_official:.2f} at best, "
        f"{grades.result_final:.2f} in the end"
    )


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "\N{HORIZONTAL ELLIPSIS}"
