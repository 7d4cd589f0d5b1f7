"""Users who make it harder: each differs from the cooperative one in a single way, and none leaks."""

import pytest

from pwagents.schema import TASK_TYPES
from pwagents.users.leaks import ordinary_questions
from pwagents.users.rules import DIFFICULT, ImpatientUser, RuleUser, TerseUser, VagueUser, WrongUser, find_run

from .conftest import LAMP, is_leak, lamp_task, results, talk


@pytest.fixture(scope="module")
def asked(world_benchmark):
    """(task, question) of every type of task."""
    tasks = [[t for t in world_benchmark.tasks["test"] if t.type == type_][:12] for type_ in TASK_TYPES]
    return [(t, question) for some in tasks for t in some for question in ordinary_questions(t.type)]


def test_terse_says_the_value_alone():
    user = TerseUser({LAMP.parent_asin: LAMP})
    assert user(lamp_task(), (), "Which colour?").text == "navy"
    assert user(lamp_task(), (), "What is your budget?").text == "around 35 dollars, so something premium"


def test_vague_holds_back_half_of_what_it_knows_and_nothing_else(world_benchmark, asked):
    cooperative, vague = RuleUser(world_benchmark.products), VagueUser(world_benchmark.products)
    withheld = []
    for task, question in asked:
        same = cooperative(task, (), question) == vague(task, (), question)
        if cooperative.react(task, (), question)[0] == "tell":
            withheld.append(not same)
        else:
            assert same
    assert len(withheld) > 50 and 0.35 < sum(withheld) / len(withheld) < 0.65


def test_wrong_tells_in_a_tenth_of_the_answers_what_is_not_true(world_benchmark, asked):
    cooperative, wrong = RuleUser(world_benchmark.products), WrongUser(world_benchmark.products)
    is_wrong = []
    for task, question in asked:
        manner, fact = cooperative.react(task, (), question)
        text = wrong(task, (), question).text
        if manner != "tell" or task.type == "review":
            assert text == cooperative(task, (), question).text
        else:
            is_wrong.append(find_run(fact.value, text) is None)
    assert len(is_wrong) > 50 and 0.02 < sum(is_wrong) / len(is_wrong) < 0.2


def test_impatient_answers_one_question_and_the_next_once_it_has_seen_something():
    user, question, material = ImpatientUser({LAMP.parent_asin: LAMP}), "Which colour?", "What is it made of?"

    def says(text, *session):
        return user(lamp_task(), session, text).text

    unknown = talk("What is its title?", says("What is its title?"))
    first = says(question, unknown)
    assert "navy" in first
    session = (unknown, talk(question, first))
    assert "aluminum" not in says(material, *session)
    assert "aluminum" in says(material, *session, results("B0OTHER001"))
    assert "lamp" in says("Here you are.", *session, results("B0OTHER001"))  # a hint


@pytest.mark.parametrize("kind", DIFFICULT.values())
def test_nothing_leaks_and_the_seed_decides(kind, world_benchmark, asked):
    products = world_benchmark.products
    first, again = kind(products, seed=1), kind(products, seed=1)
    for task, question in asked:
        text = first(task, (), question).text
        assert text == again(task, (), question).text and not is_leak(text, products[task.target])
