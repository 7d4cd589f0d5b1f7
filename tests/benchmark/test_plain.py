"""What memory gains where nothing is bought twice, and in other worlds."""

import pandas as pd

from pwagents.notebook import Run
from pwagents_old.benchmark import plain


def test_gains_are_told_apart_by_whether_the_target_was_bought_before(world):
    """A memory that finds what was bought before and nothing else gains 1 there, and 0 on what is new."""
    benchmark = world.benchmark
    tasks = [task for task in benchmark.tasks["test"] if task.type != "review"]
    known = [task.target in {b.parent_asin for b in benchmark.history(task, "test")} for task in tasks]
    assert 0 < sum(known) < len(known)
    rows = [
        (method, task.task_id, task.user_id, task.type, float(method == "memory" and is_known))
        for task, is_known in zip(tasks, known, strict=True)
        for method in ("memory", "none")
    ]
    results = pd.DataFrame(rows, columns=["method", "task_id", "user_id", "type", "result_official"])
    here = {"here": plain.tell_repurchases(results, benchmark)}
    gains = plain.gains_by_repurchase(here, without="none")
    means = gains.groupby("target")["difference"].agg(["min", "max"])
    assert means.loc[plain.BEFORE].tolist() == [1, 1] and means.loc[plain.NEW].tolist() == [0, 0]
    assert gains.query("target == 'all'")["n_tasks"].sum() == len(tasks)
    found = plain.results_by_repurchase(here).query("method == 'memory' and type == 'search'")
    assert found["target"].tolist() == ["all", plain.BEFORE, plain.NEW] and [*found["mean"]][1:] == [1, 0]


def test_other_worlds_are_others_and_in_one_nothing_is_bought_twice(settings):
    run = Run("03", settings.output_dir, None)
    as_it_is, other = plain.play_world(settings, run), plain.play_world(settings, run, seed=1)
    control = plain.play_world(settings, run, repurchase=0.0)
    assert set(as_it_is["target"]) == {plain.BEFORE, plain.NEW} and set(control["target"]) == {plain.NEW}
    assert not set(as_it_is["task_id"]) & set(other["task_id"])
    assert all(plain.NO_MEMORY in set(frame["method"]) for frame in (as_it_is, other, control))
