"""The folder of a run of reinforcement learning, which can be killed at any moment and taken up again.

``run.json`` holds the settings, ``log.jsonl`` one row a step, ``checkpoint-<step>`` all that is needed to go
on from there, ``model`` the trained model.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pwagents.errors import DataError
from pwagents.llm.folder import point_to_base
from pwagents.lm.settings import deciding
from pwagents.lm.trainer import checkpoint_step, last_checkpoint
from pwagents.project import write_aside
from pwagents.rl.log import RunLog
from pwagents.rl.settings import RlSettings
from pwagents.schema import Task


def open_run(
    folder: Path, method: str, config: RlSettings, tasks: Sequence[Task]
) -> tuple[str | None, RunLog]:
    """Begin a run or take it up again: the checkpoint to go on from (None at the start), and the log.

    Raises:
        DataError: the folder holds a run with other settings or tasks.
        ImportError: the tracker is not installed.
    """
    import torch
    from accelerate import PartialState

    _check_tracker(config.report_to)
    # One process writes settings and removes broken checkpoints; the others then find all in order.
    with PartialState(cpu=not torch.cuda.is_available()).main_process_first():
        _check_settings(folder, method, config, tasks)
        checkpoint = last_checkpoint(folder)
        return checkpoint, RunLog(folder, checkpoint_step(checkpoint))


def _check_settings(folder: Path, method: str, config: RlSettings, tasks: Sequence[Task]) -> None:
    run = {"method": method, **deciding(config), "tasks": [task.task_id for task in tasks]}
    path = folder / "run.json"
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        for name, value in run.items():
            if found.get(name) != value:
                shown = [str(v)[:60] for v in (found.get(name), value)]
                raise DataError(path, "run", name, shown[0], f"{shown[1]}, or another folder for this run")
    else:
        write_aside(path, json.dumps(run, indent=1))


def _check_tracker(report_to: str) -> None:
    """Refuse a tracker that is not installed before anything is computed.

    Raises:
        ImportError: says what to install.
    """
    if report_to != "none" and importlib.util.find_spec(report_to) is None:
        raise ImportError(
            f"report_to is {report_to!r}, but the package {report_to} is not installed; "
            f"'pip install {report_to}', or set report_to to 'none': the log is written either way"
        )


def save_policy(accelerator: Any, model: Any, tokenizer: Any, folder: Path) -> None:
    """Write the trained model and its tokenizer beside ``folder``, then move them there.

    Where an adapter was trained, that alone is written: merged into weights in bfloat16, small updates would
    be lost. ``AutoModelForCausalLM.from_pretrained(folder)`` puts it on its base model, whose place it names.
    """
    aside = folder.with_name(f".{folder.name}")
    weights = accelerator.get_state_dict(model)  # in all processes: each may hold a part
    if accelerator.is_main_process:
        shutil.rmtree(aside, ignore_errors=True)  # of a save that a kill cut short
        policy = accelerator.unwrap_model(model)
        chosen = (
            {"selected_adapters": ["default"]} if hasattr(policy, "get_base_model") else {}
        )  # no reference's
        policy.save_pretrained(aside, state_dict=weights, **chosen)
        point_to_base(aside)
        tokenizer.save_pretrained(aside)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(aside, folder)
    accelerator.wait_for_everyone()
