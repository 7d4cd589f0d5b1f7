"""The hardness of the embedded world: each kind of knowledge pays, and stops paying where it must."""

import pytest

from pwagents.benchmark.hardness import RUNGS, knowledge_gains, ladder_by_kind, search_ladder


def means(frame):
    return frame.groupby("method")["result_accuracy"].mean()


def test_each_rung_of_the_ladder_stands_higher_and_the_floor_is_far_from_the_ceiling(world, engine):
    ladder = means(search_ladder(world, engine, world.benchmark.tasks["test"], seed=0))
    assert set(ladder.index) == set(RUNGS)
    assert max(ladder["random"], ladder["popularity"]) < 0.1 < 0.95 < ladder["oracle query"]
    assert ladder["instruction alone"] + 0.1 < ladder["+ right interest, up to date"]
    assert ladder["+ averaged profile"] + 0.1 < ladder["+ right interest, up to date"]
    assert ladder["+ right interest, up to date"] < ladder["+ the user's answers"]


def test_the_ladder_by_kind_of_instruction(world, engine):
    tasks = world.benchmark.tasks["test"]
    ladder = search_ladder(world, engine, tasks, seed=0)
    table = ladder_by_kind(ladder, world.truth)
    assert list(table.index) == list(RUNGS)
    counts = [int(column.partition("n = ")[2].rstrip(")").replace(",", "")) for column in table]
    assert sum(counts) == sum(task.type == "search" for task in tasks)
    weighted = (table.loc["instruction alone"] * counts).sum() / sum(counts)
    assert weighted == pytest.approx(means(ladder)["instruction alone"])


def test_negative_controls_gain_exactly_nothing(config):
    gains = knowledge_gains(config, seed=0).set_index(["world", "knowledge"])["gain"]
    assert (gains["as configured"] > 0.05).all()
    assert gains["one interest", "knowing the right interest"] == 0
    assert gains["no drift", "updating the profile"] == 0
    assert gains["complete instructions", "asking the user"] == 0
    assert gains["one interest", "asking the user"] > 0.05 and gains["no drift", "asking the user"] > 0.05
