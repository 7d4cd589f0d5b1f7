"""The published way beside ours: every difference that is known is a row, and goes the way it should."""

import pytest

from pwagents.benchmark.agreement import published_against_corrected
from pwagents.benchmark.settings import BenchmarkNotebook
from pwagents.benchmark.study import Study
from pwagents.data.synthetic import make_world
from pwagents.notebook.run import Run


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    data = {"source": "synthetic", "n_users": 20, "n_products": 400, "history": (10, 20)}
    settings = BenchmarkNotebook(
        preset="smoke",
        output_dir=tmp_path_factory.mktemp("agreement"),
        seed=0,
        data=data | {"interests": (2, 15), "drift": 0.5, "completeness": 0.2},
        shop={"max_tokens": 32, "rec_dates": 1, "recommender": {"epochs": 1, "hidden": 8}},
        players={},
        play={"max_tasks": 60, "method_tasks": 60, "noise_seeds": 2},
    )
    world = make_world(settings.data.world, seed=0)
    study = Study(world.benchmark, settings, Run("03", settings.output_dir, None))
    return published_against_corrected(study).set_index("difference")


def columns(table, name):
    """Function and result accuracy as published, then corrected."""
    row = table[[name in difference for difference in table.index]]
    assert len(row) == 1 and row["tasks"].item() > 0
    return row.iloc[0, 1:].tolist()


@pytest.mark.parametrize("name", ["empty query", "blank query", "text where a list", "empty review"])
def test_a_call_that_says_nothing_counts_for_the_published_grader_alone(table, name):
    function, result, ours, our_result = columns(table, name)
    assert function == 1 and ours == our_result == 0
    assert (result > 0) == (name == "empty review")


def test_a_review_may_be_worth_less_than_none_as_published(table):
    function, result, ours, our_result = columns(table, "unlike the real one")
    assert function == ours == 1 and result < our_result


def test_fewer_results_make_a_rank_worth_less_as_published(table):
    function, result, ours, our_result = columns(table, "fewer than ten")
    assert function == ours == 1 and result <= our_result


def test_who_sees_the_target_itself_can_write_the_real_review(table):
    _, result, _, our_result = columns(table, "the target itself")
    assert result > our_result


def test_no_difference_is_left_out(table):
    told = ("text of a result", "told the task's type", "order of a set", "three times")
    assert len(table) == 11 and all(columns(table, name) for name in told)
    assert table.drop(columns="tasks").notna().all().all()
