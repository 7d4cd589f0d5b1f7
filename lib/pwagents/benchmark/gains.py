"""Tables of what one thing gains over another: paired differences, with intervals clustered by user."""

import pandas as pd

from pwagents.evaluation.statistics import paired_test


def paired_gains(frame: pd.DataFrame, metric: str, better: str, base: str, by: str) -> pd.DataFrame:
    """How much more method ``better`` reaches than ``base``, one row a value of ``by``.

    Args:
        frame: one row a method and task, with ``method, task_id, user_id``, ``by`` and ``metric``.

    Returns:
        The value of ``by``, then ``difference, low, high, p, n_tasks, n_users``.
    """
    rows = []
    for value, part in frame.groupby(by, sort=False):
        rows.append({by: value, **paired_test(part, metric, better, base)._asdict()})
    return pd.DataFrame(rows).drop(columns="n_left_out")
