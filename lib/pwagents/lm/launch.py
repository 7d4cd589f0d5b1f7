"""How trainings run: one on several GPUs, or several of the small model beside each other.

On several GPUs ``accelerate launch`` runs a function of the library, one process a GPU.

    arguments = {"model": "models/qwen", "examples": examples, "config": asdict(config), "out_folder": "out"}
    launch("pwagents.lm.sft:train_on_plain", arguments, n_gpus=2, sharding="fsdp")

The function is named and its arguments are JSON values, because both cross into other processes in a file.
Where there is one GPU or none, the function runs in this process.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeVar

from pwagents import engine
from pwagents.lm.base_settings import BaseSettings
from pwagents.lm.settings import Sharding
from pwagents.project import PARAMS
from pwagents.schema import check_choice

U = TypeVar("U")
R = TypeVar("R")
Processes = Literal[Sharding, "cpu"]  # a file of params/accelerate; cpu is for tests
_TAIL = 6000  # characters of a failed training's output that its error shows


class LaunchError(RuntimeError):
    """A function failed in other processes; the message holds the end of their output."""


def side_by_side(
    train: Callable[[U], R], units: Sequence[U], base: BaseSettings, *, stored_only: bool
) -> list[R]:
    """What ``train`` gives for each unit (a seed, say), in their order.

    The small model's trainings run beside each other: on the cluster, where the engine is one, else in a
    process a core. Those that take GPUs follow one another, each on all GPUs of this machine.

    Args:
        train: makes models; it runs where they are not there yet, too.
        base: the model that the trainings start from.
        stored_only: nothing is trained, so nothing is gained by other processes.
    """
    if stored_only or not base.is_small:
        return [train(unit) for unit in units]
    return engine.beside(train, units)


def launch(function: str, arguments: Mapping[str, Any], n_gpus: int = 1, sharding: Processes = "ddp") -> None:
    """Call a function in ``n_gpus`` processes, each with a GPU of its own; what it returns is dropped.

    Args:
        function: "package.module:function".
        arguments: its keyword arguments: numbers, texts, None, and lists and dicts of these.
        n_gpus: where there is no GPU, the function runs in this process alone.
        sharding: how the processes share a model (:class:`pwagents.lm.settings.Tuning`).

    Raises:
        AttributeError, ImportError, TypeError: there is no such function, it does not take these arguments,
            or they are no JSON values.
        ValueError: there are GPUs, but fewer than ``n_gpus``.
        LaunchError: it failed in other processes. In this process it raises what it raises.
    """
    import torch

    check_choice("sharding", sharding, Processes)
    job = json.dumps({"function": function, "arguments": dict(arguments)})
    signature(_find(function)).bind(**arguments)  # a wrong argument is better found before processes start
    found = torch.cuda.device_count()
    if sharding != "cpu" and n_gpus > found > 0:
        raise ValueError(f"n_gpus is {n_gpus}; expected at most {found}, as many as were found")
    processes = n_gpus if sharding == "cpu" else min(n_gpus, found)
    # One GPU of several takes a process of its own: in this one, transformers would train on all of them.
    if processes <= 1 and found <= 1:
        return _call(job)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        file.write_text(job, "utf-8")
        _run(launch_command(file, processes, sharding), function)


def launch_command(job: Path, processes: int, sharding: Processes) -> list[str]:
    """The command that calls a job file's function in so many processes."""
    config = PARAMS / "accelerate" / f"{sharding if processes > 1 else 'single'}.yaml"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    # Port 0: any that is free, so that two trainings do not meet.
    command += ["--num_processes", str(processes), "--main_process_port", "0"]
    return [*command, "-m", "pwagents.lm.launch", str(job)]


def _find(function: str) -> Callable:
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)


def _call(job: str) -> None:
    read = json.loads(job)
    _find(read["function"])(**read["arguments"])


def _run(command: list[str], function: str) -> None:
    """Run a command, pass its output on as it comes, and raise when it fails."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    tail = ""
    try:
        # newline="" ends lines at "\r", too, and leaves it there: progress bars write nothing else
        with io.TextIOWrapper(process.stdout, "utf-8", "replace", newline="") as output:
            for line in output:
                print(line, end="", flush=True)
                tail = (tail + line)[-_TAIL:]
        status = process.wait()
    except BaseException:  # interrupted: the other processes must not go on
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    if status:
        raise LaunchError(f"{function} failed with status {status}. The end of its output:\n{tail.strip()}")


def _main(path: str) -> None:
    """What every process does that accelerate starts."""
    from accelerate import PartialState

    PartialState()  # before weights are read: then one process reads them for all
    try:
        _call(Path(path).read_text("utf-8"))
    finally:
        PartialState().destroy_process_group()


if __name__ == "__main__":
    from torch.distributed.elastic.multiprocessing.errors import record

    record(_main)(sys.argv[1])  # so that the output ends with the traceback of the process that failed first
