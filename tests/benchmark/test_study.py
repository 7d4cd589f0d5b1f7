"""Floors, ceilings and the hardness of the embedded world."""

import pytest

from pwagents.benchmark import bounds, describe
from pwagents.benchmark.hardness import RUNGS, knowledge_gains, search_ladder
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.web.search import build_search_engine

CONFIG = {"n_users": 60, "n_products": 1200, "history": (10, 40)}


@pytest.fixture(scope="module")
def world():
    return make_world(WorldConfig(**CONFIG), seed=0)


@pytest.fixture(scope="module")
def engine(world):
    return build_search_engine(world.benchmark.products)


def means(frame):
    return frame.groupby("method")["result_accuracy"].mean()


def test_each_rung_of_the_ladder_stands_higher_and_the_floor_is_far_from_the_ceiling(world, engine):
    ladder = means(search_ladder(world, engine, world.benchmark.tasks["test"], seed=0))
    assert set(ladder.index) == set(RUNGS)
    assert max(ladder["random"], ladder["popularity"]) < 0.1 < 0.95 < ladder["oracle query"]
    assert ladder["instruction alone"] + 0.1 < ladder["+ right interest, up to date"]
    assert ladder["+ averaged profile"] + 0.1 < ladder["+ right interest, up to date"]
    assert ladder["+ right interest, up to date"] < ladder["+ the user's answers"]


def test_negative_controls_gain_exactly_nothing():
    knobs = {
        "configured": {},
        "one interest": {"interests": (1, 1)},
        "no drift": {"drift": 0.0},
        "complete": {"completeness": 1.0},
    }
    gains = knowledge_gains(CONFIG, knobs, seed=0).set_index(["world", "knowledge"])["gain"]
    assert (gains["configured"] > 0.05).all()
    assert gains["one interest", "knowing the right interest"] == 0
    assert gains["no drift", "updating the profile"] == 0
    assert gains["complete", "asking the user"] == 0
    assert gains["one interest", "asking the user"] > 0.05 and gains["no drift", "asking the user"] > 0.05


def test_product_bounds_have_floor_and_ceiling_of_their_task(world, engine):
    frame = bounds.product_bounds(world.benchmark, engine, world.benchmark.tasks["test"], seed=0)
    methods = frame.groupby("type")["method"].unique().map(set)
    assert methods["search"] == {"random", "popularity", "instruction alone", "oracle"}
    assert methods["recommend"] == {"random", "popularity", "repeat", "oracle"}
    by_type = frame.set_index(["type", "method"])["result_accuracy"].groupby(level=[0, 1]).mean()
    assert by_type["search", "random"] < 0.05 and by_type["search", "oracle"] > 0.95
    assert by_type["recommend", "repeat"] > by_type["recommend", "popularity"]


def test_recommendation_ceiling_counts_targets_bought_in_the_train_period(world, engine):
    benchmark = world.benchmark
    frame = bounds.product_bounds(benchmark, engine, benchmark.tasks["test"], seed=0)
    bought = {b.parent_asin for user in benchmark.behaviors for b in benchmark.train_period(user)}
    targets = {task.task_id: task.target for task in benchmark.tasks["test"]}
    oracle = frame[(frame["method"] == "oracle") & (frame["type"] == "recommend")]
    assert list(oracle["result_accuracy"]) == [float(targets[t] in bought) for t in oracle["task_id"]]


def test_review_bounds(world):
    tasks = [task for task in world.benchmark.tasks["test"] if task.type == "review"][:30]
    frame = means(bounds.review_bounds(world.benchmark, Embedder(), tasks, seed=0))
    assert frame["oracle"] == pytest.approx(1.0)
    assert 0 < frame["random"] < frame["same product"] < 1


def test_statistics_count_what_an_agent_may_see(world):
    benchmark = world.benchmark
    table = describe.benchmark_statistics(benchmark)
    lengths = [len(benchmark.train_period(user)) for user in {t.user_id for t in benchmark.tasks["test"]}]
    assert table.loc["Avg. behavior length", "test"] == pytest.approx(sum(lengths) / len(lengths))
    assert table.loc["Avg. behavior length", "train"] < table.loc["Avg. behavior length", "test"]
    assert table.loc["Instructions", "test"] == len(benchmark.tasks["test"])
    instructions = describe.instruction_statistics(benchmark).set_index("task")
    assert instructions["instructions"].sum() == len(list(benchmark.all_tasks()))
    assert instructions["mean_tokens"].idxmin() == "recommend"


def test_history_table_ends_with_the_latest_behaviour(world):
    user = next(iter(world.benchmark.behaviors))
    table = describe.history_table(world.benchmark, user, 3)
    assert list(table["review"]) == [b.review.text for b in world.benchmark.train_period(user)[-3:]]
