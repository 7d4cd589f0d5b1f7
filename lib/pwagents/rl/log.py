"""The log of a run of reinforcement learning, which can be killed at any moment and taken up again.

In the run's folder, ``log.jsonl`` holds one row a step, ``checkpoint-<step>`` all that is needed to go on
from there, ``model`` the trained model.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from pwagents.errors import DataError
from pwagents.files import read_json_lines, write_aside
from pwagents.lm.train import checkpoint_step, last_checkpoint

LOG = "log.jsonl"  # in the folder of a run
Row = dict[str, float]  # of the log: numbers of a step


def open_log(folder: Path) -> tuple[str | None, list[Row]]:
    """Return the checkpoint that a run goes on from (None at its start), and the log's rows so far.

    Rows of later steps than the checkpoint's are dropped: those steps will be done again.
    """
    checkpoint, log = last_checkpoint(folder), folder / LOG
    rows = [row for row in read_rows(log) if row["step"] <= checkpoint_step(checkpoint)]
    # A line that a kill cut short goes, too.
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if not log.exists() or log.read_text(encoding="utf-8") != text:
        write_aside(log, text)
    return checkpoint, rows


def append_row(folder: Path, row: Row) -> None:
    """Add a step to the log of a run; it is on the disk before the next step begins.

    Raises:
        RuntimeError: the training has diverged.
    """
    for name in ("loss", "grad_norm"):
        if not math.isfinite(row.get(name, 0.0)):
            raise RuntimeError(
                f"training diverged: {name} is {row[name]} at step {row['step']}; take a lower learning rate"
            )
    with open(folder / LOG, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a log; none where there is no file yet. A line that a kill cut short is left out.

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


def read_curves(folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return the logs of some runs, finished or under way, one row a run and step.

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
