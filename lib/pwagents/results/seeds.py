"""Methods compared over seeds of a training, or over worlds.

These are the units, not the tasks: however many tasks are played, a method that was trained once has not been
compared with another. A ``frame`` has one row an episode (:func:`pwagents.results.episodes.frame`), with the
``seed`` of its training; ``means`` are those of :func:`means_by_seed`.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product

import numpy as np
import pandas as pd

from pwagents.results.statistics import (
    MEAN,
    SHARES,
    Interval,
    by_type_and_mean,
    mean_interval,
    sort_by_type,
    split_by_type,
)
from pwagents.results.tables import format_intervals
from pwagents.seeds import rng

MUST_EXCEED = "what a difference must exceed"  # heading
NO_EFFECT = 0.05  # a difference of result accuracy that is as good as none
_RESAMPLES = 999


def means_by_seed(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Tabulate :func:`by_type_and_mean` for each ``seed`` of the frame."""
    of_seeds = [by_type_and_mean(own, metric).assign(seed=seed) for seed, own in frame.groupby("seed")]
    return sort_by_type(pd.concat(of_seeds)).reset_index(drop=True)


def by_seed(means: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the means of each seed ("seed 0", ...) and over seeds, by method and task type.

    The interval is Student's t over seeds, of shares cut at 0 and 1; ``sd`` is of the seeds' means, and
    ``n_missing`` counts episodes that were not scored, where there are any.
    """
    rows = means.groupby(["method", "type"], sort=False)
    wide = means.set_index(["method", "type", "seed"])["mean"].unstack("seed", sort=False)
    # A seed's mean is no hit or miss: no Wilson's interval where all are 0 or all 1.
    over = pd.DataFrame([mean_interval(own.dropna(), own.dropna().index) for _, own in wide.iterrows()])
    table = wide.rename(columns="seed {}".format).reset_index().rename_axis(columns=None)
    over = over.clip(0, 1) if {*means["metric"]} <= {*SHARES} else over
    table = pd.concat([table, over], axis=1).assign(sd=wide.std(axis=1).to_numpy())
    missing = rows["n_missing"].sum().reindex(wide.index).to_numpy()
    return table.assign(n_missing=missing) if missing.any() else table


def format_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Format a table of :func:`by_seed`: means with their intervals, plain headings."""
    formatted = table.assign(mean=format_intervals(table)).drop(columns=["low", "high"])
    return formatted.rename(columns={"sd": "deviation of seeds"}).drop(columns="n_missing", errors="ignore")


def means_over_seeds(means: pd.DataFrame) -> pd.DataFrame:
    """Tabulate means over seeds for a figure, with ``n_tasks`` and ``n_seeds``."""
    over = by_seed(means)
    columns = [name for name in ("method", "type", *Interval._fields, "n_missing") if name in over]
    n_tasks = over["type"].map(means.groupby("type")["n_tasks"].max())
    return over[columns].assign(n_tasks=n_tasks, n_seeds=means["seed"].nunique())


def seed_comparisons(means: pd.DataFrame, pairs: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Compare methods by their seeds' paired differences, by comparison and task type.

    Args:
        pairs: what is compared, in words -> the two methods, first minus second.

    Returns:
        ``comparison, task, difference, low, high, p, n_seeds``, by Student's t over seeds (two-sided). The
        interval and p are NaN with fewer than two common seeds, p also where all seeds differ alike. Where
        one of the two did not play, there is no row.
    """
    rows = []
    for name, (a, b) in pairs.items():
        for task, own in means.groupby("type", sort=False):
            if {a, b} <= set(own["method"]):
                both = own.pivot(index="seed", columns="method", values="mean")[[a, b]].dropna()
                rows.append((name, task, *_t_test(both[a] - both[b]), len(both)))
    return pd.DataFrame(rows, columns=["comparison", "task", "difference", "low", "high", "p", "n_seeds"])


def with_verdicts(effects: pd.DataFrame) -> pd.DataFrame:
    """Say of each effect of a part what its interval decides, on the mean of the types of tasks.

    Args:
        effects: of :func:`seed_comparisons`.

    Returns:
        The same with ``verdict``: "identified" where the interval lies above 0, "no effect" where it lies
        within :data:`NO_EFFECT` of 0, else "undecided"; empty for single types.
    """
    low, high = effects["low"], effects["high"]
    is_none = (low >= -NO_EFFECT) & (high <= NO_EFFECT)
    verdicts = np.select([low > 0, is_none], ["identified", "no effect"], "undecided")
    return effects.assign(verdict=np.where(effects["task"] == MEAN, verdicts, ""))


def _t_test(differences: pd.Series) -> tuple[float, float, float, float]:
    """Return mean, interval and two-sided p by Student's t."""
    from scipy.stats import ttest_1samp

    interval = mean_interval(differences, differences.index)
    # Units that differ alike have means whose last bits may differ.
    differ = differences.max() - differences.min() > 1e-12 * max(1.0, differences.abs().max())
    return *interval, float(ttest_1samp(differences, 0).pvalue) if differ else np.nan


def noise_of_seeds(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Measure how far two runs of one method differ if only the seed does, by method and task type.

    "overall" follows several types. Tasks that were not scored under all seeds are left out.

    Returns:
        ``method, type, seeds, mean``, the deviation of the seeds' means, the largest difference of two of
        them, and :data:`MUST_EXCEED`: the farthest end of any 95% interval of the paired difference of two
        seeds, clustered by user. The last three are NaN with one seed.
    """
    rows = []
    for (task, part), method in product(split_by_type(frame), frame["method"].unique()):
        # The same tasks under each seed: what differs is the seed alone.
        own = part[part["method"] == method]
        wide = own.pivot(index=["user_id", "task_id"], columns="seed", values=metric).dropna()
        users, means = wide.index.get_level_values("user_id"), wide.mean()
        tests = [mean_interval(wide[a] - wide[b], users) for a, b in combinations(wide.columns, 2)]
        largest = np.max([abs(test.mean) for test in tests] or [np.nan])
        farthest = np.max([max(-test.low, test.high) for test in tests] or [np.nan]) + 0.0  # never -0
        if len(own):
            rows.append((method, task, len(means), means.mean(), means.std(), largest, farthest))
    names = ["deviation of seeds", "largest difference of two seeds", MUST_EXCEED]
    floor = pd.DataFrame(rows, columns=["method", "type", "seeds", "mean", *names])
    return sort_by_type(floor).reset_index(drop=True)


def with_mean_of_types(frame: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Add all episodes once more, as of the type "mean": in the mean over a world each type counts alike.

    Args:
        frame: one row an episode, with its ``world``; each method played the same tasks.
        metrics: columns whose values are weighted for that.
    """
    n_of_type = frame.groupby(["world", "type"])["task_id"].transform("nunique")
    of_world = frame.groupby("world")
    weights = of_world["task_id"].transform("nunique") / of_world["type"].transform("nunique") / n_of_type
    weighted = {metric: frame[metric] * weights for metric in metrics}
    return pd.concat([sort_by_type(frame), frame.assign(type=MEAN, **weighted)])


def world_comparisons(frame: pd.DataFrame, metric: str, pairs: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Compare methods over worlds, a row a comparison and task type.

    A world has its own shop, people and trainings (another seed of the data). It gives one difference, the
    mean over the tasks that both methods were scored on. What other users of the same worlds would give is
    another, narrower question: for it each world's users are resampled, with all of their tasks.

    Args:
        frame: one row an episode, with its ``world``.
        pairs: as of :func:`seed_comparisons`.

    Returns:
        As of :func:`seed_comparisons`, over worlds, with ``users_low, users_high``, the middle 95% over
        resampled users.
    """
    rows = []
    for name, (a, b) in pairs.items():
        for task, part in frame.groupby("type", sort=False):
            wide = part.pivot_table(metric, ["world", "user_id", "task_id"], "method").reindex(columns=[a, b])
            differences = (wide[a] - wide[b]).dropna()
            of_worlds = differences.groupby("world").mean()
            resampled = []  # (worlds, resamples)
            for world, own in differences.groupby("world"):
                users = own.groupby("user_id").agg(["sum", "size"]).to_numpy()
                generator = rng(0, "resampled users", str(world))
                drawn = generator.integers(len(users), size=(_RESAMPLES, len(users)))
                sums = users[drawn].sum(axis=1)
                resampled.append(sums[:, 0] / sums[:, 1])
            ends = np.quantile(np.mean(resampled, axis=0), [0.025, 0.975]) if resampled else [np.nan] * 2
            rows.append((name, task, *_t_test(of_worlds), *ends, len(of_worlds)))
    columns = ["comparison", "task", "difference", "low", "high", "p", "users_low", "users_high", "n_worlds"]
    return pd.DataFrame(rows, columns=columns)
