"""The folder of a run of reinforcement learning, which can be killed at any moment and taken up again.

``run.json`` holds the settings, ``log.jsonl`` one row a step, ``checkpoint-<step>`` all that is needed to go
on from there, ``model`` the trained model.
"""

import importlib.util
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.errors import DataError
from pwagents.lm.settings import deciding
from pwagents.lm.trainer import checkpoint_step, last_checkpoint
from pwagents.project import read_json_lines, write_aside
from pwagents.rl.settings import RlSettings
from pwagents.schema import Task

LOG = "log.jsonl"  # in the folder of a run


def open_run(folder: Path, config: RlSettings, tasks: Sequence[Task]) -> "tuple[str | None, RunLog]":
    """Begin a run or take it up again: the checkpoint to go on from (None at the start), and the log.

    Raises:
        DataError: the folder holds a run with other settings or tasks.
        ImportError: the tracker is not installed.
    """
    if config.report_to != "none" and importlib.util.find_spec(config.report_to) is None:
        raise ImportError(
            f"report_to is {config.report_to!r}, but this package is not installed; 'pip install "
            f"{config.report_to}', or set report_to to 'none': the log is written either way"
        )
    path = folder / "run.json"
    run = {"method": type(config).__name__, **deciding(config), "tasks": [task.task_id for task in tasks]}
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        for name in [name for name, value in run.items() if before.get(name) != value]:
            values = [str(settings.get(name))[:60] for settings in (before, run)]
            raise DataError(path, "run", name, values[0], f"{values[1]}, or another folder for this run")
    else:
        write_aside(path, json.dumps(run, indent=1))
    checkpoint = last_checkpoint(folder)
    return checkpoint, RunLog(folder, checkpoint_step(checkpoint))


class RunLog:
    """The rows of the log.

    Args:
        folder: of the run.
        first_step: the step that the run goes on from; rows of later steps are dropped, for those steps
            will be done again.
    """

    def __init__(self, folder: Path, first_step: int):
        self.path = folder / LOG
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


def is_flat(returns: Mapping[int, float]) -> bool:
    """Whether the best return of the last third of the steps, evaluated twice or more, is no new best.

    Args:
        returns: step -> what was evaluated after it.
    """
    late = [value for step, value in returns.items() if 3 * step > 2 * max(returns)]
    early = [value for step, value in returns.items() if 3 * step <= 2 * max(returns)]
    return len(late) > 1 and bool(early) and max(late) <= max(early)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; none where there is no file yet. A last line that a kill cut short is left out.

    Raises:
        DataError: a line is not a row.
    """
    if not path.exists():
        return []
    rows = []
    for number, row in read_json_lines(path, torn=True):
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            wrong = json.dumps(row)[:60]
            raise DataError(path, f"line {number}", "step", wrong, "a JSON object with the step's number")
        rows.append(row)
    return rows


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"


def read_curves(folders: dict[str, Path | str]) -> pd.DataFrame:
    """The logs of some runs, finished or under way, one row a run and step.

    Args:
        folders: what to call a run -> its folder (of :func:`pwagents.rl.train.train_policy`).

    Returns:
        ``run``, ``step`` and a column for each number of the logs, in their order. A number that was not
        taken at a step is NaN: evaluations (``eval_...``) exist every ``eval_steps``, and at step 0 they are
        all there is.

    Raises:
        DataError: a run has no log, or a line of it is not a row.
    """
    frames = []
    for run, folder in folders.items():
        path = Path(folder) / LOG
        rows = read_rows(path)
        if not rows:
            raise DataError(path, run, "step", "no rows", "the log of a training run")
        frame = pd.DataFrame(rows)
        frame.insert(0, "run", run)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def smooth(curves: pd.DataFrame, column: str, window: int) -> pd.Series:
    """The column's mean over the last ``window`` steps of the same run; fewer at a run's beginning.

    Missing values count for nothing; where all are missing, so is the mean.
    """
    groups = curves.groupby("run", sort=False)[column]
    return groups.transform(lambda values: values.rolling(window, min_periods=1).mean())
