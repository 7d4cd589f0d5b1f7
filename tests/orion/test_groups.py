"""What groups weigh before a training: those in which all succeed, or none, weigh more where advantages are
divided by the group's deviation."""

import math

import pandas as pd
import pytest

from pwagents.orion.analyses import play_groups, weight_of_groups
from pwagents.rl.settings import GrpoSettings

from .small_study import REWARD, save_tiny_model, small_study


def test_groups_are_the_tasks_of_the_first_steps_each_played_several_times(tmp_path):
    study, config = small_study(tmp_path), GrpoSettings(max_steps=2, prompts_per_step=3, num_generations=4)
    model = save_tiny_model(tmp_path / "tiny")
    episodes = play_groups(study, model, config, REWARD)
    assert len(episodes) == 2 * 3 * 4 and (episodes.groupby("group").size() == 4).all()
    for told in ("not divided", "divided"):
        assert (episodes.groupby("group")[told].sum().abs() < 1e-6).all()
    assert (episodes.groupby("group")["divided"].std().round(2).isin([0, 1])).all()
    pd.testing.assert_frame_equal(episodes, play_groups(study, model, config, REWARD))


def test_divided_groups_that_agree_weigh_as_much_as_others():
    rows = [("a", s, asks, plain, 5 * plain) for s, asks, plain in ((1, 1, -0.1), (1, 0, 0.1))]
    rows += [("b", s, asks, plain, plain) for s, asks, plain in ((1, 1, 0.5), (0, 0, -0.5))]
    rows += [("c", 0, 2, 0.0, 0.0), ("c", 0, 2, 0.0, 0.0)]
    columns = ["group", "success", "asks", "not divided", "divided"]
    table = weight_of_groups(pd.DataFrame(rows, columns=columns).assign(tokens=10)).set_index("kind")
    assert list(table.index) == ["none succeeds", "some succeed", "all succeed"]
    assert table["groups"].tolist() == pytest.approx([1 / 3] * 3)
    assert table["weight, not divided"].tolist() == pytest.approx([0, 5 / 6, 1 / 6])
    assert table["weight, divided"].tolist() == pytest.approx([0, 0.5, 0.5])
    assert table["a question, not divided"].tolist()[1:] == pytest.approx([1, -0.2])
    assert math.isnan(table.loc["none succeeds", "a question, divided"])
