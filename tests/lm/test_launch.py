"""Training in several processes: what crosses into them, and that it comes to the same."""

import atexit
import json
import os
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pwagents.errors import DataError
from pwagents.lm.launch import LaunchError, launch, launch_command
from pwagents.lm.train import fine_tune, prefer
from pwagents.rl.train import train_policy
from pwagents.settings import GrpoSettings

from ..rl import game
from . import conftest as tiny

CONFIGS = {"fsdp": "FSDP", "deepspeed": "DEEPSPEED", "ddp": "MULTI_GPU", "cpu": "MULTI_GPU", "single": "NO"}
# Of one length, so that shares of a batch weigh the same in any split.
ROWS = [{"input_ids": [50 + i] * 4 + [60 + i] * 4, "labels": [-100] * 4 + [60 + i] * 4} for i in range(8)]
PAIRS = [{"prompt": "red mug", "chosen": "yoga", "rejected": "lamp"}] * 4
GRPO = {"max_steps": 10, "prompts_per_step": 2, "num_generations": 4, "eval_steps": 2}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("launch"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="written for a machine without GPUs"),
]


def path_of(root: Path) -> str:
    """Where other processes find the tests, the library and the tools."""
    return ":".join(str(root / name) for name in ("", "lib", "tools"))


def train_all(base: Path, start: Path, folder: Path, size: int) -> None:
    """Train in a folder, with batches of ``size`` a process; all together, as processes take long to begin.

    The last training fails.
    """
    fine_tune(base, ROWS, tiny.sft(max_steps=3, per_device_train_batch_size=size), folder / "sft")
    prefer(base, PAIRS, tiny.dpo(max_steps=4, per_device_train_batch_size=size), folder / "dpo")
    if size == 1:
        config = GrpoSettings(per_device_train_batch_size=4, **GRPO)
        # One process's return rises, the other's falls: the log has their mean.
        of_process = ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0.0, -1.0, -2.0, -3.0, -4.0, -5.0])
        returns = iter(of_process[int(os.environ["RANK"])])
        tasks, measure = game.make_tasks(4), lambda model: {"return": next(returns)}
        played = game.Game(game.play_cue, game.pay_cue, measure, tasks)
        train_policy(start, game.make_tokenizer(), played, config, folder / "run")
        fine_tune(base, [], tiny.sft(), folder / "nothing")


def count_processes(folder: Path) -> None:
    """Write how many processes there are, before anything of TRL has looked for them; then crash at exit."""
    from accelerate import PartialState

    atexit.register(os.abort)  # as gloo's threads do now and then, while Python takes itself down
    (folder / str(PartialState().process_index)).write_text(str(PartialState().num_processes))


def test_each_process_knows_the_others_and_a_crash_at_its_exit_loses_nothing(
    tmp_path, monkeypatch, project_root
):
    monkeypatch.setenv("PYTHONPATH", path_of(project_root))
    launch(count_processes, {"folder": tmp_path}, n_gpus=2, sharding="cpu")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0": "2", "1": "2"}


@pytest.fixture(scope="module")
def launched(base, tmp_path_factory, project_root):
    """The folder in which two processes trained, and what was told of the training that failed."""
    folder = tmp_path_factory.mktemp("two")
    jobs = {"base": base, "start": game.save_model(folder / "start"), "folder": folder, "size": 1}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LaunchError) as told:
        patch.setenv("PYTHONPATH", path_of(project_root))
        launch(train_all, jobs, n_gpus=2, sharding="cpu")
    return folder, str(told.value)


def test_two_processes_train_as_one_with_the_whole_batch(launched, base, tmp_path):
    train_all(base, base, tmp_path, size=2)
    for name, file in (("sft", "model.safetensors"), ("dpo", "adapter_model.safetensors")):
        two, one = (load_file(folder / name / file) for folder in (launched[0], tmp_path))
        for key, tensor in one.items():
            torch.testing.assert_close(two[key], tensor, rtol=0, atol=1e-4)
        before = load_file(base / "model.safetensors")
        assert name == "dpo" or any((two[key] - before[key]).abs().max() > 0.01 for key in before)
        assert not list((launched[0] / name).glob("checkpoint*"))
        logs = [pd.read_csv(folder / name / "log.csv") for folder in (launched[0], tmp_path)]
        assert logs[0]["epoch"][0] == logs[1]["epoch"][0]  # the other process had the other half of the batch
        assert logs[0]["loss"][0] == pytest.approx(logs[1]["loss"][0], rel=1e-4)
    # So does reinforcement learning, with a function of one's own.
    rows = [json.loads(line) for line in (launched[0] / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(11)) and rows[-1]["eval_return"] == 0
    assert (launched[0] / "run" / "model" / "model.safetensors").exists()


def test_what_goes_wrong_in_other_processes_is_told_here(launched):
    assert launched[1].startswith("train_all failed with status 1. The end of its output:")
    # The traceback of the process that failed first comes last, whole, whatever the others wrote after it.
    summary = launched[1][launched[1].index("Root Cause (first observed failure)") :]
    assert "Traceback" in summary and "found none; expected at least one" in summary


@pytest.mark.parametrize("name", CONFIGS)
def test_accelerate_takes_our_configurations(name, project_root):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    path = project_root / "params" / "accelerate" / f"{name}.yaml"
    config, processes = load_config_from_file(str(path)), 1 if name == "single" else 4
    assert (config.distributed_type, config.num_machines, config.use_cpu) == (CONFIGS[name], 1, False)
    assert config.mixed_precision == "no"  # the setting bf16 decides; bf16 here would overrule it
    command = launch_command(Path("job.json"), processes, "ddp" if name == "single" else name)
    assert str(path) in command
    arguments = launch_command_parser().parse_args(command[3:])
    if name != "deepspeed":  # accelerate wants to see the package
        arguments, *_ = _validate_launch_command(arguments)
    assert arguments.num_processes == processes and arguments.module
    called = [arguments.training_script, *arguments.training_script_args]
    assert called == ["pwagents.lm.launch", "job.json"]
    assert name != "single" or (arguments.gpu_ids == "0" and not arguments.multi_gpu)


def test_a_training_that_asks_for_processes_starts_them_and_they_start_no_others(
    base, tmp_path, monkeypatch, project_root
):
    monkeypatch.setenv("PYTHONPATH", path_of(project_root))
    few = tiny.sft(max_steps=1, per_device_train_batch_size=1).changed(n_gpus=2, sharding="cpu")
    fine_tune(base, ROWS[:4], few, tmp_path / "two")
    assert pd.read_csv(tmp_path / "two" / "log.csv")["epoch"][0] == 0.5  # two of four rows: one a process
    monkeypatch.setenv("PWAGENTS_LAUNCHED", "1")
    assert not launch(count_processes, {"folder": tmp_path}, n_gpus=2, sharding="cpu")


def test_a_call_is_refused_before_anything_starts(base, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    two = tiny.sft().changed(n_gpus=2)
    with pytest.raises(ValueError, match="n_gpus is 2; expected at most 1"):
        fine_tune(base, ROWS, two, tmp_path)
    with pytest.raises(DataError, match="expected at least one"):
        fine_tune(base, [], two, tmp_path)
