"""Intervals and tests against hand-computed cases, scipy where users have one task, and a simulation."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pwagents.evaluation.seeds import noise_floor, over_seeds
from pwagents.evaluation.statistics import mean_interval, paired_gains, paired_test, summarise

values_and_users = st.lists(
    st.tuples(st.floats(0, 1, width=16), st.sampled_from("abcd")), min_size=2, max_size=30
)


def frame_of(rows):
    return pd.DataFrame(rows, columns=["method", "task_id", "user_id", "accuracy"])


def test_interval_by_hand():
    # Residuals from 2/3 sum to -1/3 in user a and 1/3 in b: variance 2 * (1/9 + 1/9) / 9 = 4/81.
    interval = mean_interval([1, 0, 1], ["a", "a", "b"])
    half = stats.t.ppf(0.975, 1) * 2 / 9
    assert interval == pytest.approx((2 / 3, 2 / 3 - half, 2 / 3 + half))


def test_one_task_a_user_is_the_classical_interval():
    values = np.random.default_rng(0).random(12)
    expected = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert mean_interval(values, range(12))[1:] == pytest.approx(expected)


def test_one_user_has_no_interval():
    mean, low, high = mean_interval([0, 1], ["a", "a"])
    assert mean == 0.5 and np.isnan(low) and np.isnan(high)


def test_no_values():
    assert np.isnan(mean_interval([], [])).all()


@pytest.mark.parametrize("values", [[0.0, np.nan], [0.0, np.inf], [0.0]])
def test_bad_values_are_refused(values):
    with pytest.raises(ValueError):
        mean_interval(values, ["a", "b"])


@given(values_and_users, st.randoms())
def test_order_does_not_matter(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    assert mean_interval(*zip(*shuffled, strict=True)) == pytest.approx(
        mean_interval(*zip(*pairs, strict=True)), nan_ok=True, abs=1e-9
    )


@given(values_and_users)
def test_repeating_every_task_of_a_user_adds_no_certainty(pairs):
    assert mean_interval(*zip(*(pairs + pairs), strict=True)) == pytest.approx(
        mean_interval(*zip(*pairs, strict=True)), nan_ok=True, abs=1e-9
    )


def test_coverage_is_near_its_level_where_ignoring_users_is_far_off():
    rng = np.random.default_rng(7)
    users = np.repeat(np.arange(30), rng.integers(1, 12, 30))
    hits = naive_hits = 0
    for _ in range(600):
        values = rng.normal(size=30)[users] + rng.normal(size=len(users))
        _, low, high = mean_interval(values, users)
        _, naive_low, naive_high = mean_interval(values, range(len(users)))
        hits += low <= 0 <= high
        naive_hits += naive_low <= 0 <= naive_high
    assert 0.92 <= hits / 600 <= 0.975
    assert naive_hits / 600 < 0.8


def of_two(a, b):
    rows = [("a", f"t{i}", f"u{i}", x) for i, x in enumerate(a)]
    return frame_of(rows + [("b", f"t{i}", f"u{i}", x) for i, x in enumerate(b)])


def test_paired_difference_by_scipy():
    rng = np.random.default_rng(1)
    a, b = rng.random(15), rng.random(15)
    result = paired_test(of_two(a, b), "accuracy", "a", "b")
    assert result.difference == pytest.approx((a - b).mean())
    assert (result.low, result.high) == pytest.approx(stats.ttest_rel(a, b).confidence_interval())
    assert (result.n_tasks, result.n_users, result.n_left_out) == (15, 15, 0)


def test_p_counts_all_combinations_of_users_signs():
    # Four of 100 users differ, by .4, .3, .2 and -.1: of the 16 signed sums, 4 are as far from 0.
    a = [0.4, 0.3, 0.2, 0.0, *[0.5] * 96]
    b = [0.0, 0.0, 0.0, 0.1, *[0.5] * 96]
    signs = list(product((1, -1), repeat=4))
    as_far = sum(abs(np.dot(each, (0.4, 0.3, 0.2, -0.1))) >= 0.8 - 1e-9 for each in signs)
    assert paired_test(of_two(a, b), "accuracy", "a", "b").p == as_far / 16 == 0.25
    assert stats.ttest_rel(a, b).pvalue < 0.15, (
        "a t-test over 100 users takes these few for more than they are"
    )


def test_p_over_many_users_is_close_to_that_of_a_t_test_and_the_same_at_every_call():
    rng = np.random.default_rng(3)
    a = rng.random(200)
    b = a - 0.02 + 0.2 * rng.normal(size=200)
    p = paired_test(of_two(a, b), "accuracy", "a", "b").p
    assert p == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.02)
    assert p == paired_test(of_two(a, b), "accuracy", "a", "b").p


def test_p_flips_users_not_tasks():
    """Three users with twenty tasks each: eight combinations of signs, so p is not below a quarter."""
    rows = [(m, f"u{u}-{t}", f"u{u}", float(m == "a")) for m in "ab" for u in range(3) for t in range(20)]
    assert paired_test(frame_of(rows), "accuracy", "a", "b").p == 0.25


def test_paired_test_averages_seeds_and_counts_what_it_leaves_out():
    rows = [
        ("a", "t1", "u1", 1.0),
        ("a", "t1", "u1", 0.0),
        ("b", "t1", "u1", 0.25),
        ("a", "t2", "u2", 1.0),
        ("b", "t2", "u2", 0.0),
        ("a", "t3", "u3", 1.0),
        ("b", "t3", "u3", np.nan),
    ]
    result = paired_test(frame_of(rows), "accuracy", "a", "b")
    assert result.difference == pytest.approx((0.25 + 1) / 2)
    assert (result.n_tasks, result.n_users, result.n_left_out) == (2, 2, 1)


@pytest.mark.parametrize(("gap", "p"), [(0.0, 1.0), (0.5, 2 / 16)])
def test_paired_test_without_spread(gap, p):
    rows = [(m, f"t{i}", f"u{i}", 0.25 + gap * (m == "a")) for m in "ab" for i in range(4)]
    assert paired_test(frame_of(rows), "accuracy", "a", "b").p == p


def test_paired_test_without_common_tasks_or_with_one_user():
    apart = frame_of([("a", "t1", "u1", 1.0), ("b", "t2", "u2", 0.0)])
    result = paired_test(apart, "accuracy", "a", "b")
    assert np.isnan(result.p) and (result.n_tasks, result.n_left_out) == (0, 2)
    alone = frame_of([(m, t, "u", float(m == t)) for m in "ab" for t in "abc"])
    assert np.isnan(paired_test(alone, "accuracy", "a", "b").p)


def test_paired_test_with_an_unknown_method():
    result = paired_test(frame_of([("a", "t1", "u1", 1.0)]), "accuracy", "a", "unknown")
    assert np.isnan(result.difference) and result.n_tasks == 0


def test_summarise_has_a_row_per_group_and_metric_and_counts_missing():
    frame = frame_of(
        [("b", "t1", "u1", 1.0), ("b", "t2", "u2", 0.0), ("a", "t1", "u1", np.nan), ("b", "t3", "u2", np.nan)]
    )
    summary = summarise(frame, by=["method"], metrics=["accuracy"])
    assert list(summary.columns) == [
        *("method", "metric", "mean", "low", "high", "n_tasks", "n_users", "n_missing")
    ]
    assert summary["method"].tolist() == ["b", "a"]
    first, second = summary.to_dict("records")
    assert (first["mean"], first["n_tasks"], first["n_users"], first["n_missing"]) == (0.5, 2, 2, 1)
    assert (first["mean"], first["low"], first["high"]) == pytest.approx(mean_interval([1, 0], ["u1", "u2"]))
    assert np.isnan(second["mean"]) and (second["n_tasks"], second["n_missing"]) == (0, 1)


def test_intervals_of_shares_stay_within_their_range_and_others_are_as_they_come():
    values = [("a", f"t{i}", f"u{i}", 1.0 - (i == 0)) for i in range(5)]
    values += [("b", f"t{i}", f"u{i}", float(i == 0)) for i in range(5)]
    rows = pd.DataFrame(values, columns=["method", "task_id", "user_id", "result_final"])
    summary = summarise(rows.assign(steps=rows["result_final"]), ["method"], ["result_final", "steps"])
    shares, steps = (summary[summary["metric"] == m].set_index("method") for m in ("result_final", "steps"))
    assert shares.loc["a", "high"] == 1.0 and shares.loc["b", "low"] == 0.0
    assert steps.loc["a", "high"] > 1.0 and steps.loc["b", "low"] < 0.0
    assert shares.loc["a", "low"] == steps.loc["a", "low"]


def of_seeds(a, b, n_tasks=50):
    """Methods a and b with a mean for each seed, over tasks that hardly differ."""
    return pd.DataFrame(
        [
            {"method": m, "seed": s, "task_id": f"t{t}", "user_id": f"u{t}", "score": mean + (-1) ** t * 0.01}
            for m, means in (("a", a), ("b", b))
            for s, mean in enumerate(means)
            for t in range(n_tasks)
        ]
    )


def test_methods_of_training_are_compared_over_seeds_not_over_tasks():
    a, b = (0.874, 0.874, 0.852), (0.737, 0.854, 0.848)
    frame = of_seeds(a, b)
    result, expected = over_seeds(frame, "score", "a", "b"), stats.ttest_rel(a, b)
    assert result.difference == pytest.approx(np.mean(a) - np.mean(b)) and result.n_seeds == 3
    assert result.p == pytest.approx(expected.pvalue) and result.p > 0.3
    assert (result.low, result.high) == pytest.approx(expected.confidence_interval())
    more = over_seeds(of_seeds(a, b, n_tasks=400), "score", "a", "b")
    assert more.p == pytest.approx(result.p), "more tasks make no more seeds"


def test_one_seed_says_nothing_of_the_method():
    result = over_seeds(of_seeds([0.9], [0.1]), "score", "a", "b")
    assert result.difference == pytest.approx(0.8) and result.n_seeds == 1
    assert np.isnan([result.low, result.high, result.p]).all()


def test_summarise_over_everything():
    frame = frame_of([("a", "t1", "u1", 1.0), ("b", "t2", "u2", 0.0)])
    assert summarise(frame, by=[], metrics=["accuracy"])["mean"].tolist() == [0.5]


def test_noise_floor_by_hand():
    values = {0: [0.0, 1.0, 0.5], 1: [0.5, 1.0, 0.0], 2: [0.0, 1.0, 0.5]}
    frame = pd.DataFrame(
        [
            {"method": "m", "seed": seed, "task_id": f"t{i}", "user_id": f"u{i}", "score": value}
            for seed, row in values.items()
            for i, value in enumerate(row)
        ]
    )
    (row,) = noise_floor(frame, "score").to_dict("records")
    assert (row["seeds"], row["mean"], row["sd"], row["largest"]) == (3, pytest.approx(0.5), 0.0, 0.0)
    # differences -.5, 0, .5 of three users: standard error .5 / sqrt(3), t with 2 degrees of freedom
    assert row["must_exceed"] == pytest.approx(4.302653 * 0.5 / 3**0.5, rel=1e-6)


def test_seeds_that_never_differ_have_a_noise_of_zero_without_a_sign():
    frame = of_seeds([0.5, 0.5], [0.5, 0.5])
    assert noise_floor(frame, "score")["must_exceed"].map(str).tolist() == ["0.0", "0.0"]


def test_gains_are_paired_within_each_group_in_the_order_of_appearance():
    rows = [
        (method, added, f"{user}-{added}", user, value)
        for added, values in (
            (2, {"a": (0.6, 0.8), "b": (0.5, 0.5)}),
            (1, {"a": (0.5,) * 2, "b": (0.5,) * 2}),
        )
        for method, pair in values.items()
        for user, value in zip(("u", "v"), pair, strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["method", "added", "task_id", "user_id", "accuracy"])
    gains = paired_gains(frame, "accuracy", "a", "b", by=["added"])
    assert gains["added"].tolist() == [2, 1]
    assert gains["difference"].tolist() == pytest.approx([0.2, 0.0])
    assert gains["n_users"].tolist() == [2, 2]
