"""A small shop as a set of tasks, and an agent that acts on what it is told alone."""

import re

import pytest

from pwagents.adapters import TaskSet
from pwagents.agents.chat import Setup
from pwagents.agents.methods import METHODS
from pwagents.schema import Action
from pwagents.shop.environment import Environment, Shop
from pwagents.shop.score import grade
from pwagents.shop.search import build_search_engine
from pwagents.users.rules import RuleUser

from ..shop.conftest import WordOverlap


@pytest.fixture(scope="session")
def task_set(benchmark):
    shop = Shop(benchmark, build_search_engine(benchmark.products), None, WordOverlap(), "compact")
    user = RuleUser(benchmark.products)
    tasks = {t.task_id: t for t in benchmark.tasks["test"][:18]}
    assert {task.type for task in tasks.values()} == {"search", "recommend", "review"}

    def start(task):
        return Environment(shop, task, "multi_turn", user=user)

    return TaskSet(tasks, start, METHODS["Last memory"](Setup(None, benchmark.products, length=4)))


def greedy(text, answers):
    """The next call, from what ``reset`` told and what came back since: writes or searches, then stops."""
    if answers:
        return "stop", {}
    (instruction,) = re.findall(r"^User \S+: (.*)$", text, re.MULTILINE)
    is_review = "The product:" in text.split(instruction)[1]
    if is_review:
        return "add_product_review", {"review": instruction}
    return "search_product_by_query", {"query": instruction}


def play_greedily(text, step):
    """Play an episode that begins with ``text``; ``step(*call)`` returns an answer, and whether it ended."""
    answers, done = [], False
    while not done:
        answer, done = step(*greedy(text, answers))
        answers.append(answer)


@pytest.fixture(scope="session")
def rewards(task_set):
    """What the greedy agent earns on each task as the runner plays it, without any adapter."""

    def agent(state):
        text = f"User {state.user_id}: {state.instruction}" + "\n\nThe product:" * (state.product is not None)
        name, arguments = greedy(text, [step.observation.text for step in state.session])
        return Action(name=name, arguments=arguments)

    earned = {}
    for task in task_set.tasks.values():
        earned[task.task_id] = grade(task_set.start(task).play(agent)).result_final
    assert len(set(earned.values())) > 3
    return earned
