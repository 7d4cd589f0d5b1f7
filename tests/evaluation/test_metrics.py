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


HELPFUL = ("respond", "get_product_details_by_asin")


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


@given(st.lists(st.sampled_from(IDS), unique=True), st.data())
def test_of_the_list_only_the_place_of_the_target_matters(products, data):
    """A place further down costs a tenth; what follows, and the order of what comes before, nothing."""
    target = data.draw(st.sampled_from(IDS))
    above = products[: products.index(target)] if target in products else products
    shuffled, below = data.draw(st.permutations(above)), data.draw(st.lists(st.sampled_from(IDS)))
    value = rank_accuracy([*shuffled, target, *below], target)
    assert value == (1 - len(above) / 10 if len(above) < 10 else 0)
    lower = rank_accuracy(["other", *shuffled, target, *below], target)
    assert lower == pytest.approx(max(value - 0.1, 0))


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


accuracies = st.floats(0, 1)
attempts = st.builds(lambda a: step("search_product_by_query", attempt=True, accuracy=a), accuracies)
right_or_wrong = st.sampled_from(["", "a mistake"])
others = st.builds(
    lambda name, accuracy, error: step(name, accuracy=accuracy, error=error),
    st.sampled_from(["respond", "get_product_details_by_asin", "add_product_review", "stop", "buy"]),
    accuracies,
    right_or_wrong,
)


@given(st.lists(attempts | others, max_size=12))
def test_only_attempts_have_results_and_every_call_is_a_step(steps):
    results = [step.result_accuracy for step in steps if step.attempt]
    result = grade(episode(*steps))
    assert (result.steps, result.attempts) == (len(steps), len(results))
    assert result.function_accuracy == (1 if results else 0)
    assert result.result_official == max([0, *results]) >= result.result_final == [0, *results][-1]


@given(st.lists(attempts | others, max_size=8), st.lists(attempts | others, max_size=8))
def test_what_comes_later_can_only_raise_the_official_result(earlier, later):
    before, after = grade(episode(*earlier)), grade(episode(*earlier, *later))
    assert after.result_official >= before.result_official
    assert after.function_accuracy >= before.function_accuracy
    if not any(step.attempt for step in later):
        assert after.result_final == before.result_final


@given(st.lists(attempts | others, max_size=12))
def test_step_accuracy_is_a_share_of_valid_steps(steps):
    result = grade(episode(*steps))
    valid = sum(not step.error for step in steps)
    assert result.attempts <= round(result.step_accuracy * len(steps), 6) <= valid
    without_stops = [step for step in steps if step.action.name != "stop"]
    helpful = [s for s in without_stops if s.attempt or (not s.error and s.action.name in HELPFUL)]
    if without_stops:
        assert grade(episode(*without_stops)).step_accuracy == len(helpful) / len(without_stops)
