"""The quality of user simulators is read off their texts."""

import math

import pytest

from pwagents.benchmark.simulators import rule_user_quality, simulator_quality, stated_facts
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.schema import Product, Review, Task
from pwagents.web.environment import UserReply

LAMP = Product(
    parent_asin="B0LAMP0001",
    title="Larkspur Foldable Reading Lamp",
    category="Home and Kitchen",
    store="Larkspur",
    details={"Color": "navy"},
)


def task(task_type="search", rating=4):
    review = Review(rating=rating, text="Sturdy, but the battery dies.")
    return Task(
        task_id=f"t-{task_type}",
        user_id="ann",
        type=task_type,
        timestamp=1,
        instruction="Light!",
        target="B0LAMP0001",
        review=review,
    )


def saying(*texts: str):
    """A simulator that says these texts in turn, one for each call."""
    waiting = list(texts)
    return lambda task, session, says: UserReply(waiting.pop(0))


def quality(questions, **by_seed):
    frame = simulator_quality(by_seed, {"B0LAMP0001": LAMP}, [task()], {"honest": questions})
    return frame.iloc[0].to_dict()


def test_rates_are_shares_of_answers():
    found = quality(
        ["color?", "brand?", "title?", "size?"],
        a=saying("In navy.", "By Larkspur.", "A foldable reading lamp.", "Either is fine."),
        b=saying("Best in navy!", "I do not mind.", "No idea.", "It does not matter."),
    )
    assert found == {
        "questions": "honest",
        "answers": 8,
        "leak rate": 1 / 8,
        "refusal rate": 4 / 8,  # brand? and title? under b, size? under both
        "consistency": 1 / 3,  # of color?, brand? and title? only the first has a fact in common
    }


@pytest.mark.parametrize(
    "by_seed",
    [{"a": saying("In navy.")}, {"a": saying("No idea."), "b": saying("I do not mind.")}],
)
def test_with_one_seed_or_nothing_told_there_is_no_consistency(by_seed):
    assert math.isnan(quality(["color?"], **by_seed)["consistency"])


@pytest.mark.parametrize(
    ("text", "task_type", "facts"),
    [
        ("In navy, for around 20 dollars.", "search", {"navy", "20"}),
        ("In blue, please.", "search", set()),
        ("Mention the battery, four stars.", "review", {"battery", "four"}),
        ("A navy lamp.", "review", set()),
    ],
)
def test_facts_are_words_shared_with_the_page_or_the_review(text, task_type, facts):
    assert stated_facts(text, task(task_type), LAMP) == facts


def test_a_single_star_is_a_fact_too():
    assert stated_facts("It gets one star.", task("review", rating=1), LAMP) == {"one"}


def test_questions_are_filled_with_the_targets_own_id_and_title():
    heard = []

    def user(task, session, says):
        heard.append(says)
        return UserReply("No.")

    quality(["Is it {asin}, {title}?"], a=user)
    assert heard == ["Is it B0LAMP0001, Larkspur Foldable Reading Lamp?"]


def test_the_rule_user_keeps_the_secret_helps_and_says_the_same_twice():
    benchmark = make_world(WorldConfig(n_users=20, n_products=200), seed=0).benchmark
    tasks = [task for task in benchmark.tasks["test"] if task.type == "search"][:10]
    found = rule_user_quality(benchmark, tasks).set_index("questions")
    assert found.loc["honest", "answers"] == 300 and found.loc["adversarial", "answers"] == 6000
    assert (found["leak rate"] == 0).all() and (found["consistency"] == 1).all()
    assert found.loc["honest", "refusal rate"] < 0.4 < 0.8 < found.loc["adversarial", "refusal rate"]
