"""Training on several GPUs: a notebook writes a job, ``accelerate launch`` runs it with one process a GPU.

    write_examples("outputs/sft/examples.jsonl", examples)
    job = {"model": "models/qwen", "examples": "outputs/sft/examples.jsonl", "config": asdict(config)}
    run_job("sft", {**job, "out_folder": "outputs/sft"}, n_gpus=2)

A job is plain values, for they cross into other processes: data are files, functions are named. Where there
is one GPU or none, it runs in this process. Keys of a job, by stage:

- sft: ``model`` (folder), ``examples`` (file of :func:`write_examples`), ``config`` (of
  :class:`pwagents.lm.settings.SftSettings`).
- dpo: ``model`` (folder of a model or an adapter), ``pairs`` (file of
  :func:`pwagents.lm.dpo.write_pairs`), ``config`` (of
  :class:`pwagents.lm.settings.DpoSettings`).
- grpo, ppo: ``model`` (folder), ``setting`` (``"module:function"``; the function gets the tokenizer and
  ``params`` and returns tasks, play, rewards and evaluate, as :func:`pwagents.rl.grpo.train_grpo` takes
  them), ``params``, ``config`` (of :class:`pwagents.rl.settings.GrpoSettings` or ``PpoSettings``).
- all: ``out_folder``, where the stage leaves what it leaves.

A shell can run one too, with a configuration of ``params/accelerate`` and the stage under the key ``stage``:
``accelerate launch --config_file CONFIG.yaml -m pwagents.lm.launch JOB.json``.
"""

import codecs
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Literal

from pwagents.errors import DataError
from pwagents.lm.tokens import Example
from pwagents.project import project_path, write_aside
from pwagents.schema import check_choice

Stage = Literal["sft", "dpo", "grpo", "ppo"]
# Over several GPUs: fsdp and deepspeed spread the model, with ddp each GPU has all of it; cpu is for tests.
Sharding = Literal["fsdp", "deepspeed", "ddp", "cpu"]
Job = Mapping[str, Any]

_TAIL = 4000  # characters of a failed training's output that its error shows


class LaunchError(RuntimeError):
    """A training in other processes failed; the message holds the end of its output."""


def run_job(stage: Stage, job: Job, n_gpus: int | None = None, sharding: Sharding = "fsdp") -> Path:
    """Train on ``n_gpus`` GPUs (all there are, where None) and return ``out_folder``.

    Raises:
        DataError: the job lacks a key, has one too many, or holds a value that is not plain.
        ValueError: stage and sharding do not go together, or there are GPUs, but fewer than ``n_gpus``.
        LaunchError: the training failed in other processes. In this process it raises what it raises.
    """
    import torch

    check_choice("sharding", sharding, Sharding)
    job = check_job(stage, job)
    found = torch.cuda.device_count()
    processes = found if n_gpus is None else n_gpus
    if processes > 1:
        _check_sharding(stage, job, sharding)
    if sharding != "cpu":
        if processes > found > 0:
            raise ValueError(f"n_gpus is {processes}; expected at most {found}, as many as were found")
        processes = min(processes, found)
    if processes <= 1 and found <= 1:
        return STAGES[stage](**job)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        write_aside(path, json.dumps({"stage": stage, **job}))
        _launch(launch_command(path, processes, sharding), path.with_suffix(".error"), stage)
    return project_path(job["out_folder"])


def launch_command(job: Path, processes: int, sharding: Sharding) -> list[str]:
    """The command that runs a job file in so many processes."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(max(processes, 1))]
    plain = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    if sharding == "cpu":  # accelerate's own --cpu starts a single process where there is no mpirun
        command += ["--multi_gpu", *plain]
    elif processes <= 1:
        command += ["--gpu_ids", "0", *plain]
    else:
        command += ["--config_file", str(project_path(f"params/accelerate/{sharding}.yaml"))]
    # Port 0: any that is free, so that two trainings do not meet.
    return [*command, "--main_process_port", "0", "-m", "pwagents.lm.launch", str(job)]


def check_job(stage: str, job: Job) -> dict[str, Any]:
    """The job as it comes out of a JSON file.

    Raises:
        DataError: see :func:`run_job`.
    """
    check_choice("stage", stage, Stage)
    keys = list(signature(STAGES[stage]).parameters)
    for key in keys:
        if key not in job:
            raise DataError("job", stage, key, "nothing", "a value")
    for key, value in job.items():
        if key not in keys:
            raise DataError("job", stage, key, "a key", f"one of {', '.join(keys)}")
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            expected = "numbers, texts, lists and dictionaries of them (data as files, functions by name)"
            raise DataError("job", stage, key, error, expected) from None
    return json.loads(json.dumps(dict(job)))


def write_examples(path: Path | str, examples: Iterable[Example]) -> None:
    """Tokenised conversations as a file, one a line."""
    write_aside(Path(path), "".join(json.dumps(example._asdict()) + "\n" for example in examples))


def read_examples(path: Path | str) -> list[Example]:
    """What :func:`write_examples` wrote.

    Raises:
        DataError: the file cannot be read, or a line is no example.
    """
    examples = []
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as error:
        raise DataError(path, 1, "examples", error, "a file of tokenised conversations") from None
    for number, line in enumerate(lines, 1):
        try:
            examples.append(Example(**json.loads(line)))
        except (TypeError, ValueError) as error:
            raise DataError(path, f"line {number}", "example", error, "input_ids and mask") from None
    return examples


def _sft(*, model: str, examples: str, config: dict, out_folder: str) -> Path:
    from pwagents.lm.settings import SftSettings
    from pwagents.lm.sft import train_on

    folder, out = project_path(model), project_path(out_folder)
    train_on(folder, _tokenizer(folder), read_examples(project_path(examples)), SftSettings(**config), out)
    return out


def _dpo(*, model: str, pairs: str, config: dict, out_folder: str) -> Path:
    from pwagents.lm.dpo import read_pairs, train_on_pairs
    from pwagents.lm.settings import DpoSettings

    folder, out = project_path(model), project_path(out_folder)
    pairs_read = read_pairs(project_path(pairs))
    train_on_pairs(folder, _tokenizer(folder), pairs_read, DpoSettings(**config), out)
    return out


def _grpo(*, model: str, setting: str, params: dict, config: dict, out_folder: str) -> Path:
    from pwagents.rl.grpo import train_grpo
    from pwagents.rl.settings import GrpoSettings

    return _reinforce(train_grpo, GrpoSettings(**config), model, setting, params, out_folder)


def _ppo(*, model: str, setting: str, params: dict, config: dict, out_folder: str) -> Path:
    from pwagents.rl.ppo import train_ppo
    from pwagents.rl.settings import PpoSettings

    return _reinforce(train_ppo, PpoSettings(**config), model, setting, params, out_folder)


def _reinforce(train: Callable, config: Any, model: str, setting: str, params: dict, out_folder: str) -> Path:
    folder, out = project_path(model), project_path(out_folder)
    tokenizer = _tokenizer(folder)
    tasks, play, rewards, evaluate = _named(setting)(tokenizer, **params)
    train(folder, tokenizer, tasks, play, rewards, config, out, evaluate)
    return out


STAGES: dict[str, Callable[..., Path]] = {"sft": _sft, "dpo": _dpo, "grpo": _grpo, "ppo": _ppo}


def _tokenizer(folder: Path):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _named(name: str) -> Callable:
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError("job", "setting", "function", error, f'"module:function", got {name!r}') from None


def _check_sharding(stage: str, job: Job, sharding: str) -> None:
    """Whether the stage can do with the parts of the weights that FSDP and ZeRO-3 leave on one GPU.

    Episodes are played with whole weights; DPO saves its adapter from one process.
    """
    if sharding == "fsdp" and stage == "grpo" and not job["config"].get("use_vllm"):
        raise ValueError("grpo under fsdp needs vLLM, which gets whole weights: use_vllm: true, or ddp")
    if sharding in ("fsdp", "deepspeed") and stage == "dpo":
        raise ValueError(f"dpo under {sharding} cannot save its adapter: ddp, which is all an adapter needs")
    if sharding in ("fsdp", "deepspeed") and stage == "ppo":
        raise ValueError(f"ppo under {sharding} cannot play episodes: ddp, with an adapter where it must fit")


def _launch(command: list[str], error_file: Path, stage: str) -> None:
    """Run a command, pass its output on as it comes, and raise when it fails."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    decoder, tail = codecs.getincrementaldecoder("utf-8")("replace"), ""
    try:
        while chunk := process.stdout.read1(4096):
            text = decoder.decode(chunk)
            tail = (tail + text)[-_TAIL:]
            print(text, end="", flush=True)
        status = process.wait()
    except BaseException:  # interrupted: the other processes must not go on
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    if status:
        told = error_file.read_text("utf-8") if error_file.exists() else f"its processes ended with {status}"
        raise LaunchError(f"{stage} failed: {told}\nThe end of its output:\n{tail.strip()}")


def main(path: str) -> None:
    """Run a job file; every process that accelerate started does."""
    from accelerate import PartialState

    job = json.loads(Path(path).read_text("utf-8"))
    try:
        PartialState()  # before weights are read: then one process reads them for all
        stage = job.pop("stage")
        STAGES[stage](**check_job(stage, job))
    except Exception as error:
        told = Path(path).with_suffix(".error")
        if not told.exists():  # another process failed first, and this one for want of it
            write_aside(told, f"{type(error).__name__}: {error}")
        raise
    finally:
        PartialState().destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
