"""A small shop as a set of tasks, and an agent that acts on what it is told alone."""

import re

import pytest

from pwagents.adapters.core import TaskSet
from pwagents.agents.chat_agent import Setup
from pwagents.agents.methods import METHODS
from pwagents.agents.plain import FunctionClassifier, OfflinePolicy, plain_arguments
from pwagents.evaluation.metrics import grade
from pwagents.schema import Action
from pwagents.users.rules import RuleUser
from pwagents.web.environment import WebEnvironment, run_episode
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine


class FirstOnes:
    """Stands in for SASRec: recommends what it is given."""

    def recommend(self, product_sequence, k=10):
        return product_sequence[-k:]


class WordOverlap:
    """Stands in for MiniLM: the share of words in common."""

    def cosine(self, text, other):
        a, b = set(text.lower().split()), set(other.lower().split())
        return len(a & b) / len(a | b)


@pytest.fixture(scope="session")
def shop(benchmark):
    return Shop(benchmark, build_search_engine(benchmark.products), FirstOnes(), WordOverlap(), "compact")


@pytest.fixture(scope="session")
def classifier(benchmark):
    return FunctionClassifier(benchmark.tasks["train"])


@pytest.fixture(scope="session")
def task_set(benchmark, shop, classifier):
    user = RuleUser(benchmark.products)
    chosen = [t for t in benchmark.tasks["test"] if t.type != "review" or t.review.text.strip()][:18]
    assert {task.type for task in chosen} == {"search", "recommend", "review"}

    def start(task):
        environment = WebEnvironment(shop, "multi_turn", user)
        environment.reset(task, benchmark.history(task, "test"))
        return environment

    teller = METHODS["Last memory"](Setup(OfflinePolicy(classifier), benchmark.products, length=4))
    return TaskSet({task.task_id: task for task in chosen}, start, teller)


@pytest.fixture(scope="session")
def greedy(classifier):
    """``greedy(text, answers)``: the next call, from what ``reset`` told and what came back since."""

    def act(text, answers):
        if answers:
            return "stop", {}
        (instruction,) = re.findall(r"^User \S+: (.*)$", text, re.MULTILINE)
        bought = re.findall(r"^  Title: (.*)\n  Id: (\S+)\n", text, re.MULTILINE)
        reviews = re.findall(r"^  The user's review: (.*)$", text, re.MULTILINE)
        entries = [
            {"title": title, "store": "", "parent_asin": asin, "text": review, "timestamp": -i}
            for i, ((title, asin), review) in enumerate(zip(bought, reviews, strict=True))
        ]
        function = classifier(instruction)
        return function, plain_arguments(function, instruction, entries)

    return act


@pytest.fixture(scope="session")
def rewards(task_set, benchmark, greedy):
    """What the greedy agent earns on each task as the runner plays it, without any adapter."""

    def agent(state):
        system, request = task_set.teller.messages(state)[:2]
        answers = [step.observation.text for step in state.session]
        name, arguments = greedy(f"{system['content']}\n\n{request['content']}", answers)
        return Action(name=name, arguments=arguments)

    earned = {}
    for task in task_set.tasks.values():
        environment = task_set.start(task)
        earned[task.task_id] = grade(
            run_episode(environment, task, benchmark.history(task, "test"), agent)
        ).result_final
    assert len(set(earned.values())) > 3
    return earned
