"""How trainings run: one on several GPUs, by ``accelerate launch``, or several small ones beside each other.

    arguments = {"base": base, "rows": rows, "settings": settings.sft, "folder": folder}
    launch(fine_tune, arguments, n_gpus=2, sharding="fsdp")

A function and its arguments cross into other processes in a file: a function of a module, and values that
pickle takes.
"""

import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeVar

from pwagents import engine
from pwagents.lm.settings import BaseSettings, Sharding
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
    """Return what ``train`` gives for each unit (a seed, say), in their order.

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


def launch(
    function: Callable, arguments: Mapping[str, Any], n_gpus: int = 1, sharding: Processes = "ddp"
) -> None:
    """Call a function in ``n_gpus`` processes, each with a GPU of its own; what it returns is dropped.

    Where there is no GPU, or one alone, it runs in this process.

    Args:
        sharding: how the processes share a model (:class:`pwagents.lm.settings.TrainingSettings`).

    Raises:
        TypeError: the function does not take these arguments.
        ValueError: there are GPUs, but fewer than ``n_gpus``.
        LaunchError: it failed in other processes. In this process it raises what it raises.
    """
    import torch

    check_choice("sharding", sharding, Processes)
    signature(function).bind(**arguments)  # a wrong argument is better found before processes start
    there = torch.cuda.device_count()
    if sharding != "cpu" and n_gpus > there > 0:
        raise ValueError(f"n_gpus is {n_gpus}; expected at most {there}, as many as were found")
    processes = n_gpus if sharding == "cpu" else min(n_gpus, there)
    # One GPU of several takes a process of its own: in this one, transformers would train on all of them.
    if processes <= 1 and there <= 1:
        function(**arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.pickle"
        job.write_bytes(pickle.dumps((function, dict(arguments))))
        _run(launch_command(job, processes, sharding), function.__name__)


def launch_command(job: Path, processes: int, sharding: Processes) -> list[str]:
    """Return the command that calls a job file's function in so many processes."""
    config = PARAMS / "accelerate" / f"{sharding if processes > 1 else 'single'}.yaml"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    # Port 0: any that is free, so that two trainings do not meet.
    command += ["--num_processes", str(processes), "--main_process_port", "0"]
    return [*command, "-m", "pwagents.lm.launch", str(job)]


def _run(command: list[str], name: str) -> None:
    """Run a command, pass its output on as it comes, and raise when it fails."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
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
        raise LaunchError(f"{name} failed with status {status}. The end of its output:\n{tail.strip()}")


def _main(path: str) -> None:
    """What every process does that accelerate starts."""
    from accelerate import PartialState

    PartialState()  # before weights are read: then one process reads them for all
    try:
        function, arguments = pickle.loads(Path(path).read_bytes())
        function(**arguments)
    finally:
        PartialState().destroy_process_group()


if __name__ == "__main__":
    from torch.distributed.elastic.multiprocessing.errors import record

    record(_main)(sys.argv[1])  # so that the output ends with the traceback of the process that failed first
