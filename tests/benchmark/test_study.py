"""Floors, ceilings and the hardness of the embedded world, and the tables made of them."""

import pandas as pd
import pytest

from pwagents.benchmark import bounds, describe
from pwagents.benchmark.hardness import RUNGS, knowledge_gains, search_ladder
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.evaluation import breakdowns as benchmark_tables
from pwagents.evaluation.records import EpisodeRecord
from pwagents.schema import TASK_TYPES, Action, Observation, Step, Trajectory
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


def frame_of(rows):
    return pd.DataFrame(rows, columns=["method", "type", "user_id", "task_id", "m"])


def test_by_task_has_a_column_for_each_task_and_overall():
    rows = [("a", "search", "u1", "1", 1.0), ("a", "search", "u2", "2", 0.0), ("a", "review", "u1", "3", 0.5)]
    values, cells = benchmark_tables.by_task(frame_of(rows), {"m": "metric"})
    assert values.loc["a", ("search", "metric")] == 0.5 and values.loc["a", ("overall", "metric")] == 0.5
    assert pd.isna(values.loc["a", ("recommend", "metric")])
    assert cells.loc["a", ("search", "metric")].startswith("0.500 ±")


def test_no_overall_for_a_method_that_covers_fewer_tasks():
    rows = [("a", "search", "u", "1", 1.0), ("a", "review", "u", "2", 0.0), ("b", "search", "u", "1", 1.0)]
    values, _ = benchmark_tables.by_task(frame_of(rows), {"m": "metric"})
    assert values.loc["a", ("overall", "metric")] == 0.5 and pd.isna(values.loc["b", ("overall", "metric")])


def test_in_order_keeps_methods_and_sorts_tasks():
    rows = [("b", "review", "u", "1", 0), ("a", "search", "u", "2", 0), ("b", "search", "u", "3", 0)]
    ordered = benchmark_tables.in_order(frame_of(rows))
    assert list(ordered["task_id"]) == ["3", "1", "2"]


def test_sample_tasks_is_seeded_and_keeps_order(world):
    tasks = world.benchmark.tasks["test"]
    sample = benchmark_tables.sample_tasks(tasks, 20, seed=1)
    assert len(sample) == 20 == len({t.task_id for t in sample})
    assert sample == benchmark_tables.sample_tasks(tasks, 20, seed=1) == [t for t in tasks if t in sample]
    assert sample != benchmark_tables.sample_tasks(tasks, 20, seed=2)
    for all_of_them in (0, 10**6):
        assert benchmark_tables.sample_tasks(tasks, all_of_them, seed=1) == list(tasks)


def test_breakdowns_and_ranks(world):
    benchmark = world.benchmark
    tasks = {task.type: task for task in benchmark.tasks["test"]}

    def record(task, products):
        name = "search_product_by_query"
        shown = Observation(text="", products=products)
        step = Step(action=Action(name=name), observation=shown, attempt=True)
        fields = {"task_id": task.task_id, "user_id": task.user_id, "type": task.type}
        trajectory = Trajectory(**fields, steps=(step,))
        run = {
            "key": task.task_id,
            "method": "m",
            "model": "none",
            "params": {},
            "outcome": "scored",
            "seconds": 0,
        }
        return EpisodeRecord(**fields, **run, trajectory=trajectory)

    records = [record(tasks["search"], ("x", tasks["search"].target)), record(tasks["recommend"], ("x",))]
    ranks = benchmark_tables.target_ranks(records, benchmark).set_index(["type", "rank"])["share"]
    assert ranks["search", "2"] == 1 and ranks["recommend", "not shown"] == 1 and ranks.sum() == 2

    frame = frame_of([("m", t, tasks[t].user_id, tasks[t].task_id, 1.0) for t in TASK_TYPES])
    detailed = benchmark_tables.with_breakdowns(frame, benchmark).set_index("type")
    task = tasks["search"]
    assert detailed.loc["search", "category"] == benchmark.products[task.target].category
    low, *high = detailed.loc["search", "history"].replace(" and more", "-9999").split("-")
    assert int(low) <= len(benchmark.history(task, "test")) <= int(high[0])
