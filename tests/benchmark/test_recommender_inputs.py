"""What a recommender is given, and how the answers are counted, with one that repeats what it was given."""

from dataclasses import replace

import pandas as pd
import pytest

from pwagents.benchmark import recommender_inputs as inputs
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder


class Echo:
    """Recommends what it was given, latest first."""

    def recommend(self, product_sequence, k=10):
        return list(dict.fromkeys(reversed(product_sequence)))[:k]


@pytest.fixture(scope="module")
def small_world():
    return make_world(WorldConfig(n_users=12, n_products=300), seed=0)


@pytest.fixture(scope="module")
def answered(small_world):
    tasks, embedder = small_world.benchmark.tasks["test"], Embedder(max_tokens=16, batch_size=64)
    return inputs.by_input(small_world.benchmark, tasks, lambda _: Echo(), embedder, small_world.truth)


def test_each_recommend_task_is_answered_from_each_part_of_the_past(answered, small_world):
    asked = [task for task in small_world.benchmark.tasks["test"] if task.type == "recommend"]
    assert set(answered["method"].value_counts()) == {len(asked)} and answered["method"].nunique() == 8


def test_a_recommender_that_repeats_is_worth_the_rule_that_repeats(answered):
    wide = answered.pivot(index="task_id", columns="method", values="result_accuracy")
    assert (wide[inputs.WHOLE] == wide[inputs.AGAIN]).all()
    assert (wide[inputs.RIGHT] == wide[inputs.AGAIN_RIGHT]).all()
    new = answered[~answered["bought_before"] & (answered["method"] != inputs.POPULAR)]
    assert len(new) and not new["hit"].any()  # who only repeats finds nothing new
    known = wide.loc[answered.loc[answered["bought_before"], "task_id"].unique()]
    assert (known[inputs.RIGHT_TYPE] > 0).all()  # ten of a type are more than anybody has


def test_who_has_bought_nothing_is_answered_too(small_world):
    benchmark, embedder = small_world.benchmark, Embedder(max_tokens=16, batch_size=64)
    task = next(task for task in benchmark.tasks["test"] if task.type == "recommend")
    later = tuple(b for b in benchmark.behaviors[task.user_id] if b.timestamp >= task.timestamp)
    new = replace(benchmark, behaviors={**benchmark.behaviors, task.user_id: later}, tasks={"test": (task,)})
    answered = inputs.by_input(new, [task], lambda _: Echo(), embedder, small_world.truth)
    assert not answered.loc[answered["method"] != inputs.POPULAR, "hit"].any()


def test_repeats_and_new_products_stand_apart(answered):
    table = inputs.worth_of_inputs(answered)
    assert list(table.columns) == ["result accuracy", "HR@10", "HR@10, bought before", "HR@10, new"]
    assert list(table.index) == list(answered["method"].unique())
    again = answered.groupby("method")["bought_before"].mean()
    parts = again * table["HR@10, bought before"] + (1 - again) * table["HR@10, new"]
    pd.testing.assert_series_equal(parts[table.index], table["HR@10"], check_names=False)


def test_differences_are_paired_and_without_a_truth_some_are_missing(answered, small_world):
    differences = inputs.input_differences(answered)
    assert len(differences) == 2 * len(inputs.COMPARED)
    same = differences[differences["comparison"] == f"{inputs.WHOLE} - {inputs.AGAIN}"]
    assert (same["difference"] == 0).all()
    tasks, embedder = small_world.benchmark.tasks["test"], Embedder(max_tokens=16, batch_size=64)
    bare = inputs.by_input(small_world.benchmark, tasks, lambda _: Echo(), embedder, None)
    assert inputs.RIGHT not in set(bare["method"])
    assert len(inputs.input_differences(bare)) == 2 * (len(inputs.COMPARED) - 1)
