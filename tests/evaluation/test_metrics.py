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
    [("B000", 1.0), ("B001", 0.9), ("B009", 0.1), ("B010", 0.0), ("none", 0.0), ("B00", 0.0)],
)
def test_rank_accuracy_follows_equation_1_and_part_of_an_id_is_no_hit(target, expected):
    assert rank_accuracy(IDS, target) == pytest.approx(expected)


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


REVIEWS = [step("add_product_review") for _ in range(3)]


@pytest.mark.parametrize(
    ("played", "function", "by_step", "official", "final", "n_attempts"),
    [
        # The best attempt is the official result, the last one the final.
        (
            episode(step(SEARCH, rank=2), step("respond"), step(SEARCH, rank=6), step("stop")),
            1,
            1,
            0.9,
            0.5,
            2,
        ),
        # A function of another task is a step without accuracy.
        (episode(step("get_recommendations_by_history", rank=3), step("stop")), 0, 0, 0, 0, 0),
        (episode(step("stop"), step(SEARCH)), 1, 0.5, 0, 0, 1),  # stop is apt after an attempt alone
        (episode(step(SEARCH), step("stop")), 1, 1, 0, 0, 1),
        (episode(*(step(name, error="wrong") for name in HELPFUL), step("respond")), 0, 1 / 3, 0, 0, 0),
        (episode(), 0, 0, 0, 0, 0),
        # A review is worth its similarity, and nothing below zero.
        (episode(*REVIEWS, type="review", similarities=(-0.2, 0.7, 0.4)), 1, 1, 0.7, 0.4, 3),
        (episode(*REVIEWS), 0, 0, 0, 0, 0),
    ],
)
def test_grades_by_hand(played, function, by_step, official, final, n_attempts):
    result = grade(played)
    assert (result.function_accuracy, result.step_accuracy) == (function, by_step)
    assert (result.result_official, result.result_final) == (official, final)
    assert (result.steps, result.attempts) == (len(played.steps), n_attempts)


@pytest.mark.parametrize("end", ["refused", "error"])
def test_what_was_refused_or_failed_counts_0_throughout(end):
    result = grade(episode(step(SEARCH, rank=1), end=end))
    assert result.model_dump() == dict.fromkeys(result.model_dump(), 0) | {"steps": 1}


ranks, errors = st.integers(0, 11), st.sampled_from(["", "a mistake"])
names = st.sampled_from([SEARCH, *HELPFUL, "add_product_review", "stop", "buy"])
steps = st.lists(
    st.builds(lambda name, rank, error: step(name, rank=rank, error=error), names, ranks, errors), max_size=12
)


@given(steps, steps)
def test_grades_of_any_episode(earlier, later):
    results, before = attempts(episode(*earlier)), grade(episode(*earlier))
    after = grade(episode(*earlier, *later))
    assert len(results) == sum(s.action.name == SEARCH and not s.error for s in earlier)
    assert before.function_accuracy == bool(results)
    assert before.result_official == max([0, *results]) >= before.result_final == [0, *results][-1]
    # What comes later can only raise the official result.
    assert after.result_official >= before.result_official
    assert after.function_accuracy >= before.function_accuracy
    if not attempts(episode(*later)):
        assert after.result_final == before.result_final
    without_stops = [step for step in earlier if step.action.name != "stop"]
    apt = [s for s in without_stops if not s.error and s.action.name in (SEARCH, *HELPFUL)]
    if without_stops:
        assert grade(episode(*without_stops)).step_accuracy == len(apt) / len(without_stops)
