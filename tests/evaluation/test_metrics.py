"""Grades of hand-made episodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.evaluation.metrics import grade
from pwagents.schema import Action, Observation, Step, Trajectory
from pwagents.web.reward import rank_accuracy


def step(name, *, attempt=False, accuracy=0.0, error=""):
    return Step(
        action=Action(name=name),
        observation=Observation(text="seen"),
        error=error,
        attempt=attempt,
        result_accuracy=accuracy,
    )


def episode(*steps):
    return Trajectory(task_id="t", user_id="u", type="search", steps=steps)


IDS = [f"B{i:03}" for i in range(12)]


@pytest.mark.parametrize(
    ("target", "expected"),
    [("B000", 1.0), ("B001", 0.9), ("B009", 0.1), ("B010", 0.0), ("B011", 0.0), ("none", 0.0)],
)
def test_rank_accuracy_follows_equation_1(target, expected):
    assert rank_accuracy(IDS, target) == pytest.approx(expected)


def test_part_of_an_id_is_no_hit():
    assert rank_accuracy(["B0012", "xB001"], "B001") == 0


def test_an_id_that_occurs_twice_counts_where_it_is_first():
    assert rank_accuracy(["a", "b", "b"], "b") == pytest.approx(0.9)


def test_empty_result_list():
    assert rank_accuracy([], "a") == 0


@given(st.lists(st.text(max_size=3), max_size=15), st.text(max_size=3))
def test_rank_accuracy_is_a_tenth_step_and_positive_only_for_hits(products, target):
    value = rank_accuracy(products, target)
    assert value * 10 == pytest.approx(round(value * 10))
    assert value >= 0
    assert (value > 0) == (target in products[:10])


def test_official_takes_the_best_attempt_and_final_the_last():
    result = grade(
        episode(
            step("search_product_by_query", attempt=True, accuracy=0.9),
            step("respond"),
            step("search_product_by_query", attempt=True, accuracy=0.3),
            step("stop"),
        )
    )
    assert (result.result_official, result.result_final) == (0.9, 0.3)
    assert (result.function_accuracy, result.step_accuracy) == (1, 1)
    assert (result.steps, result.attempts) == (4, 2)


def test_a_function_of_another_task_is_a_step_without_accuracy():
    result = grade(episode(step("get_recommendations_by_history", accuracy=0.8), step("stop")))
    assert (result.function_accuracy, result.step_accuracy) == (0, 0)
    assert (result.result_official, result.result_final, result.attempts) == (0, 0, 0)
    assert result.steps == 2


def test_stop_is_apt_only_after_an_attempt():
    attempt = step("search_product_by_query", attempt=True)
    assert grade(episode(step("stop"), attempt)).step_accuracy == 0.5
    assert grade(episode(attempt, step("stop"))).step_accuracy == 1


def test_invalid_calls_are_steps_that_are_not_apt():
    result = grade(
        episode(
            step("respond", error="content is missing"),
            step("get_product_details_by_asin"),
            step("respond"),
            step("search_product_by_query", attempt=True, accuracy=0.4),
        )
    )
    assert result.step_accuracy == 0.75
    assert result.result_final == 0.4


def test_an_episode_without_steps_scores_zero():
    result = grade(episode())
    assert (result.function_accuracy, result.step_accuracy, result.result_official, result.steps) == (0,) * 4
