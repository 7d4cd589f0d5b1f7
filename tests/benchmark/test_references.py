"""What needs no method."""

from dataclasses import replace

import pandas as pd
import pytest

from pwagents.embedding import Embedder
from pwagents_old.benchmark import references


@pytest.fixture(scope="module")
def frame(world, engine):
    return references.product_references(world.benchmark, engine, world.benchmark.tasks["test"], seed=0)


def test_references_go_from_chance_to_knowing_the_answer(frame):
    methods = frame.groupby("type")["method"].unique().map(set)
    assert methods["search"] == {"random", "popularity", "instruction alone", "content words alone", "oracle"}
    assert methods["recommend"] == {"random", "popularity", "repeat", "oracle"}
    by_type = frame.set_index(["type", "method"])["result_accuracy"].groupby(level=[0, 1]).mean()
    assert by_type["search", "random"] < 0.05 and by_type["search", "oracle"] > 0.95
    assert by_type["recommend", "repeat"] > by_type["recommend", "popularity"]


def test_popular_is_what_was_bought_most_by_strangers_too(world):
    asins = sorted(world.benchmark.products)[:12]
    bought = tuple((1, asin) for asin in asins for _ in range(1000 * (asin in asins[2:]) + 1))
    among_strangers = replace(world.benchmark, population={"P1": bought, "P2": ((3, asins[0]),) * 5000})
    assert references.popular_products(among_strangers, {2}) == {2: asins[2:]}
    assert references.popular_products(among_strangers, {4})[4][0] == asins[0]


def test_review_references_go_from_any_review_to_the_real_one(world):
    tasks = [task for task in world.benchmark.tasks["test"] if task.type == "review"][:30]
    frame = references.review_references(world.benchmark, Embedder(), tasks, seed=0)
    frame = frame.groupby("method")["result_accuracy"].mean()
    assert frame["oracle"] == pytest.approx(1.0)
    assert 0 < frame["random"] < frame["same product"] < 1


class Echo:
    """Recommends what it was given, latest first."""

    def recommend(self, product_sequence, k=10):
        return list(dict.fromkeys(reversed(product_sequence)))[:k]


def test_a_recommender_that_repeats_is_worth_the_rule_that_repeats(small, embedder):
    tasks = small.benchmark.tasks["test"]
    answers = references.answer_by_input(small.benchmark, tasks, lambda _: Echo(), embedder, small.truth)
    wide = answers.pivot(index="task_id", columns="method", values="result_accuracy")
    assert wide.shape[1] == 8 and wide.notna().all(axis=None)
    assert (wide[references.WHOLE] == wide[references.AGAIN]).all()
    assert (wide[references.RIGHT] == wide[references.AGAIN_RIGHT]).all()
    new = answers[~answers["bought_before"] & (answers["method"] != references.POPULAR)]
    assert len(new) and not new["hit"].any()  # who only repeats finds nothing new
    table, again = references.worth_of_inputs(answers), answers.groupby("method")["bought_before"].mean()
    parts = again * table["HR@10, bought before"] + (1 - again) * table["HR@10, new"]
    pd.testing.assert_series_equal(parts[table.index], table["HR@10"], check_names=False)
    differences = references.input_differences(answers)
    assert len(differences) == 2 * len(references.COMPARED)
    same = differences[differences["comparison"] == f"{references.WHOLE} - {references.AGAIN}"]
    assert (same["difference"] == 0).all()
