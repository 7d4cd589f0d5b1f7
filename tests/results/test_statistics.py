"""Intervals and tests against statsmodels, scipy and hand-computed cases, over tasks and over seeds."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.api import OLS
from statsmodels.stats.proportion import proportion_confint

from pwagents.results.seeds import (
    by_seed,
    means_by_seed,
    noise_of_seeds,
    seed_comparisons,
    with_mean_of_types,
    world_comparisons,
)
from pwagents.results.statistics import mean_interval, paired_test, share_interval, summarise

value_and_user = st.tuples(st.floats(0, 1, width=16), st.sampled_from("abcd"))


def frame_of(rows):
    return pd.DataFrame(rows, columns=["method", "task_id", "user_id", "accuracy"])


@settings(deadline=None)
@given(st.lists(value_and_user, min_size=2, max_size=30))
def test_the_clustered_interval_is_that_of_statsmodels(pairs):
    values, users = map(np.array, zip(*pairs, strict=True))
    codes, labels = pd.factorize(users)
    mean, low, high = mean_interval(values, users)
    if len(labels) < 2:
        assert mean == pytest.approx(values.mean()) and np.isnan([low, high]).all()
        return
    # Without its factor for the number of parameters, (N - 1) / (N - 1) for a mean.
    cluster = {"groups": codes, "use_correction": True, "df_correction": True}
    fit = OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds=cluster, use_t=True)
    assert (mean, low, high) == pytest.approx((fit.params[0], *fit.conf_int()[0]), abs=1e-12)


def test_bad_values_are_refused():
    for values in ([0.0, np.nan], [0.0, np.inf], [0.0]):
        with pytest.raises(ValueError):
            mean_interval(values, ["a", "b"])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_shares_that_are_all_0_or_all_1_have_wilsons_interval(value):
    expected = proportion_confint(20 * value, 20, method="wilson")
    assert share_interval([value] * 20, range(20)) == pytest.approx((value, *expected))
    frame = frame_of([("m", f"t{i}", f"u{i}", value) for i in range(20)]).assign(reached=value)
    (row,) = summarise(frame, [], ["reached"]).to_dict("records")
    assert (row["low"], row["high"]) == pytest.approx(expected)
    assert share_interval([0.5] * 4, range(4)) == (0.5, 0.5, 0.5), "no share of hits"
    assert np.isnan(share_interval([value] * 5, ["u"] * 5)[1:]).all(), "one user"
    most = [*[("a", f"t{i}", f"u{i}", 1.0 - (i == 0)) for i in range(5)], ("a", "t6", "u6", np.nan)]
    most = frame_of(most).rename(columns={"accuracy": "result_final"})
    (share,) = summarise(most, ["method"], ["result_final"]).to_dict("records")
    assert (share["high"], share["mean"], share["n_tasks"], share["n_missing"]) == (1.0, 0.8, 5, 1)


def of_two(a, b):
    rows = [("a", f"t{i}", f"u{i}", x) for i, x in enumerate(a)]
    return frame_of(rows + [("b", f"t{i}", f"u{i}", x) for i, x in enumerate(b)])


@pytest.mark.parametrize("n", [15, 200])
def test_paired_differences_are_scipys_and_p_over_many_users_is_close_to_a_t_tests(n):
    rng = np.random.default_rng(3)
    a = rng.random(n)
    b = a - 0.02 + 0.2 * rng.normal(size=n)
    result = paired_test(of_two(a, b), "accuracy", "a", "b")
    assert result.difference == pytest.approx((a - b).mean())
    assert (result.low, result.high) == pytest.approx(stats.ttest_rel(a, b).confidence_interval())
    assert result.p == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.02)
    assert result == paired_test(of_two(a, b), "accuracy", "a", "b"), "the same at every call"
    assert (result.n_tasks, result.n_users, result.n_left_out) == (n, n, 0)


def test_p_counts_all_combinations_of_users_signs():
    # Four of 100 users differ, by .4, .3, .2 and -.1: of the 16 signed sums, 4 are as far from 0.
    a = [0.4, 0.3, 0.2, 0.0, *[0.5] * 96]
    b = [0.0, 0.0, 0.0, 0.1, *[0.5] * 96]
    signs = list(product((1, -1), repeat=4))
    as_far = sum(abs(np.dot(each, (0.4, 0.3, 0.2, -0.1))) >= 0.8 - 1e-9 for each in signs)
    assert paired_test(of_two(a, b), "accuracy", "a", "b").p == as_far / 16 == 0.25
    # Three users with twenty tasks each: eight combinations, so p is not below a quarter.
    rows = [(m, f"u{u}-{t}", f"u{u}", float(m == "a")) for m in "ab" for u in range(3) for t in range(20)]
    assert paired_test(frame_of(rows), "accuracy", "a", "b").p == 0.25


def test_paired_test_averages_seeds_and_counts_what_it_leaves_out():
    rows = [("a", "t1", "u1", 1.0), ("a", "t1", "u1", 0.0), ("b", "t1", "u1", 0.25), ("a", "t2", "u2", 1.0)]
    rows += [("b", "t2", "u2", 0.0), ("a", "t3", "u3", 1.0), ("b", "t3", "u3", np.nan)]
    result = paired_test(frame_of(rows), "accuracy", "a", "b")
    assert result.difference == pytest.approx((0.25 + 1) / 2)
    assert (result.n_tasks, result.n_users, result.n_left_out) == (2, 2, 1)


@pytest.mark.parametrize(
    ("rows", "p"),
    [
        ([(m, f"t{i}", f"u{i}", 0.25) for m in "ab" for i in range(4)], 1.0),
        ([(m, f"t{i}", f"u{i}", 0.25 + 0.5 * (m == "a")) for m in "ab" for i in range(4)], 2 / 16),
        ([("a", "t1", "u1", 1.0), ("b", "t2", "u2", 0.0)], np.nan),  # no common task
        ([(m, t, "u", float(m == t)) for m in "ab" for t in "abc"], np.nan),  # one user
        ([("a", "t1", "u1", 1.0)], np.nan),
    ],
)
def test_p_at_the_edges(rows, p):
    assert paired_test(frame_of(rows), "accuracy", "a", "b").p == pytest.approx(p, nan_ok=True)


# Over seeds


def of_seeds(a, b, n_tasks=50):
    """Searches of methods a and b with a mean for each seed, over tasks that hardly differ."""
    return pd.DataFrame(
        [
            {"method": m, "type": "search", "seed": s, "task_id": f"t{t}", "user_id": f"u{t}",
             "m": mean + (-1) ** t * 0.01}
            for m, means in (("a", a), ("b", b))
            for s, mean in enumerate(means)
            for t in range(n_tasks)
        ]
    )  # fmt: skip


def compare(frame):
    return seed_comparisons(means_by_seed(frame, "m"), {"a - b": ("a", "b")})


def test_methods_of_training_are_compared_over_seeds_not_over_tasks():
    a, b = (0.874, 0.874, 0.852), (0.737, 0.854, 0.848)
    (result,) = compare(of_seeds(a, b)).to_dict("records")
    expected = stats.ttest_rel(a, b)
    assert result["difference"] == pytest.approx(np.mean(a) - np.mean(b)) and result["n_seeds"] == 3
    assert result["p"] == pytest.approx(expected.pvalue) and result["p"] > 0.3
    assert (result["low"], result["high"]) == pytest.approx(expected.confidence_interval())
    more = compare(of_seeds(a, b, n_tasks=400))
    assert more["p"][0] == pytest.approx(result["p"]), "more tasks make no more seeds"
    (one,) = compare(of_seeds([0.9], [0.1])).to_dict("records")
    assert one["n_seeds"] == 1 and np.isnan([one["low"], one["high"], one["p"]]).all()
    (alike,) = compare(of_seeds([0.3, 0.4], [0.1, 0.2])).to_dict("records")  # but for a last bit
    assert alike["difference"] == pytest.approx(0.2) and np.isnan(alike["p"])


def test_seeds_are_shown_method_by_method_and_each_type_weighs_the_same_in_the_mean():
    rows = [(m, "search", "u", "a", v) for m, v in (("z", 0.4), ("a", 0.2))]
    rows += [(m, "review", "u", t, 1.0) for m in "za" for t in ("b", "c")]
    played = pd.DataFrame(rows, columns=["method", "type", "user_id", "task_id", "m"])
    table = by_seed(means_by_seed(pd.concat([played.assign(seed=seed) for seed in (0, 10, 2)]), "m"))
    assert table["method"].tolist() == ["z"] * 3 + ["a"] * 3
    assert table["type"].tolist() == ["search", "review", "mean"] * 2
    assert table["mean"].tolist() == pytest.approx([0.4, 1.0, 0.7, 0.2, 1.0, 0.6])
    assert list(table)[2:5] == ["seed 0", "seed 2", "seed 10"] and "n_missing" not in table
    near = played[:1].assign(m=0.50, seed=0), played[:1].assign(m=0.52, seed=1)
    missing = pd.concat([*near, played[:1].assign(m=np.nan, seed=1, task_id="x")])
    (row,) = by_seed(means_by_seed(missing, "m")).to_dict("records")
    assert row["high"] - row["mean"] == pytest.approx(12.7062 * 0.01, rel=1e-4)  # Student's t, 1 degree
    assert row["n_missing"] == 1


def test_the_noise_of_seeds_by_hand():
    values = {0: [0.0, 1.0, 0.5], 1: [0.5, 1.0, 0.0], 2: [0.0, 1.0, 0.5]}
    rows = [("m", "search", s, f"t{i}", f"u{i}", v) for s, row in values.items() for i, v in enumerate(row)]
    frame = pd.DataFrame(rows, columns=["method", "type", "seed", "task_id", "user_id", "m"])
    table = noise_of_seeds(frame, "m")
    assert table.iloc[0, 2:6].tolist() == pytest.approx([3, 0.5, 0.0, 0.0])
    # differences -.5, 0, .5 of three users: standard error .5 / sqrt(3), t with 2 degrees of freedom
    assert table.iloc[0, 6] == pytest.approx(4.302653 * 0.5 / 3**0.5, rel=1e-6)
    assert noise_of_seeds(frame[frame["seed"] == 0], "m").iloc[0, 4:].isna().all()
    both = pd.concat([frame, frame.assign(type="review", task_id="r" + frame["task_id"])])
    assert noise_of_seeds(both, "m")["type"].tolist() == ["search", "review", "overall"]


def test_worlds_are_the_unit_and_within_them_users_are_resampled():
    """The interval over worlds is that of statsmodels on one value a world; that over users is as wide as
    statsmodels' cluster-robust one where there is a single world with many users."""
    random = np.random.default_rng(0)
    rows = [
        (world, f"u{user}", f"t{user}.{i}", method, 0.3 * (method == "a") * gain + random.normal(0, 0.1))
        for world, gain in enumerate(random.normal(1, 0.5, 5))
        for user in range(60)
        for i in range(3)
        for method in "ab"
    ]
    frame = pd.DataFrame(rows, columns=["world", "user_id", "task_id", "method", "m"]).assign(type="search")
    wide = frame.pivot(index=["world", "user_id", "task_id"], columns="method", values="m")
    difference = wide["a"] - wide["b"]
    (row,) = world_comparisons(frame, "m", {"a - b": ("a", "b")}).to_dict("records")
    worlds = OLS(difference.groupby("world").mean().to_numpy(), np.ones(5)).fit()
    expected = (worlds.params[0], *worlds.conf_int()[0], worlds.pvalues[0])
    assert [row[key] for key in ("difference", "low", "high", "p")] == pytest.approx(expected)
    assert row["n_worlds"] == 5 and row["users_high"] - row["users_low"] < (row["high"] - row["low"]) / 2

    alone = difference[0]
    codes = pd.factorize(alone.index.get_level_values("user_id"))[0]
    fit = OLS(alone.to_numpy(), np.ones(len(alone))).fit(cov_type="cluster", cov_kwds={"groups": codes})
    (row,) = world_comparisons(frame[frame["world"] == 0], "m", {"a - b": ("a", "b")}).to_dict("records")
    assert np.isnan([row["low"], row["high"], row["p"]]).all() and row["n_worlds"] == 1
    assert [row["users_low"], row["users_high"]] == pytest.approx(fit.conf_int()[0], abs=0.004)


def test_in_the_mean_over_a_world_each_type_of_task_counts_alike():
    values = {"search": [1.0, 1.0, 0.0, 0.0], "review": [0.2], "recommend": [0.0, 0.6]}
    tasks = [(kind, f"{kind}{i}", value) for kind, own in values.items() for i, value in enumerate(own)]
    rows = [(w, f"u{t}", t, m, kind, v * (m == "a")) for w in (0, 1) for kind, t, v in tasks for m in "ab"]
    frame = pd.DataFrame(rows, columns=["world", "user_id", "task_id", "method", "type", "m"])
    table = world_comparisons(with_mean_of_types(frame, ["m"]), "m", {"a - b": ("a", "b")})
    found = table.set_index("task")["difference"].to_dict()
    assert found == pytest.approx({"search": 0.5, "recommend": 0.3, "review": 0.2, "mean": 1 / 3})
