"""What a training run wrote down, as a frame for figures and tables."""

from pathlib import Path
from typing import TYPE_CHECKING

from pwagents.errors import DataError
from pwagents.training.rl_log import read_rows

if TYPE_CHECKING:
    import pandas as pd


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
