"""Methods of training compared over seeds: each seed is a training of its own.

    means = means_by_seed(frame, "result_final")     once; most of the other functions read it
    table = by_seed(means)

What is called ``frame`` has one row an episode, as from :func:`pwagents.evaluation.runner.records_frame`,
with the ``seed`` of its training.
"""

from collections.abc import Mapping

import pandas as pd

from pwagents.evaluation.breakdowns import by_type_and_mean, in_order, parts_of
from pwagents.evaluation.statistics import mean_interval, noise_floor, over_seeds, within_range
from pwagents.evaluation.tables import interval_cells

MUST_EXCEED = "what a difference must exceed"  # heading


def means_by_seed(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """:func:`by_type_and_mean` of each ``seed`` of the frame, and which seed it is.

    Args:
        metric: a column of the frame, a share.
    """
    of_seeds = [by_type_and_mean(own, metric).assign(seed=seed) for seed, own in frame.groupby("seed")]
    return in_order(pd.concat(of_seeds)).reset_index(drop=True)


def by_seed(means: pd.DataFrame) -> pd.DataFrame:
    """One row a method of training and task type: the mean of each seed, then over seeds, with Student's t
    over seeds; of several types, each weighs the same in their mean.

    Args:
        means: of :func:`means_by_seed`.

    Returns:
        ``method, type``, a column "seed ..." each, ``mean, low, high`` and ``sd`` (of the seeds' means).
    """
    wide = means.set_index(["method", "type", "seed"])["mean"].unstack("seed", sort=False)
    over = [within_range(mean_interval(own.dropna(), own.dropna().index)) for _, own in wide.iterrows()]
    table = wide.rename(columns="seed {}".format).reset_index().rename_axis(columns=None)
    return pd.concat([table, pd.DataFrame(over)], axis=1).assign(sd=wide.std(axis=1).to_numpy())


def seeds_shown(table: pd.DataFrame) -> pd.DataFrame:
    """A table of :func:`by_seed` to be read: the mean with its interval, a heading that says what it is."""
    shown = table.assign(mean=interval_cells(table)).drop(columns=["low", "high"])
    return shown.rename(columns={"sd": "deviation of seeds"})


def means_over_seeds(means: pd.DataFrame) -> pd.DataFrame:
    """The means of :func:`by_seed` for a figure: ``method, type, mean, low, high, n_tasks, n_seeds``.

    Args:
        means: of :func:`means_by_seed`.
    """
    over = by_seed(means)[["method", "type", "mean", "low", "high"]]
    n_tasks = means.groupby("type")["n_tasks"].max()
    return over.assign(n_tasks=over["type"].map(n_tasks), n_seeds=means["seed"].nunique())


def seed_comparisons(means: pd.DataFrame, pairs: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Methods of training compared over seeds, a row a comparison and task type, after several their mean.

    Args:
        means: of :func:`means_by_seed`.
        pairs: what is compared, in words -> the two methods, first minus second.

    Returns:
        ``comparison, task, difference, low, high, p, n_seeds``, of
        :func:`pwagents.evaluation.statistics.over_seeds`. Where one of the two did not play, there is no row.
    """
    rows = [
        {"comparison": name, "task": task, **over_seeds(own, "mean", a, b)._asdict()}
        for name, (a, b) in pairs.items()
        for task, own in means.groupby("type", sort=False)
        if {a, b} <= set(own["method"])
    ]
    return pd.DataFrame(rows)


def noise_of_seeds(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """:func:`pwagents.evaluation.statistics.noise_floor` of each task type and, after several types, of all
    tasks ("overall"), under headings that say what the columns are."""
    headings = {
        "sd": "deviation of seeds",
        "largest": "largest difference of two seeds",
        "must_exceed": MUST_EXCEED,
    }
    parts = [noise_floor(own, metric).assign(type=type_) for type_, own in parts_of(frame)]
    floor = in_order(pd.concat(parts)).rename(columns=headings).reset_index(drop=True)
    return floor[["method", "type", *floor.columns.drop(["method", "type"])]]


def must_exceed(floor: pd.DataFrame, method: str) -> dict[str, float] | None:
    """The noise of a method's seeds in a table of :func:`noise_of_seeds`: task type -> what a difference
    there must exceed; None with one seed."""
    noise = floor[floor["method"] == method].set_index("type")[MUST_EXCEED]
    return None if noise.isna().any() else noise.to_dict()
