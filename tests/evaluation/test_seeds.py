"""Trainings compared over seeds, by hand."""

import pandas as pd
import pytest

from pwagents.evaluation.seeds import by_seed, means_by_seed, must_exceed, noise_of_seeds, seed_comparisons


def frame_of(rows):
    return pd.DataFrame(rows, columns=["method", "type", "user_id", "task_id", "m"])


def frame(values, type_="search"):
    """Rows of (method, user, task) -> m."""
    return frame_of([(method, type_, user, task, m) for (method, user, task), m in values.items()])


def test_seeds_are_shown_and_are_the_unit_of_the_interval():
    rows = {("m", "u", "a"): 0.0, ("m", "v", "b"): 1.0}, {("m", "u", "a"): 1.0, ("m", "v", "b"): 1.0}
    both = pd.concat([frame(values).assign(seed=seed) for seed, values in enumerate(rows)])
    (row,) = by_seed(means_by_seed(both, "m")).to_dict("records")
    assert (row["seed 0"], row["seed 1"], row["mean"]) == (0.5, 1.0, 0.75)
    assert row["sd"] == pytest.approx(0.5 / 2**0.5)
    # seeds' means .5 and 1: standard error .25, t with 1 degree of freedom reaches beyond all shares
    assert (row["low"], row["high"]) == (0.0, 1.0)
    near = pd.concat([frame({("m", "u", "a"): v}).assign(seed=i) for i, v in enumerate((0.50, 0.52))])
    (row,) = by_seed(means_by_seed(near, "m")).to_dict("records")
    assert row["high"] - row["mean"] == pytest.approx(12.7062 * 0.01, rel=1e-4)


def test_seeds_are_shown_method_by_method_as_they_come_and_each_type_weighs_the_same_in_the_mean():
    searches = frame({(m, "u", "a"): v for m, v in (("z", 0.4), ("a", 0.2))})
    reviews = frame({(m, "u", t): 1.0 for m in "za" for t in ("b", "c")}, "review")
    played = pd.concat([searches, reviews])
    table = by_seed(means_by_seed(pd.concat([played.assign(seed=seed) for seed in (0, 10, 2)]), "m"))
    assert table["method"].tolist() == ["z"] * 3 + ["a"] * 3
    assert table["type"].tolist() == ["search", "review", "mean"] * 2
    assert table["mean"].tolist() == pytest.approx([0.4, 1.0, 0.7, 0.2, 1.0, 0.6])
    assert list(table)[2:5] == ["seed 0", "seed 2", "seed 10"]


def test_the_noise_of_seeds_has_headings_that_are_read():
    both = pd.concat(
        [frame({("m", "u", "a"): 0.5, ("m", "v", "b"): 1.0}).assign(seed=seed) for seed in (0, 1)]
    )
    table = noise_of_seeds(both, "m")
    assert not any("_" in heading for heading in table)
    assert list(table)[:4] == ["method", "type", "seeds", "mean"]
    assert must_exceed(table, "m") == {"search": 0.0}
    others = both.assign(type="review", m=1 - both["m"] * (1 - both["seed"]), task_id="r" + both["task_id"])
    noise = must_exceed(noise_of_seeds(pd.concat([both, others]), "m"), "m")
    assert (
        list(noise) == ["search", "review", "overall"]
        and 0 == noise["search"] < noise["overall"] < noise["review"]
    )
    assert must_exceed(noise_of_seeds(both[both["seed"] == 0], "m"), "m") is None


def test_methods_are_compared_over_seeds_by_type_and_in_the_mean_of_the_types():
    rows = [(m, t, "u", t, v) for m, v in (("a", 0.6), ("b", 0.5)) for t in ("search", "review")]
    rows += [("a", "review", "u", "more", 0.8), ("b", "review", "u", "more", 0.3)]
    seeds = [frame_of(rows).assign(seed=seed, m=lambda f, s=seed: f["m"] * (1 + s)) for seed in (0, 1)]
    table = seed_comparisons(means_by_seed(pd.concat(seeds), "m"), {"a - b": ("a", "b")})
    assert table["task"].tolist() == ["search", "review", "mean"] and set(table["n_seeds"]) == {2}
    # Per seed .1 and .2 of searches, .3 and .6 of reviews, of which there are twice as many.
    assert table["difference"].tolist() == pytest.approx([0.15, 0.45, 0.3])
    more = pd.concat([*seeds, seeds[0][seeds[0]["type"] == "search"].assign(method="c")])
    (row,) = seed_comparisons(means_by_seed(more, "m"), {"a - c": ("a", "c")}).to_dict("records")
    assert (row["task"], row["n_seeds"]) == ("search", 1), "no row where one of the two did not play"
