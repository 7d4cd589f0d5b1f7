"""What needs no method."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pwagents.embedding import Embedder
from pwagents.results import references


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


def test_a_recommender_that_repeats_equals_the_rule_that_repeats(small):
    tasks, shop = small.benchmark.tasks["test"], SimpleNamespace(benchmark=small.benchmark)
    shop.recommender = lambda task: Echo()
    answers = references.recommend_by_input(shop, tasks, Embedder(), small.truth)
    wide = answers.pivot(index="task_id", columns="method", values="result_accuracy")
    assert wide.shape[1] == 8 and wide.notna().all(axis=None)
    assert (wide["whole history"] == wide["rule: own latest purchases"]).all()
    assert (wide["right interest"] == wide["rule: own latest of the right interest"]).all()
    new = answers[~answers["bought_before"] & (answers["method"] != "rule: the most popular")]
    assert len(new) and not new["hit"].any()  # who only repeats finds nothing new


def test_results_stand_between_the_references_and_the_oracle(small, engine):
    tasks = [task for task in small.benchmark.tasks["test"] if task.type == "recommend"]
    around = references.product_references(small.benchmark, engine, tasks, seed=0)
    results = around[around["method"] == "repeat"].assign(method="ours")
    results = results.rename(columns={"result_accuracy": "result_official"})
    both = references.with_references(results, around)
    named = [f"Reference: {name}" for name in ("random", "popularity", "repeat")]
    assert list(both["method"].unique()) == [*named, "ours", "Reference: oracle"]
