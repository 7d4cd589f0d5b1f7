"""How trainings run: one on several GPUs, by ``accelerate launch``, or several small ones beside each other.

    def fine_tune(base, rows, settings, folder):
        given = {"base": base, "rows": rows, "settings": settings, "folder": folder}
        if launch(fine_tune, given, settings.n_gpus, settings.sharding):
            return  # other processes did it

A function and its arguments cross into other processes in a file: a function of a module, and values that
pickle takes.
"""

import gc
import io
import os
import pickle
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pwagents import engine
from pwagents.settings import PARAMS, BaseSettings, Sharding

U = TypeVar("U")
R = TypeVar("R")
LAUNCHED = "PWAGENTS_LAUNCHED"  # an environment variable of processes that :func:`launch` started


class LaunchError(RuntimeError):
    """A function failed in other processes; the message holds the end of their output."""


def side_by_side(
    train: Callable[[U], R], units: Sequence[U], base: BaseSettings, *, one_by_one: bool
) -> list[R]:
    """Return what ``train`` gives for each unit (a seed, say), in their order.

    The small model's trainings run beside each other: on the cluster, where the engine is one, else in a
    process a core. Those that take GPUs follow one another, each on all GPUs of this machine.

    Args:
        train: makes models; it runs where they are not there yet, too.
        base: the model that the trainings start from.
        one_by_one: in this process, one after another: nothing is trained, say.
    """
    if one_by_one or not base.is_small:
        return [train(unit) for unit in units]
    return engine.beside(train, units)


def launch(
    function: Callable, arguments: Mapping[str, Any], n_gpus: int = 1, sharding: Sharding = "ddp"
) -> bool:
    """Call a function in ``n_gpus`` processes, each with a GPU of its own, and wait until they are done.

    Args:
        sharding: how the processes share a model (:class:`pwagents.settings.TrainingSettings`).

    Returns:
        False, and nothing is called, if this process is to do the work itself: there is one GPU at most, or
        it is one of the processes that were started.

    Raises:
        ValueError: there are GPUs, but fewer than ``n_gpus``.
        LaunchError: it failed in other processes.
    """
    import torch

    free_memory()
    if LAUNCHED in os.environ:
        return False
    there = torch.cuda.device_count()
    if sharding != "cpu" and n_gpus > there > 0:
        raise ValueError(f"n_gpus is {n_gpus}; expected at most {there}, as many as were found")
    processes = n_gpus if sharding == "cpu" else min(n_gpus, there)
    # One GPU of several takes a process of its own: in this one, transformers would train on all of them.
    if processes <= 1 and there <= 1:
        return False
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.pickle"
        job.write_bytes(pickle.dumps((function, dict(arguments))))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        environment = os.environ | {"PYTHONUNBUFFERED": "1", LAUNCHED: "1"}
        # An interrupt of a notebook reaches these processes, too: they are of its kernel's group.
        with subprocess.Popen(launch_command(job, processes, sharding), env=environment, **pipes) as process:
            # newline="" ends lines at "\r", too, and leaves it there: progress bars write nothing else
            output = io.TextIOWrapper(process.stdout, "utf-8", "replace", newline="")
            tail = deque(maxlen=100)
            for line in output:
                print(line, end="", flush=True)
                tail.append(line)
    if process.returncode:
        problem = f"{function.__name__} failed with status {process.returncode}"
        raise LaunchError(f"{problem}. The end of its output:\n{''.join(tail).strip()}")
    return True


def free_memory() -> None:
    """Give back what models that this process is done with still hold of a GPU: they refer to themselves."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def launch_command(job: Path, processes: int, sharding: Sharding) -> list[str]:
    """Return the command that calls a job file's function in so many processes."""
    config = PARAMS / "accelerate" / f"{sharding if processes > 1 else 'single'}.yaml"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    # Port 0: any that is free, so that two trainings do not meet.
    command += ["--num_processes", str(processes), "--main_process_port", "0"]
    return [*command, "-m", "pwagents.lm.launch", str(job)]


def _call(job: str) -> None:
    """Call a job file's function, in each process that accelerate starts."""
    import torch
    from accelerate import PartialState

    # Before weights are read: then one process reads them for all.
    PartialState(cpu=not torch.cuda.is_available())
    try:
        function, arguments = pickle.loads(Path(job).read_bytes())
        function(**arguments)
    finally:
        PartialState().destroy_process_group()


if __name__ == "__main__":
    from torch.distributed.elastic.multiprocessing.errors import record

    record(_call)(sys.argv[1])  # so that the output ends with the traceback of the process that failed first
    # Its work is done. While Python takes itself down, a thread of gloo that lets go of a tensor aborts the
    # process (pytorch/pytorch, pull request 179291). No output is left behind: PYTHONUNBUFFERED.
    os._exit(0)
