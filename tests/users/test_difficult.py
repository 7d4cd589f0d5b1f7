"""Users who make it harder: each differs from the cooperative one in a single way, and none leaks."""

import pytest

from pwagents.schema import TASK_TYPES
from pwagents.users.difficult import ImpatientUser, TerseUser, VagueUser, WrongUser
from pwagents.users.facts import find_run
from pwagents.users.leaks import ordinary_questions
from pwagents.users.rules import RuleUser

from .test_rules import LAMP, task


@pytest.fixture(scope="module")
def asked(world_benchmark):
    """(task, question) of every type of task."""
    tasks = [[t for t in world_benchmark.tasks["test"] if t.type == type_][:12] for type_ in TASK_TYPES]
    return [(t, question) for some in tasks for t in some for question in ordinary_questions(t.type)]


def told(user, asked):
    return [user(t, (), question).text for t, question in asked]


def test_terse_says_the_value_alone():
    user = TerseUser({LAMP.parent_asin: LAMP})
    assert user(task(), (), "Which colour?").text == "navy"
    assert user(task(), (), "What is your budget?").text == "around 35 dollars, so something premium"


def test_vague_holds_back_half_of_what_it_knows_and_nothing_else(world_benchmark, asked):
    cooperative, vague = RuleUser(world_benchmark.products), VagueUser(world_benchmark.products)
    pairs = list(zip(asked, told(cooperative, asked), told(vague, asked), strict=True))
    knows = [pair for pair in pairs if cooperative.react(pair[0][0], (), pair[0][1])[0] == "tell"]
    held_back = sum(theirs != own for _, theirs, own in knows) / len(knows)
    assert len(knows) > 50 and 0.35 < held_back < 0.65
    assert all(theirs == own for pair in pairs if pair not in knows for _, theirs, own in [pair])


def test_wrong_tells_in_a_tenth_of_the_answers_what_is_not_true(world_benchmark, asked):
    cooperative, wrong = RuleUser(world_benchmark.products), WrongUser(world_benchmark.products)
    n_told = n_wrong = 0
    for t, question in asked:
        manner, fact = cooperative.react(t, (), question)
        said = wrong(t, (), question).text
        if manner != "tell" or t.type == "review":
            assert said == cooperative(t, (), question).text
        else:
            n_told, n_wrong = n_told + 1, n_wrong + (find_run(fact.value, said) is None)
    assert n_told > 50 and 0.02 < n_wrong / n_told < 0.2


def test_impatient_answers_one_question_and_the_next_once_it_has_seen_something(exchange):
    user, question = ImpatientUser({LAMP.parent_asin: LAMP}), "Which colour?"
    unknown = (exchange["said"]("What is its title?", user(task(), (), "What is its title?").text),)
    first = user(task(), unknown, question).text
    assert "navy" in first
    session = (*unknown, exchange["said"](question, first))
    assert "aluminum" not in user(task(), session, "What should it be made of?").text
    shown = (*session, exchange["shown"]("B0OTHER001"))
    assert "aluminum" in user(task(), shown, "What should it be made of?").text
    assert "lamp" in user(task(), shown, "Here you are.").text  # a hint


@pytest.mark.parametrize("kind", [TerseUser, VagueUser, WrongUser, ImpatientUser])
def test_nothing_leaks_and_the_seed_decides(kind, world_benchmark, asked, is_leak):
    said = told(kind(world_benchmark.products, seed=1), asked)
    assert said == told(kind(world_benchmark.products, seed=1), asked)
    products = [world_benchmark.products[t.target] for t, _ in asked]
    assert not [text for text, product in zip(said, products, strict=True) if is_leak(text, product)]
