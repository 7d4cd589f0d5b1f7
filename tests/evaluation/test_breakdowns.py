"""Results by task type and by what tasks are like, and methods compared."""

import pandas as pd
import pytest

from pwagents.evaluation.breakdowns import (
    BEYOND,
    by_task,
    by_type_and_mean,
    sample_tasks,
    sort_by_type,
    target_ranks,
    trained_differences,
    with_breakdowns,
)
from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.schema import FUNCTION_OF, TASK_TYPES, Action, Observation, Step, Trajectory


def frame_of(rows):
    return pd.DataFrame(rows, columns=["method", "type", "user_id", "task_id", "m"])


def test_by_task_has_a_column_for_each_task_that_was_played_and_overall_of_several():
    rows = [("a", "search", "u1", "1", 1.0), ("a", "search", "u2", "2", 0.0), ("a", "review", "u1", "3", 0.5)]
    values, cells = by_task(frame_of(rows), {"m": "metric"})
    assert values.loc["a", ("search", "metric")] == 0.5 and values.loc["a", ("overall", "metric")] == 0.5
    assert list(values.columns.get_level_values(0).unique()) == ["search", "review", "overall"]
    assert cells.loc["a", ("search", "metric")].startswith("0.500 ±")
    alone, _ = by_task(frame_of(rows[:2]), {"m": "metric"})
    assert list(alone.columns.get_level_values(0).unique()) == ["search"]


def test_the_mean_of_the_types_weighs_each_type_alike():
    values = {"search": [1.0, 0.0, 0.5, 0.9], "review": [0.2, 0.6]}
    users = {"search": ["u", "v", "v", "w"], "review": ["u", "w"]}
    rows = [
        ("a", task, user, f"{task} {i}", value)
        for task in values
        for i, (user, value) in enumerate(zip(users[task], values[task], strict=True))
    ]
    few = ("b", "search", "u", "search 0", 1.0)
    table = by_type_and_mean(frame_of([*rows, few]), "m")
    assert list(zip(table["method"], table["type"], strict=True)) == [
        ("a", "search"), ("a", "review"), ("a", "mean"), ("b", "search"),
    ]  # fmt: skip
    mean = table.iloc[2]
    assert mean["mean"] == pytest.approx((0.6 + 0.4) / 2) and mean["n_tasks"] == 6 and mean["n_users"] == 3
    # Each user's share in the error, by hand: residuals over 2 types x tasks of the type.
    shares = {"u": 0.4 / 8 - 0.2 / 4, "v": (-0.6 - 0.1) / 8, "w": 0.3 / 8 + 0.2 / 4}
    error = (3 / 2 * sum(share**2 for share in shares.values())) ** 0.5
    assert mean["high"] - mean["mean"] == pytest.approx(4.302653 * error, rel=1e-5)  # Student's t, 2 degrees
    alone = by_type_and_mean(frame_of([row for row in rows if row[1] == "search"]), "m")
    assert list(alone["type"]) == ["search"]


def test_no_overall_for_a_method_that_covers_fewer_tasks():
    rows = [("a", "search", "u", "1", 1.0), ("a", "review", "u", "2", 0.0), ("b", "search", "u", "1", 1.0)]
    values, _ = by_task(frame_of(rows), {"m": "metric"})
    assert values.loc["a", ("overall", "metric")] == 0.5 and pd.isna(values.loc["b", ("overall", "metric")])


def test_comparisons_are_paired_by_type_and_overall():
    rows = [("a", t, u, f"{u}{t}", 1.0) for t in TASK_TYPES for u in ("u", "v")]
    rows += [("b", t, u, f"{u}{t}", 0.5) for t in TASK_TYPES for u in ("u", "v")]
    table = trained_differences(frame_of(rows), {"a - b": ("a", "b")}, "m")
    assert list(table["task"]) == ["search", "recommend", "review", "overall"]
    by_type = table.set_index("task")
    assert by_type.loc["search", "difference"] == pytest.approx(0.5)
    assert list(by_type["n_tasks"]) == [2, 2, 2, 6]
    assert "p" not in table, "tasks tell of these policies, not of how they were trained"


def test_a_difference_is_set_against_what_seeds_alone_may_make():
    rows = [(m, t, u, u + t, v) for m, v in (("a", 0.6), ("b", 0.5)) for t in TASK_TYPES for u in ("u", "v")]
    noise = {"search": 0.14, "recommend": 0.03, "review": 0.1, "overall": 0.05}
    told = trained_differences(frame_of(rows), {"b - a": ("b", "a")}, "m", noise).set_index("task")[BEYOND]
    assert told.to_dict() == {"search": "no", "recommend": "yes", "review": "no", "overall": "yes"}
    pairs = {"a - b": ("a", "b")}
    partly = trained_differences(frame_of(rows), pairs, "m", {"search": 0.05})[BEYOND].tolist()
    assert partly == ["yes", *["not measured"] * 3]
    assert BEYOND not in trained_differences(frame_of(rows), pairs, "m")


def test_comparisons_name_no_task_that_was_not_played():
    rows = [("a", "search", "u", "s", 1.0), ("a", "search", "v", "t", 1.0)]
    rows += [("b", "search", "u", "s", 0.5), ("b", "search", "v", "t", 0.5)]
    (row,) = trained_differences(frame_of(rows), {"a - b": ("a", "b")}, "m").to_dict("records")
    assert (row["comparison"], row["task"], row["difference"], row["n_tasks"]) == ("a - b", "search", 0.5, 2)


def test_in_order_keeps_methods_and_sorts_tasks():
    rows = [("b", "review", "u", "1", 0), ("a", "search", "u", "2", 0), ("b", "search", "u", "3", 0)]
    ordered = sort_by_type(frame_of(rows))
    assert list(ordered["task_id"]) == ["3", "1", "2"]


def test_sample_tasks_is_seeded_and_keeps_order(benchmark):
    tasks = benchmark.tasks["test"]
    sample = sample_tasks(tasks, 20, seed=1)
    assert len(sample) == 20 == len({t.task_id for t in sample})
    assert sample == sample_tasks(tasks, 20, seed=1) == [t for t in tasks if t in sample]
    assert sample != sample_tasks(tasks, 20, seed=2)
    for all_of_them in (0, 10**6):
        assert sample_tasks(tasks, all_of_them, seed=1) == list(tasks)


def test_breakdowns_and_ranks(benchmark):
    tasks = {task.type: task for task in benchmark.tasks["test"]}

    def record(task, products):
        name = FUNCTION_OF[task.type]
        shown = Observation(text="", products=products)
        step = Step(action=Action(name=name), observation=shown)
        fields = {"task_id": task.task_id, "user_id": task.user_id, "type": task.type}
        trajectory = Trajectory(**fields, target=task.target, steps=(step,))
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
    ranks = target_ranks(records).set_index(["type", "rank"])["share"]
    assert ranks["search", "2"] == 1 and ranks["recommend", "not shown"] == 1 and ranks.sum() == 2

    frame = frame_of([("m", t, tasks[t].user_id, tasks[t].task_id, 1.0) for t in TASK_TYPES])
    detailed = with_breakdowns(frame, benchmark).set_index("type")
    task = tasks["search"]
    assert detailed.loc["search", "category"] == benchmark.products[task.target].category
    low, *high = detailed.loc["search", "history"].replace(" and more", "-9999").split("-")
    assert int(low) <= len(benchmark.history(task, "test")) <= int(high[0])
