"""Runs of GRPO and PPO, killed for real and taken up again."""

import time

import pytest
import torch
from safetensors.torch import load_file

from pwagents.cache import seal
from pwagents.errors import DataError
from pwagents.rl.log import append_row, open_run, read_curves, read_rows, smooth
from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.settings import meaning

from ..processes import begin, kill
from . import game

# What a step took is no part of what it did.
TIMES = ("seconds", "rollout_seconds")
SEVERAL = {"epochs": 2, "minibatches": 2}


def in_the_middle(run):
    return len(read_rows(run / "log.jsonl")) >= 3


def while_it_saves(run):
    """Or just after."""
    return (run / "checkpoint-6").exists()


@pytest.mark.parametrize("lora", [None, (4, 8)])
@pytest.mark.parametrize(("method", "moment"), [("grpo", in_the_middle), ("ppo", while_it_saves)])
def test_a_killed_run_ends_with_the_same_weights_and_log_and_is_not_run_again(tmp_path, method, moment, lora):
    whole, killed, changed = tmp_path / "whole", tmp_path / "killed", SEVERAL | {"lora": lora}
    game.train(method, whole, **changed)
    process = begin(game.train, method, killed, **changed)
    while not moment(killed):
        assert process.exitcode is None, "the run ended before it was killed"
        time.sleep(0.002)
    kill(process)
    assert 0 < len(read_rows(killed / "log.jsonl")) < 8
    out = game.train(method, killed, **changed)
    files = [next(folder.glob("*.safetensors")) for folder in (whole / "model", out)]
    one, other = map(load_file, files)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    logs = [
        [{name: value for name, value in row.items() if name not in TIMES} for row in read_rows(path)]
        for path in (whole / "log.jsonl", killed / "log.jsonl")
    ]
    assert logs[0] == logs[1] and [row["step"] for row in logs[1]] == list(range(1, 9))
    stored = torch.load(whole / "checkpoint-8" / "pytorch_model.bin")
    assert all("lora_" in name for name in stored) == bool(lora), "the base is not written again and again"

    written = files[1].stat().st_mtime_ns
    assert game.train(method, killed, **changed) == out and files[1].stat().st_mtime_ns == written
    with pytest.raises(DataError, match=r"'learning_rate': found 0\.005; expected 0\.1"):
        game.train(method, killed, **changed, learning_rate=0.1)


# The log, and settings


def test_rows_after_the_checkpoint_and_a_cut_line_are_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st', encoding="utf-8")
    (tmp_path / "checkpoint-2").mkdir()
    seal(tmp_path / "checkpoint-2")
    checkpoint, rows = open_run(tmp_path, game.CONFIGS["grpo"](**game.SETTINGS), game.make_tasks(1))
    assert checkpoint.endswith("checkpoint-2") and rows == [{"step": 1}, {"step": 2}]
    append_row(tmp_path, {"step": 3, "loss": 0.5})
    assert read_rows(path) == [{"step": 1}, {"step": 2}, {"step": 3, "loss": 0.5}]
    with pytest.raises(RuntimeError, match=r"diverged: loss is nan at step 7; take a lower"):
        append_row(tmp_path, {"step": 7, "loss": float("nan")})


def test_runs_stand_below_one_another_and_none_reaches_into_another(tmp_path):
    for name, rows in {
        "a": [{"eval_x": 0.5}, {"reward": 0.0}, {"reward": 1.0}],
        "b": [{"reward": 4.0}],
    }.items():
        (tmp_path / name).mkdir()
        for step, row in enumerate(rows):
            append_row(tmp_path / name, {"step": step} | row)
    curves = read_curves({"GRPO": tmp_path / "a", "PPO": tmp_path / "b"})
    assert list(curves.columns) == ["run", "step", "eval_x", "reward"]
    assert list(curves["run"]) == ["GRPO"] * 3 + ["PPO"] and list(curves["step"]) == [0, 1, 2, 0]
    assert curves["eval_x"].isna().tolist() == [False, True, True, True]
    assert smooth(curves, "reward", window=2).fillna(-1).tolist() == [-1, 0.0, 0.5, 4.0]


def test_a_log_that_is_none_is_named(tmp_path):
    with pytest.raises(DataError, match=r"record GRPO, field 'step': found no rows"):
        read_curves({"GRPO": tmp_path})
    for line, field in (("reward: 2", r"\(whole line\)"), ('{"reward": 2}', "step")):
        (tmp_path / "log.jsonl").write_text(f'{{"step": 1}}\n{line}\n', encoding="utf-8")
        with pytest.raises(DataError, match=f"record line 2, field '{field}'"):
            read_curves({"GRPO": tmp_path})


WRONG = [{"num_generations": 1}, {"credit": "token"}, {"temperature": 0.0}, {"sharding": "deepspeed"}]


@pytest.mark.parametrize("wrong", WRONG)
def test_settings_say_what_they_mean_and_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GrpoSettings(max_steps=1, **wrong)
    for group in (GrpoSettings, PpoSettings):
        assert all(meaning(group, name) for name in group.__pydantic_fields__)
