"""Training in several processes: what crosses into them, and that it comes to the same."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
import torch

from pwagents.errors import DataError
from pwagents.lm.launch import LaunchError, launch, launch_command
from pwagents.lm.settings import SftSettings
from pwagents.lm.small import make_small_model, make_tokenizer

SFT = "pwagents.lm.sft:train_on_plain"
CONFIGS = {"fsdp": "FSDP", "deepspeed": "DEEPSPEED", "ddp": "MULTI_GPU", "cpu": "MULTI_GPU", "single": "NO"}
TINY = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
# Of one length, so that shares of a batch weigh the same in any split.
EXAMPLES = [[[50 + i] * 4 + [60 + i] * 4, [0] * 4 + [1] * 4] for i in range(8)]
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="written for a machine without GPUs")


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


def test_two_processes_train_as_one_with_the_whole_batch(model, tmp_path):
    launch(SFT, sft(model, tmp_path / "two"), n_gpus=2, sharding="cpu")
    launch(SFT, sft(model, tmp_path / "one", per_device_train_batch_size=4))
    trained, alone, before = (weights(folder) for folder in (tmp_path / "two", tmp_path / "one", model))
    assert any((trained[name] - before[name]).abs().max() > 0.01 for name in before)
    for name, tensor in alone.items():
        torch.testing.assert_close(trained[name], tensor, rtol=0, atol=1e-4)
    assert not list((tmp_path / "two").glob("checkpoint*"))
    epochs = [pd.read_csv(tmp_path / name / "log.csv")["epoch"].iloc[0] for name in ("one", "two")]
    assert epochs == [0.5, 0.5]  # the other process had the other half of the batch


def test_what_goes_wrong_in_other_processes_is_told_here(model, tmp_path):
    with pytest.raises(LaunchError) as told:
        launch(SFT, sft(model, tmp_path / "out", max_length=5), n_gpus=2, sharding="cpu")
    message = str(told.value)
    assert message.startswith("pwagents.lm.sft:train_on_plain failed with status 1. The end of its output:")
    # The traceback of the process that failed first comes last, whole, whatever the others wrote after it.
    summary = message[message.index("Root Cause (first observed failure)") :]
    assert "Traceback" in summary and "DataError: training data" in summary
    assert "found 8; expected at most max_length = 5" in summary


GAME = """
from pathlib import Path

from pwagents.rl.settings import GrpoSettings
from pwagents.rl.grpo import train_grpo
from tests.rl.game import make_tasks, make_tokenizer, pay_cue, play_cue

def cue(model, config, n_tasks, out_folder):
    def evaluate(model):
        return {"vocabulary": float(model.config.vocab_size)}

    config = GrpoSettings(**config)
    train_grpo(model, make_tokenizer(), make_tasks(n_tasks), play_cue, pay_cue, config, out_folder, evaluate)
"""


def test_reinforcement_learning_runs_a_function_of_ones_own(tmp_path, monkeypatch, project_root):
    from tests.rl.game import save_model

    from pwagents.rl.settings import GrpoSettings

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{project_root}:{project_root / 'lib'}")
    (tmp_path / "toy_game.py").write_text(GAME)
    start, run = save_model(tmp_path / "start"), tmp_path / "run"
    config = GrpoSettings(
        max_steps=2, prompts_per_step=2, num_generations=4, per_device_train_batch_size=4, eval_steps=2
    )
    arguments = {"model": str(start), "config": asdict(config), "n_tasks": 4, "out_folder": str(run)}
    launch("toy_game:cue", arguments, n_gpus=2, sharding="cpu")
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2] and rows[-1]["eval_vocabulary"] > 0
    assert weights(run / "model").keys() == weights(start).keys()


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


def test_nothing_heavy_is_imported():
    code = "import pwagents.lm.launch, pwagents.lm.fit, pwagents.rl.grpo, sys; "
    code += "sys.exit('vllm' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
