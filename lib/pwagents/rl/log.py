"""What a training run leaves in its folder, such that it can be killed at any moment and taken up again.

``log.jsonl`` holds one row a step, ``checkpoint-<step>`` all that is needed to go on from there, ``run.json``
the settings, ``model`` the trained model. A checkpoint counts once the file ``complete`` stands in it.

What a training run wrote down, as a frame for figures and tables.
"""

import importlib.util
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.errors import DataError
from pwagents.lm.settings import deciding
from pwagents.project import write_aside
from pwagents.rl.settings import RlSettings
from pwagents.schema import Task

if TYPE_CHECKING:
    import pandas as pd


_KEPT = 2  # checkpoints: while one is written, the one before it must stand


class RunLog:
    """The rows of ``log.jsonl``.

    Args:
        folder: of the run.
        first_step: the step that the run goes on from; rows of later steps are dropped, for those steps
            will be done again.
    """

    def __init__(self, folder: Path, first_step: int):
        self.path = folder / "log.jsonl"
        kept = [row for row in read_rows(self.path) if row["step"] <= first_step]
        self.has_first = any(row["step"] == 0 for row in kept)
        text = "".join(map(_line, kept))
        if not self.path.exists() or self.path.read_text(encoding="utf-8") != text:
            write_aside(self.path, text)

    def append(self, row: Mapping[str, float]) -> None:
        """Add the row of a step; it is on the disk before the next step begins.

        Raises:
            RuntimeError: the training has diverged.
        """
        for name in ("loss", "grad_norm"):
            if not math.isfinite(row.get(name, 0.0)):
                raise RuntimeError(
                    f"training diverged: {name} is {row[name]} at step {row['step']}; take a lower "
                    f"learning rate or a smaller max_grad_norm, in a new folder"
                )
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; none where there is no file yet. A last line that a kill cut short is left out.

    Raises:
        DataError: a line is not a row.
    """
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise DataError(path, f"line {number}", "step", line[:60], "a JSON object with the step's number")
        rows.append(row)
    return rows


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"


def open_run(
    folder: Path, method: str, config: RlSettings, tasks: Sequence[Task]
) -> tuple[Path | None, RunLog]:
    """Begin a run or take it up again: the checkpoint to go on from (None at the start), and the log.

    Raises:
        DataError: the folder holds a run with other settings or tasks.
        ImportError: the tracker is not installed.
    """
    import torch
    from accelerate import PartialState

    check_tracker(config.report_to)
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


def last_checkpoint(folder: Path) -> Path | None:
    """The latest complete checkpoint; those that a kill cut short are removed."""
    complete = []
    for checkpoint in _checkpoints(folder):
        if (checkpoint / "complete").exists():
            complete.append(checkpoint)
        else:
            shutil.rmtree(checkpoint)
    return complete[-1] if complete else None


def complete_checkpoint(checkpoint: Path) -> None:
    """Declare a checkpoint complete, and remove those before the last two."""
    write_aside(checkpoint / "complete", "")
    for old in _checkpoints(checkpoint.parent)[:-_KEPT]:
        (old / "complete").unlink(missing_ok=True)  # first of all: from here on it is not complete
        shutil.rmtree(old)


def checkpoint_step(checkpoint: Path | None) -> int:
    """The number of steps behind a checkpoint; 0 without one."""
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*"), key=checkpoint_step)


def check_tracker(report_to: str) -> None:
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
    weights = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        shutil.rmtree(aside, ignore_errors=True)  # of a save that a kill cut short
        policy = accelerator.unwrap_model(model)
        chosen = {"selected_adapters": ["default"]} if hasattr(policy, "get_base_model") else {}
        policy.save_pretrained(aside, state_dict=weights, **chosen)
        tokenizer.save_pretrained(aside)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(aside, folder)
    accelerator.wait_for_everyone()


def read_curves(folders: dict[str, Path | str]) -> "pd.DataFrame":
    """The logs of some runs, finished or under way, one row a run and step.

    Args:
        folders: what to call a run -> its folder (that of ``train_grpo`` or ``train_ppo``).

    Returns:
        ``run``, ``step`` and a column for each number of the logs, in their order. A number that was not
        taken at a step is NaN: evaluations (``eval_...``) exist every ``eval_steps``, and at step 0 they are
        all there is.

    Raises:
        DataError: a run has no log, or a line of it is not a row.
    """
    import pandas as pd

    frames = []
    for run, folder in folders.items():
        path = Path(folder) / "log.jsonl"
        rows = read_rows(path)
        if not rows:
            raise DataError(path, run, "step", "no rows", "the log of a training run")
        frame = pd.DataFrame(rows)
        frame.insert(0, "run", run)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def smooth(curves: "pd.DataFrame", column: str, window: int) -> "pd.Series":
    """The column's mean over the last ``window`` steps of the same run; fewer at a run's beginning.

    Missing values count for nothing; where all are missing, so is the mean.
    """
    groups = curves.groupby("run", sort=False)[column]
    return groups.transform(lambda values: values.rolling(window, min_periods=1).mean())
