"""Results broken down by task, category, history and the target's rank."""

import pandas as pd
import pytest

from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.evaluation import breakdowns
from pwagents.evaluation.runner import EpisodeRecord
from pwagents.schema import TASK_TYPES, Action, Observation, Step, Trajectory


@pytest.fixture(scope="module")
def world():
    return make_world(WorldConfig(n_users=60, n_products=1200, history=(10, 40)), seed=0)


def frame_of(rows):
    return pd.DataFrame(rows, columns=["method", "type", "user_id", "task_id", "m"])


def test_by_task_has_a_column_for_each_task_and_overall():
    rows = [("a", "search", "u1", "1", 1.0), ("a", "search", "u2", "2", 0.0), ("a", "review", "u1", "3", 0.5)]
    values, cells = breakdowns.by_task(frame_of(rows), {"m": "metric"})
    assert values.loc["a", ("search", "metric")] == 0.5 and values.loc["a", ("overall", "metric")] == 0.5
    assert pd.isna(values.loc["a", ("recommend", "metric")])
    assert cells.loc["a", ("search", "metric")].startswith("0.500 ±")


def test_no_overall_for_a_method_that_covers_fewer_tasks():
    rows = [("a", "search", "u", "1", 1.0), ("a", "review", "u", "2", 0.0), ("b", "search", "u", "1", 1.0)]
    values, _ = breakdowns.by_task(frame_of(rows), {"m": "metric"})
    assert values.loc["a", ("overall", "metric")] == 0.5 and pd.isna(values.loc["b", ("overall", "metric")])


def test_in_order_keeps_methods_and_sorts_tasks():
    rows = [("b", "review", "u", "1", 0), ("a", "search", "u", "2", 0), ("b", "search", "u", "3", 0)]
    ordered = breakdowns.in_order(frame_of(rows))
    assert list(ordered["task_id"]) == ["3", "1", "2"]


def test_sample_tasks_is_seeded_and_keeps_order(world):
    tasks = world.benchmark.tasks["test"]
    sample = breakdowns.sample_tasks(tasks, 20, seed=1)
    assert len(sample) == 20 == len({t.task_id for t in sample})
    assert sample == breakdowns.sample_tasks(tasks, 20, seed=1) == [t for t in tasks if t in sample]
    assert sample != breakdowns.sample_tasks(tasks, 20, seed=2)
    for all_of_them in (0, 10**6):
        assert breakdowns.sample_tasks(tasks, all_of_them, seed=1) == list(tasks)


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
    ranks = breakdowns.target_ranks(records, benchmark).set_index(["type", "rank"])["share"]
    assert ranks["search", "2"] == 1 and ranks["recommend", "not shown"] == 1 and ranks.sum() == 2

    frame = frame_of([("m", t, tasks[t].user_id, tasks[t].task_id, 1.0) for t in TASK_TYPES])
    detailed = breakdowns.with_breakdowns(frame, benchmark).set_index("type")
    task = tasks["search"]
    assert detailed.loc["search", "category"] == benchmark.products[task.target].category
    low, *high = detailed.loc["search", "history"].replace(" and more", "-9999").split("-")
    assert int(low) <= len(benchmark.history(task, "test")) <= int(high[0])
