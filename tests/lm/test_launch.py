"""Training in several processes: what crosses into them, and that it comes to the same."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from pwagents.errors import DataError
from pwagents.lm.launch import (
    LaunchError,
    check_job,
    launch_command,
    read_examples,
    run_job,
    write_examples,
)
from pwagents.lm.settings import DpoSettings, SftSettings
from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.lm.tokens import Example
from pwagents.rl.settings import GrpoSettings

CONFIGS = ("fsdp", "deepspeed", "ddp")
TINY = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="written for a machine without GPUs")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a tiny random model."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    make_small_model(tokenizer, seed=1, size=TINY).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """A file of eight examples of one length, so that shares of a batch weigh the same in any split."""
    path = tmp_path_factory.mktemp("data") / "examples.jsonl"
    write_examples(path, [Example([50 + i] * 4 + [60 + i] * 4, [0] * 4 + [1] * 4) for i in range(8)])
    return path


def sft_job(model, examples, out, **changes):
    config = SftSettings(
        **({"max_steps": 3, "per_device_train_batch_size": 2, "learning_rate": 1e-2} | changes)
    )
    return {"model": str(model), "examples": str(examples), "config": asdict(config), "out_folder": str(out)}


def weights(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def test_two_processes_train_as_one_with_the_whole_batch(model, examples, tmp_path):
    two = run_job("sft", sft_job(model, examples, tmp_path / "two"), n_gpus=2, sharding="cpu")
    one = run_job("sft", sft_job(model, examples, tmp_path / "one", per_device_train_batch_size=4))
    trained, alone, before = weights(two), weights(one), weights(model)
    assert any((trained[name] - before[name]).abs().max() > 0.01 for name in before)
    for name, tensor in alone.items():
        torch.testing.assert_close(trained[name], tensor, rtol=0, atol=1e-4)
    assert not list(two.glob("checkpoint*"))
    first = [float(pd.read_csv(folder / "log.csv")["epoch"].iloc[0]) for folder in (one, two)]
    assert first == [0.5, 0.5]  # the other process had the other half of the batch


def test_what_goes_wrong_in_other_processes_is_told_here(model, examples, tmp_path):
    job = sft_job(model, examples, tmp_path / "out", max_length=5)
    with pytest.raises(
        LaunchError, match=r"sft failed: DataError: training data.*found 8; expected at most"
    ) as told:
        run_job("sft", job, n_gpus=2, sharding="cpu")
    assert "The end of its output:" in str(told.value) and "Traceback" in str(told.value)


SETTING = """
from rl_game import make_tasks, pay_cue, play_cue

def cue(tokenizer, n_tasks):
    return make_tasks(n_tasks), play_cue, pay_cue, lambda model: {"vocabulary": float(len(tokenizer))}
"""


def test_reinforcement_learning_finds_its_setting_by_name(tmp_path, monkeypatch):
    here = Path(__file__).parent
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{here}")
    (tmp_path / "toy_setting.py").write_text(SETTING)
    import rl_game

    start = rl_game.save_model(tmp_path / "start")
    config = GrpoSettings(
        max_steps=2, prompts_per_step=2, num_generations=4, per_device_train_batch_size=4, eval_steps=2
    )
    job = {
        "model": str(start),
        "setting": "toy_setting:cue",
        "params": {"n_tasks": 4},
        "config": asdict(config),
    }
    out = run_job("grpo", job | {"out_folder": str(tmp_path / "run")}, n_gpus=2, sharding="cpu")
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2] and rows[-1]["eval_vocabulary"] > 0
    assert weights(out / "model").keys() == weights(start).keys()


@pytest.mark.parametrize("name", CONFIGS)
def test_accelerate_takes_our_configurations(name, project_root):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    path = project_root / "params" / "accelerate" / f"{name}.yaml"
    config = load_config_from_file(str(path))
    assert config.distributed_type == {"ddp": "MULTI_GPU"}.get(name, name.upper())
    assert config.mixed_precision == "bf16" and config.num_machines == 1 and not config.use_cpu
    command = launch_command(Path("job.json"), 4, name)
    arguments = launch_command_parser().parse_args(command[3:])
    if name != "deepspeed":  # accelerate wants to see the package
        arguments, *_ = _validate_launch_command(arguments)
    assert arguments.num_processes == 4 and arguments.module
    assert (arguments.training_script, arguments.training_script_args) == (
        "pwagents.lm.launch",
        ["job.json"],
    )


def test_a_job_is_refused_before_anything_starts(model, examples, tmp_path):
    job = sft_job(model, examples, tmp_path)
    for changed, field, found in (
        ({key: job[key] for key in job if key != "model"}, "model", "nothing"),
        (job | {"examples": [Example([1], [1])], "more": 1}, "more", "a key"),
        (job | {"config": {"seed": {1, 2}}}, "config", "set is not JSON serializable"),
    ):
        with pytest.raises(DataError, match=f"field '{field}': found .*{found}"):
            run_job("sft", changed)
    with pytest.raises(ValueError, match="stage is 'dop'; expected one of sft"):
        run_job("dop", job)
    with pytest.raises(ValueError, match="sharding is 'fdsp'"):
        run_job("sft", job, sharding="fdsp")
    dpo = {"model": "m", "pairs": "p", "config": {}, "out_folder": "o"}
    with pytest.raises(ValueError, match="dpo under fsdp cannot save its adapter"):
        run_job("dpo", dpo, n_gpus=2)
    rl = {"model": "m", "setting": "a:b", "params": {}, "config": {"max_steps": 1}, "out_folder": "o"}
    with pytest.raises(ValueError, match=r"grpo under fsdp needs vLLM.*use_vllm: true"):
        run_job("grpo", rl, n_gpus=2)
    with pytest.raises(ValueError, match="ppo under deepspeed cannot play"):
        run_job("ppo", rl, n_gpus=2, sharding="deepspeed")
    with pytest.raises(DataError, match=r"field 'function'.*'a:b'"):
        run_job("grpo", rl | {"model": str(model)})


def test_gpus_that_are_not_there(model, examples, tmp_path, monkeypatch):
    """With none, a training runs here, whatever is asked for; with too few, it is refused."""
    job = sft_job(model, examples, tmp_path / "out", max_length=5)
    with pytest.raises(DataError, match="at most max_length = 5"):
        run_job("sft", job, n_gpus=2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="n_gpus is 2; expected at most 1"):
        run_job("sft", job, n_gpus=2)


def test_preferences_are_optimized_by_two_processes_as_by_one(model, tmp_path):
    from safetensors.torch import load_file

    from pwagents.lm.dpo import write_pairs

    rows = range(4)
    sides = {"prompt_ids": [[50] * 4 for _ in rows], "chosen_ids": [[60 + i] * 4 for i in rows],
             "rejected_ids": [[70 + i] * 4 for i in rows]}  # fmt: skip
    write_pairs(tmp_path / "pairs.json", sides)
    config = DpoSettings(num_train_epochs=2, gradient_accumulation_steps=1, learning_rate=1e-2, lora=(4, 8))
    job = {"model": str(model), "pairs": str(tmp_path / "pairs.json"), "config": asdict(config)}
    two = run_job("dpo", job | {"out_folder": str(tmp_path / "two")}, n_gpus=2, sharding="cpu")
    whole = job | {"config": asdict(replace(config, per_device_train_batch_size=2))}
    one = run_job("dpo", whole | {"out_folder": str(tmp_path / "one")})
    shared, alone = (load_file(folder / "adapter_model.safetensors") for folder in (two, one))
    assert shared.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(shared[name], tensor, rtol=0, atol=1e-4)
    losses = pd.read_csv(two / "log.csv")["loss"]
    assert losses.iloc[0] == pytest.approx(0.6931, abs=1e-3)  # log 2: the reference is where it starts
    assert any(tensor.abs().max() > 0.01 for name, tensor in shared.items() if "lora_B" in name)


def test_tuples_cross_as_lists_do():
    job = {"model": "m", "examples": "e", "config": {"lora": (16, 32)}, "out_folder": "o"}
    assert check_job("sft", job)["config"] == {"lora": [16, 32]}


def test_examples_come_back_as_they_were_written(tmp_path):
    path, examples = tmp_path / "e.jsonl", [Example([1, 2], [0, 1]), Example([3], [1])]
    write_examples(path, examples)
    assert read_examples(path) == examples
    path.write_text('{"input_ids": [1], "mask": [1]}\n{"input_ids": [1]}\n')
    with pytest.raises(DataError, match="record line 2, field 'example'"):
        read_examples(path)
    with pytest.raises(DataError, match="No such file"):
        read_examples(tmp_path / "none.jsonl")


def test_nothing_imports_vllm():
    code = "import pwagents.lm.launch, pwagents.lm.fit, pwagents.rl.grpo, sys; "
    code += "sys.exit('vllm' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
