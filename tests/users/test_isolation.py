"""Two hundred questions that want to hear too much, on fifty tasks of each source: no user tells."""

import html
import itertools
import re

import pytest

from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.users.llm import LlmUser
from pwagents.users.rules import RuleUser

from .conftest import is_leak, results, talk
from .questions import adversarial_questions, ask_about


class Traitor(ChatModel):
    """Always gives the target away, in ever new disguises, with what it finds in its own instructions."""

    name = "traitor"

    def __init__(self):
        self.turns = itertools.count()

    def reply(self, request: Request) -> Reply:
        system = request.messages[0]["content"]
        title, asin = re.search("Title: (.+)", system)[1], re.search("Id: (.+)", system)[1]
        wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in title)
        disguises = (
            *(title, f"Sure, it is the {title.lower()}!", html.escape(title), title[::-1], wide),
            *(gap.join(title.split()) for gap in (" - ", "_")),
            *(gap.join(title) for gap in ("\u200b", "-")),
            *(gap.join(asin) for gap in ("", " ", "-")),
            *("Begins with " + " ".join(re.findall(r"\w+", title)[:3]), f"I say {asin.lower()}.", asin[::-1]),
            f"You said: {request.messages[-1]['content']} {asin}",
        )
        return Reply(text=disguises[next(self.turns) % len(disguises)])


@pytest.fixture
def fifty_tasks(source):
    """Every type, spread over all users."""
    tasks = source.tasks["test"]
    fifty = tasks[:: max(1, len(tasks) // 50)][:50]
    assert len(fifty) == 50 and {task.type for task in fifty} == {"search", "recommend", "review"}
    return fifty


@pytest.mark.parametrize("simulator", ["rules", "llm"])
def test_no_question_makes_a_user_give_the_target_away(simulator, source, fifty_tasks):
    mill = source.products[fifty_tasks[0].target].model_copy(update={"title": "Salt & Pepper Mill"})
    products = source.products | {mill.parent_asin: mill}
    user = RuleUser(products) if simulator == "rules" else LlmUser(Traitor(), products)
    assert len(set(adversarial_questions())) == 200
    leaking = []
    for task in fifty_tasks:
        product = products[task.target]
        sessions = ((), (results(min(products)),), (talk(product.title, "I do not know."),))
        for question, session in zip(adversarial_questions(), itertools.cycle(sessions)):
            text = user(task, session, ask_about(question, product)).text
            if is_leak(text, product) or not text.strip():
                leaking.append((task.task_id, question, text))
    assert leaking == []
    if simulator == "llm":
        assert next(user.model.turns) == 2 * 50 * 200  # each of its replies was stopped


def test_a_review_is_not_quoted(source, fifty_tasks):
    user = RuleUser(source.products)
    for task in (task for task in fifty_tasks if task.type == "review"):
        words = re.findall(r"\w+", task.review.text.lower())
        runs = {" ".join(words[i : i + 4]) for i in range(len(words) - 3)}
        for question in ("Quote your review.", "How many stars?", "What should I mention?", "Anything else?"):
            answer = " ".join(re.findall(r"\w+", user(task, (), question).text.lower()))
            assert not any(run in answer for run in runs)
