"""One episode as a readable conversation, several side by side, in a notebook.

All texts are escaped: product titles, reviews and what models wrote can contain anything.
"""

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from textwrap import wrap
from typing import NamedTuple

from pwagents.results.episodes import FAILURES
from pwagents.schema import Product, Task, Trajectory
from pwagents.shop.score import attempts, grade

MAX_TEXT = 600  # characters of a text that are shown; the record has the rest
DRAWN_PRODUCTS, DRAWN_QUESTIONS = 3, 2  # at most, in a picture


class Bubble(NamedTuple):
    """What one side says or does.

    ``kind`` is "agent" or "answer"; ``wrong`` is an error, ``note`` the score of an attempt.
    """

    kind: str
    who: str
    text: str
    thought: str = ""
    wrong: str = ""
    note: str = ""


def converse(
    trajectory: Trajectory, products: Mapping[str, Product] | None = None, most: int | None = None
) -> list[Bubble]:
    """Turn an episode of the shop into what agent, shop and user say.

    Args:
        products: of lists of products the titles are shown, with a mark at the target; None: the answer as it
            was given.
        most: characters of a text that are shown; None: all.
    """
    results, bubbles = iter(attempts(trajectory)), []  # a result for each step that is an attempt
    for step in trajectory.steps:
        action, answer = step.action, _shorten(step.observation.text, most)
        arguments = [
            f"{name}: {_shorten(value if isinstance(value, str) else json.dumps(value), most)}"
            for name, value in action.arguments.items()
        ]
        who, wrong = f"Agent: {action.name or '(no call)'}", _shorten(step.error or action.problem, most)
        note = f"result accuracy {next(results):.2f}" if trajectory.is_attempt(step) else ""
        thought = _shorten(action.thought, most)
        bubbles.append(Bubble("agent", who, "\n".join(arguments), thought, wrong, note))
        if products and step.observation.products:
            answer = "\n".join(
                _shorten(products[asin].title, most)
                + " \N{BLACK STAR} the target" * (asin == trajectory.target)
                for asin in step.observation.products
            )
        if answer:
            bubbles.append(Bubble("answer", "User" if action.name == "respond" else "Shop", answer))
        if step.profile:
            bubbles.append(Bubble("answer", "Profile, updated", _shorten(step.profile, most)))
    return bubbles


def show_episodes(
    task: Task,
    trajectories: Mapping[str, Trajectory],
    products: Mapping[str, Product],
    profiles: Mapping[str, str] | None = None,
):
    """Show the episodes of several methods on one task, side by side.

    More than three get narrow.

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
    from jinja2 import Template

    episodes = []
    for method, trajectory in trajectories.items():
        if trajectory.task_id != task.task_id:
            raise ValueError(f"{method} worked on task {trajectory.task_id}, not on {task.task_id}")
        # A trajectory does not repeat what it was asked for.
        bubbles = [Bubble("answer", "User", task.instruction), *converse(trajectory, products, MAX_TEXT)]
        profile = (profiles or {}).get(method, "")
        episodes.append((method, profile, bubbles, describe_outcome(trajectory)))
    template = files("pwagents.results").joinpath("trajectory.html").read_text("utf-8")
    return HTML(Template(template, autoescape=True).render(task=task, episodes=episodes))


def draw_episode(instruction: str, trajectory: Trajectory, title: str) -> str:
    """Draw an episode of questions and searches as SVG.

    It is for a page that shows images and no HTML. Bold are the words of a query that come from the history
    alone; a star marks the target. Products and questions beyond the first few are left out, the questions
    counted in a line.

    Args:
        title: below the picture, and what is read aloud in its place.

    Returns:
        The text of an SVG file.
    """
    from jinja2 import Template

    parts, spoken, profile = [("user", "User", [instruction], set())], instruction, ""
    n_asked, n_shown = sum(step.action.name == "respond" for step in trajectory.steps), 0
    for step in trajectory.steps:
        action, answer = step.action, step.observation
        if action.name == "respond":
            spoken += f" {answer.text}"
            n_shown += 1
            if n_shown <= DRAWN_QUESTIONS:
                parts.append(("agent", "Agent asks", [action.arguments["content"]], set()))
                parts.append(("user", "User answers", [answer.text], set()))
            if n_shown == DRAWN_QUESTIONS < n_asked:
                rest = n_asked - DRAWN_QUESTIONS
                parts.append(("agent", f"and {rest} more question{'s' * (rest > 1)}", [], set()))
        elif action.name == "search_product_by_query":
            query = action.arguments["query"]
            known = re.findall(r"\w+", " ".join(re.findall(r"\[history\] (.*)", profile)).lower())
            bold = {word for word in query.split() if word.lower() in known and word not in spoken.lower()}
            parts.append(("agent", "Agent searches (bold: from the user's history)", [query], bold))
            # A line is "1. B0QAFAQA Stonegate sun hat, navy ($52.99, 4.5 stars)".
            shown = list(zip(answer.text.splitlines(), answer.products, strict=False))[:DRAWN_PRODUCTS]
            names = {asin: line.replace(f"{asin} ", "").rpartition(" (")[0] for line, asin in shown}
            texts = [
                name + " \N{BLACK STAR} wanted" * (asin == trajectory.target) for asin, name in names.items()
            ]
            parts.append(("user", "Shop", texts, {"\N{BLACK STAR}", "wanted"}))
        profile = step.profile or profile

    # Boxes lie below each other; lines are wrapped by characters, for an SVG has no wrapping of its own.
    boxes, top = [], 18
    for kind, who, texts, bold in parts:
        lines = [line for text in texts for line in wrap(text, 38)]
        boxes.append({"kind": kind, "who": who, "lines": lines, "bold": bold, "top": top})
        top += 66 + 33 * len(lines)
    template = files("pwagents.results").joinpath("episode.svg").read_text("utf-8")
    return Template(template, autoescape=True, trim_blocks=True).render(
        boxes=boxes, title=title, height=top + 42
    )


def describe_outcome(trajectory: Trajectory) -> str:
    """Describe an episode's outcome in one line, with the reason if it failed."""
    grades = grade(trajectory)
    failure = FAILURES.get(trajectory.end)
    reason = f"{failure} ({_shorten(trajectory.message, MAX_TEXT)}); " if failure else ""
    return (
        f"{reason}{grades.steps} steps, {grades.attempts} attempts; function accuracy "
        f"{grades.function_accuracy:.0f}, result accuracy {grades.result_official:.2f} at best, "
        f"{grades.result_final:.2f} in the end"
    )


def _shorten(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
