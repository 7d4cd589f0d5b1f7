"""Training in several processes: what crosses into them, and that it comes to the same."""

import json
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pwagents.errors import DataError
from pwagents.lm.launch import LaunchError, launch, launch_command
from pwagents.lm.settings import DpoSettings, SftSettings
from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.rl.settings import GrpoSettings
from pwagents.settings import plain

SFT = "pwagents.lm.sft:train_on_plain"
CONFIGS = {"fsdp": "FSDP", "deepspeed": "DEEPSPEED", "ddp": "MULTI_GPU", "cpu": "MULTI_GPU", "single": "NO"}
TINY = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
# Of one length, so that shares of a batch weigh the same in any split.
EXAMPLES = [[[50 + i] * 4 + [60 + i] * 4, [0] * 4 + [1] * 4] for i in range(8)]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="written for a machine without GPUs"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a tiny random model."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    make_small_model(tokenizer, seed=1, size=TINY).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sft(model, out, **changes):
    config = SftSettings(
        **({"max_steps": 3, "per_device_train_batch_size": 2, "learning_rate": 1e-2} | changes)
    )
    return {"model": str(model), "examples": EXAMPLES, "config": asdict(config), "out_folder": str(out)}


def weights(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


# All that two processes do here, one after another, as they take long to begin. The last training fails.
JOBS = """
from pwagents.lm import dpo, sft
from pwagents.rl.grpo import train_grpo
from pwagents.rl.settings import GrpoSettings
from tests.rl.game import make_tasks, make_tokenizer, pay_cue, play_cue

def train_all(fine_tuning, preferences, game, too_long):
    sft.train_on_plain(**fine_tuning)
    dpo.train_on_plain(**preferences)
    cue(**game)
    sft.train_on_plain(**too_long)

def cue(model, config, n_tasks, out_folder):
    def evaluate(model):
        return {"vocabulary": float(model.config.vocab_size)}

    config = GrpoSettings(**config)
    train_grpo(model, make_tokenizer(), make_tasks(n_tasks), play_cue, pay_cue, config, out_folder, evaluate)
"""
# Pairs of one length, too.
PAIRS = {"prompt_ids": [[50, 51]] * 4, "chosen_ids": [[60, 61]] * 4, "rejected_ids": [[70, 71]] * 4}


def dpo(adapter, out, batch_size):
    config = DpoSettings(
        num_train_epochs=2.0,
        learning_rate=2e-2,
        lora=(4, 8),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=1,
    )
    return {"model": str(adapter), "tokens": PAIRS, "config": plain(config), "out_folder": str(out)}


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter")
    launch(SFT, sft(model, folder, lora=(4, 8)))
    return folder


@pytest.fixture(scope="module")
def launched(model, adapter, tmp_path_factory, project_root):
    """The folder in which two processes trained, and what was told of the training that failed."""
    from tests.rl.game import save_model

    folder = tmp_path_factory.mktemp("two")
    (folder / "toy_jobs.py").write_text(JOBS)
    config = GrpoSettings(
        max_steps=2, prompts_per_step=2, num_generations=4, per_device_train_batch_size=4, eval_steps=2
    )
    start, run = save_model(folder / "start"), folder / "run"
    jobs = {
        "fine_tuning": sft(model, folder / "sft"),
        "preferences": dpo(adapter, folder / "dpo", batch_size=1),
        "game": {"model": str(start), "config": asdict(config), "n_tasks": 4, "out_folder": str(run)},
        "too_long": sft(model, folder / "too_long", max_length=5),
    }
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LaunchError) as told:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", f"{folder}:{project_root}:{project_root / 'lib'}")
        launch("toy_jobs:train_all", jobs, n_gpus=2, sharding="cpu")
    return folder, str(told.value)


def test_two_processes_train_as_one_with_the_whole_batch(launched, model, tmp_path):
    two, one = launched[0] / "sft", tmp_path / "one"
    launch(SFT, sft(model, one, per_device_train_batch_size=4))
    trained, alone, before = (weights(folder) for folder in (two, one, model))
    assert any((trained[name] - before[name]).abs().max() > 0.01 for name in before)
    for name, tensor in alone.items():
        torch.testing.assert_close(trained[name], tensor, rtol=0, atol=1e-4)
    assert not list(two.glob("checkpoint*"))
    epochs = [pd.read_csv(folder / "log.csv")["epoch"].iloc[0] for folder in (one, two)]
    assert epochs == [0.5, 0.5]  # the other process had the other half of the batch


def test_two_processes_optimize_preferences_as_one_with_the_whole_batch(launched, adapter, tmp_path):
    launch("pwagents.lm.dpo:train_on_plain", dpo(adapter, tmp_path, batch_size=2))
    folders = launched[0] / "dpo", tmp_path, adapter
    two, one, before = (load_file(folder / "adapter_model.safetensors") for folder in folders)
    assert any(not torch.equal(one[name], before[name]) for name in before)
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-5)
    # log 2: the reference is where it starts
    assert pd.read_csv(folders[0] / "log.csv")["loss"].iloc[0] == pytest.approx(0.6931, abs=1e-3)


def test_reinforcement_learning_runs_a_function_of_ones_own(launched):
    run = launched[0] / "run"
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2] and rows[-1]["eval_vocabulary"] > 0
    assert weights(run / "model").keys() == weights(launched[0] / "start").keys()


def test_what_goes_wrong_in_other_processes_is_told_here(launched):
    message = launched[1]
    assert message.startswith("toy_jobs:train_all failed with status 1. The end of its output:")
    # The traceback of the process that failed first comes last, whole, whatever the others wrote after it.
    summary = message[message.index("Root Cause (first observed failure)") :]
    assert "Traceback" in summary and "DataError: training data" in summary
    assert "found 8; expected at most max_length = 5" in summary


@pytest.mark.parametrize("name", CONFIGS)
def test_accelerate_takes_our_configurations(name, project_root):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    path = project_root / "params" / "accelerate" / f"{name}.yaml"
    config, processes = load_config_from_file(str(path)), 1 if name == "single" else 4
    assert config.distributed_type == CONFIGS[name]
    assert config.mixed_precision == "no"  # the setting bf16 decides; bf16 here would overrule it
    assert config.num_machines == 1 and not config.use_cpu
    command = launch_command(Path("job.json"), processes, "ddp" if name == "single" else name)
    assert str(path) in command
    arguments = launch_command_parser().parse_args(command[3:])
    if name != "deepspeed":  # accelerate wants to see the package
        arguments, *_ = _validate_launch_command(arguments)
    assert arguments.num_processes == processes and arguments.module
    assert arguments.training_script == "pwagents.lm.launch" and arguments.training_script_args == [
        "job.json"
    ]
    if name == "single":
        assert arguments.gpu_ids == "0" and not arguments.multi_gpu


def test_a_call_is_refused_before_anything_starts(model, tmp_path):
    arguments = sft(model, tmp_path)
    with pytest.raises(TypeError, match="missing a required argument: 'model'"):
        launch(SFT, {name: value for name, value in arguments.items() if name != "model"}, 2, "cpu")
    with pytest.raises(TypeError, match="unexpected keyword argument 'more'"):
        launch(SFT, arguments | {"more": 1}, 2, "cpu")
    with pytest.raises(TypeError, match="PosixPath is not JSON serializable"):
        launch(SFT, arguments | {"model": model}, 2, "cpu")
    with pytest.raises(AttributeError, match="no attribute 'train_off'"):
        launch("pwagents.lm.sft:train_off", arguments, 2, "cpu")
    with pytest.raises(ModuleNotFoundError, match="'nobody'"):
        launch("nobody:train", arguments, 2, "cpu")
    with pytest.raises(ValueError, match="sharding is 'fdsp'"):
        launch(SFT, arguments, sharding="fdsp")


def test_gpus_that_are_not_there(model, tmp_path, monkeypatch):
    """With none, a training runs here, whatever is asked for; with too few, it is refused."""
    arguments = sft(model, tmp_path / "out", max_length=5)
    with pytest.raises(DataError, match="at most max_length = 5"):
        launch(SFT, arguments, n_gpus=2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="n_gpus is 2; expected at most 1"):
        launch(SFT, arguments, n_gpus=2)
