"""Logs of runs as a frame."""

import math

import pytest

from pwagents.errors import DataError
from pwagents.rl.log import RunLog, read_curves, smooth


def write(folder, rows):
    log = RunLog(folder, 0)
    for row in rows:
        log.append(row)
    return folder


def test_runs_stand_below_one_another_and_what_was_not_taken_is_missing(tmp_path):
    grpo = write(
        tmp_path / "a", [{"step": 0, "eval_x": 0.5}, {"step": 1, "reward": 0.0}, {"step": 2, "reward": 1.0}]
    )
    ppo = write(tmp_path / "b", [{"step": 1, "reward": 4.0}])
    curves = read_curves({"GRPO": grpo, "PPO": ppo})
    assert list(curves.columns) == ["run", "step", "eval_x", "reward"]
    assert list(curves["run"]) == ["GRPO"] * 3 + ["PPO"]
    assert list(curves["step"]) == [0, 1, 2, 1]
    assert curves["eval_x"].tolist()[0] == 0.5
    assert curves["eval_x"].isna().sum() == 3
    smoothed = smooth(curves, "reward", window=2)
    assert math.isnan(smoothed[0])
    assert smoothed.tolist()[1:] == [0.0, 0.5, 4.0]  # no run reaches into another


def test_a_run_without_a_log_is_named(tmp_path):
    with pytest.raises(DataError, match=r"record GRPO, field 'step': found no rows"):
        read_curves({"GRPO": tmp_path})


def test_a_line_that_is_no_row_is_named(tmp_path):
    for line, field in (("reward: 2", r"\(whole line\)"), ('{"reward": 2}', "step")):
        (tmp_path / "log.jsonl").write_text(f'{{"step": 1}}\n{line}\n', encoding="utf-8")
        with pytest.raises(DataError, match=f"record line 2, field '{field}'"):
            read_curves({"GRPO": tmp_path})
