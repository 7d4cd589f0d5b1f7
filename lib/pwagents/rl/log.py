"""The log of a run of reinforcement learning, one row a step: written as the run goes, read for figures."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.errors import DataError
from pwagents.project import read_json_lines, write_aside

LOG = "log.jsonl"  # in the folder of a run


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
        folders: what to call a run -> its folder (that of ``train_grpo`` or ``train_ppo``).

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
