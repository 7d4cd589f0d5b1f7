"""Grades of hand-made episodes; those of any episode, in a real shop, are in tests/shop/test_grader.py."""

import pytest

from pwagents.schema import Action, Observation, Step, Trajectory
from pwagents.shop.score import grade, rank_accuracy

IDS = [f"B{i:03}" for i in range(12)]
ASK, DETAILS, STOP = "respond", "get_product_details_by_asin", "stop"
SEARCH, RECOMMEND, REVIEW = "search_product_by_query", "get_recommendations_by_history", "add_product_review"


def step(name, *, rank=0, error=""):
    """A step whose observation shows the target, B000, at a rank; 0: it does not."""
    shown = [*IDS[1:rank], IDS[0]] if rank else IDS[1:]
    return Step(action=Action(name=name), observation=Observation(text="seen", products=shown), error=error)


def episode(*steps, **fields):
    told = {"task_id": "t", "user_id": "u", "type": "search", "target": "B000"}
    steps = [step(each) if isinstance(each, str) else each for each in steps]
    return Trajectory(**told | fields, steps=steps)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("B000", 1.0), ("B001", 0.9), ("B009", 0.1), ("B010", 0.0), ("none", 0.0), ("B00", 0.0)],
)
def test_rank_accuracy_follows_equation_1_and_part_of_an_id_is_no_hit(target, expected):
    assert rank_accuracy(IDS, target) == pytest.approx(expected)


SECOND, SIXTH = step(SEARCH, rank=2), step(SEARCH, rank=6)
GRADES = {  # episode -> accuracy of function and of steps, official and final result, attempts
    "the best attempt is official, the last final": (episode(SECOND, ASK, SIXTH, STOP), 1, 1, 0.9, 0.5, 2),
    "a function of another task": (episode(step(RECOMMEND, rank=3), STOP), 0, 0, 0, 0, 0),
    "to stop is apt after an attempt alone": (episode(STOP, SEARCH), 1, 0.5, 0, 0, 1),
    "a miss": (episode(SEARCH, STOP), 1, 1, 0, 0, 1),
    "errors": (episode(*(step(name, error="wrong") for name in (ASK, DETAILS)), ASK), 0, 1 / 3, 0, 0, 0),
    "nothing": (episode(), 0, 0, 0, 0, 0),
    "a review is worth its similarity, and nothing below zero": (
        episode(REVIEW, REVIEW, REVIEW, type="review", similarities=(-0.2, 0.7, 0.4)), 1, 1, 0.7, 0.4, 3),
    "reviews where none is asked for": (episode(REVIEW, REVIEW), 0, 0, 0, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("played", GRADES)
def test_grades_by_hand(played):
    played, *expected = GRADES[played]
    result = grade(played)
    assert [result.function_accuracy, result.step_accuracy] == expected[:2]
    assert [result.result_official, result.result_final, result.attempts] == expected[2:]
    assert result.steps == len(played.steps)


@pytest.mark.parametrize("end", ["refused", "error"])
def test_what_was_refused_or_failed_counts_0_throughout(end):
    result = grade(episode(step(SEARCH, rank=1), end=end))
    assert result.model_dump() == dict.fromkeys(result.model_dump(), 0) | {"steps": 1}
