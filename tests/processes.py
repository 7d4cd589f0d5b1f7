"""Processes for tests that kill one: forked from one that has imported what takes seconds to import."""

import multiprocessing
from collections.abc import Callable
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "pwagents.store",
        "torch",
        "transformers.models.qwen2.modeling_qwen2",
        "trl.trainer.sft_trainer",
        "pytest",
    ]
)


def begin(function: Callable, *arguments: Any, **options: Any) -> multiprocessing.Process:
    """Call a module's function in a process of its own; one that is left over ends with the tests."""
    process = _CONTEXT.Process(target=function, args=arguments, kwargs=options, daemon=True)
    process.start()
    return process


def kill(process: multiprocessing.Process) -> None:
    """By SIGKILL, while it runs."""
    process.kill()
    process.join()
    assert process.exitcode == -9, "the process ended before it was killed"
