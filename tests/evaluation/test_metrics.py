"""Grades of hand-made episodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.evaluation.metrics import attempts, grade, rank_accuracy
from pwagents.schema import Action, Observation, Step, Trajectory

IDS = [f"B{i:03}" for i in range(12)]
HELPFUL = ("respond", "get_product_details_by_asin")
SEARCH = "search_product_by_query"


def step(name, *, rank=0, error=""):
    """A step whose observation shows the target, B000, at a rank; 0: it does not."""
    shown = [*IDS[1:rank], IDS[0]] if rank else IDS[1:]
    return Step(action=Action(name=name), observation=Observation(text="seen", products=shown), error=error)


def episode(*steps, **fields):
    told = {"task_id": "t", "user_id": "u", "type": "search", "target": "B000"}
    return Trajectory(**told | fields, steps=steps)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("B000", 1.0), ("B001", 0.9), ("B009", 0.1), ("B010", 0.0), ("B011", 0.0), ("none", 0.0)],
)
def test_rank_accuracy_follows_equation_1(target, expected):
    assert rank_accuracy(IDS, target) == pytest.approx(expected)


def test_part_of_an_id_is_no_hit():
    assert rank_accuracy(["B0012", "xB001"], "B001") == 0


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
    result = grade(episode(step(SEARCH, rank=2), step("respond"), step(SEARCH, rank=6), step("stop")))
    assert (result.result_official, result.result_final) == (0.9, 0.5)
    assert (result.function_accuracy, result.step_accuracy) == (1, 1)
    assert (result.steps, result.attempts) == (4, 2)


def test_a_function_of_another_task_is_a_step_without_accuracy():
    result = grade(episode(step("get_recommendations_by_history", rank=3), step("stop")))
    assert (result.function_accuracy, result.step_accuracy) == (0, 0)
    assert (result.result_official, result.result_final, result.attempts) == (0, 0, 0)
    assert result.steps == 2


def test_stop_is_apt_only_after_an_attempt():
    attempt = step(SEARCH)
    assert grade(episode(step("stop"), attempt)).step_accuracy == 0.5
    assert grade(episode(attempt, step("stop"))).step_accuracy == 1


def test_invalid_calls_are_steps_that_are_not_apt():
    result = grade(
        episode(
            step("respond", error="content is missing"),
            step("get_product_details_by_asin"),
            step("respond"),
            step(SEARCH, rank=6),
        )
    )
    assert result.step_accuracy == 0.75
    assert result.result_final == 0.5


def test_an_episode_without_steps_scores_zero():
    result = grade(episode())
    assert (result.function_accuracy, result.step_accuracy, result.result_official, result.steps) == (0,) * 4


def test_a_review_is_worth_its_similarity_and_nothing_below_zero():
    reviews = [step("add_product_review") for _ in range(3)]
    trajectory = episode(*reviews, type="review", similarities=(-0.2, 0.7, 0.4))
    assert attempts(trajectory) == [0.0, 0.7, 0.4]
    result = grade(trajectory)
    assert (result.result_official, result.result_final, result.attempts) == (0.7, 0.4, 3)
    assert attempts(episode(*reviews, similarities=())) == []


ranks = st.integers(0, 11)
attempted = st.builds(lambda rank: step(SEARCH, rank=rank), ranks)
others = st.builds(
    lambda name, rank, error: step(name, rank=rank, error=error),
    st.sampled_from(["respond", "get_product_details_by_asin", "add_product_review", "stop", "buy"]),
    ranks,
    st.sampled_from(["", "a mistake"]),
)
others |= st.builds(lambda rank: step(SEARCH, rank=rank, error="a mistake"), ranks)
steps = st.lists(attempted | others, max_size=12)


@given(steps)
def test_only_attempts_have_results_and_every_call_is_a_step(steps):
    results = attempts(episode(*steps))
    result = grade(episode(*steps))
    assert len(results) == sum(s.action.name == SEARCH and not s.error for s in steps)
    assert (result.steps, result.attempts) == (len(steps), len(results))
    assert result.function_accuracy == (1 if results else 0)
    assert result.result_official == max([0, *results]) >= result.result_final == [0, *results][-1]


@given(steps, steps)
def test_what_comes_later_can_only_raise_the_official_result(earlier, later):
    before, after = grade(episode(*earlier)), grade(episode(*earlier, *later))
    assert after.result_official >= before.result_official
    assert after.function_accuracy >= before.function_accuracy
    if not attempts(episode(*later)):
        assert after.result_final == before.result_final


@given(steps)
def test_step_accuracy_is_a_share_of_valid_steps(steps):
    result = grade(episode(*steps))
    valid = sum(not step.error for step in steps)
    assert result.attempts <= round(result.step_accuracy * len(steps), 6) <= valid
    without_stops = [step for step in steps if step.action.name != "stop"]
    helpful = [s for s in without_stops if not s.error and s.action.name in (SEARCH, *HELPFUL)]
    if without_stops:
        assert grade(episode(*without_stops)).step_accuracy == len(helpful) / len(without_stops)
