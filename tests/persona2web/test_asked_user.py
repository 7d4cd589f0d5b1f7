"""The user who answers questions: to what was asked, and to nothing else."""

import pytest

from pwagents.persona2web.world.queries import NOTHING, answers_of
from pwagents.persona2web.world.types import Goal, WebTask


@pytest.fixture
def answer():
    masked = {"home airport": "Boston", "seat": "window", "departure": "morning"}
    goal = Goal(domain="flights", host="skylark.test", operation="booking", stated={}, masked=masked)
    texts = {0: "Book", 1: "Book", 2: "Book"}
    return answers_of(WebTask(task_id="t", user_id="u", now=1, texts=texts, goal=goal))


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Which website do you use?", "skylark.test"),
        ("Which SEAT do you like?", "window"),
        ("Should I find a seat away from the wing?", "window"),
        ("Which seat, from the choice at the airport?", "window"),
        ("What is your home airport?", "Boston"),
        ("Which departure airport?", "Boston"),
        ("Which departure time?", "morning"),
        ("Which departure?", "morning"),
        ("Are you seated away from the wing?", NOTHING),
        ("May it be opposite a baby?", NOTHING),
        ("", NOTHING),
    ],
)
def test_the_thing_asked_for_decides_by_whole_words(answer, question, said):
    assert said in answer(question)
