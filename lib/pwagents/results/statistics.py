"""Means with intervals, and paired tests, over tasks that come in users.

What a given policy, or two, would reach on other tasks. Tasks of one user resemble each other, so they are
not independent draws. Intervals and tests are clustered by user: the variance is built from the sums of
residuals within users (the cluster-robust estimator for a mean, with the factor G / (G - 1) for G users), and
the quantile is Student's t with G - 1 degrees of freedom. What another *training* by the same method would
give, or another world, is another question: there a training or a world is the unit
    (:func:`world_comparisons`).

A mean over part of its tasks says so: a user or judge that cannot answer leaves a task without a score (what
the *agent* refuses counts 0). Then a table has a column "scored" beside that type, such as "7 of 10".
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pwagents.results.tables import format_intervals
from pwagents.schema import TASK_TYPES, Task
from pwagents.seeds import rng

# Metrics from 0 to 1.
SHARES = ("function_accuracy", "step_accuracy", "result_official", "result_final", "result_accuracy")
OVERALL = "overall"  # in place of a task type: all tasks, in whose mean each weighs the same
SCORED = "scored"  # heading: how many of a type's tasks a mean is over, if it is not over all
_FLIPS = 9_999  # random sign flips where there are too many to try them all


class Interval(NamedTuple):
    """A mean and its 95% confidence interval; ``low`` and ``high`` are NaN with fewer than two clusters."""

    mean: float
    low: float
    high: float


class PairedTest(NamedTuple):
    """Mean difference a - b of two policies on the tasks both were scored on, its interval, two-sided p."""

    difference: float
    low: float
    high: float
    p: float
    n_tasks: int
    n_users: int
    n_left_out: int  # tasks that only one of the two was scored on


def mean_interval(values: Sequence[float], clusters: Sequence) -> Interval:
    """Return the mean of ``values`` with an interval clustered by ``clusters`` (one label per value).

    ``statsmodels`` gives the same: OLS on a constant, ``cov_type="cluster"``, ``use_t=True``.

    Raises:
        ValueError: the lengths differ, or a value is not finite (leave missing values out first).
    """
    values = np.asarray(values, dtype=float)
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values but {len(clusters)} cluster labels")
    if not np.isfinite(values).all():
        raise ValueError("values must be finite; leave missing values out first")
    if len(values) == 0:
        return Interval(np.nan, np.nan, np.nan)
    codes, labels = pd.factorize(np.asarray(clusters, dtype=object))
    mean, n_clusters = float(values.mean()), len(labels)
    if n_clusters < 2:
        return Interval(mean, np.nan, np.nan)
    # Residuals of one user's tasks lean the same way and add up, where independent ones would cancel: so the
    # users' sums are squared, not the tasks' residuals.
    sums = np.bincount(codes, weights=values - mean)
    error = np.sqrt(n_clusters / (n_clusters - 1) * (sums**2).sum() / len(values) ** 2)
    from scipy.special import stdtrit

    half = stdtrit(n_clusters - 1, 0.975) * error
    return Interval(mean, mean - half, mean + half)


def share_interval(values: Sequence[float], clusters: Sequence) -> Interval:
    """Return the interval of a metric from 0 to 1: cut at both ends, Wilson's where all are 0 or all 1.

    Without any spread :func:`mean_interval` is a point, however few tasks there are. Wilson's (1927) is not.
    It counts clusters, each of which is then a hit or a miss: more tasks of one user add no certainty.
    """
    interval = mean_interval(values, clusters)
    if interval.mean in (0, 1) and interval.low == interval.high:
        from statsmodels.stats.proportion import proportion_confint

        n_clusters = len(set(clusters))
        ends = proportion_confint(interval.mean * n_clusters, n_clusters, method="wilson")
        interval = Interval(interval.mean, min(ends[0], interval.mean), max(ends[1], interval.mean))
    return Interval(interval.mean, max(interval.low, 0.0), min(interval.high, 1.0))


def summarise(frame: pd.DataFrame, by: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """Tabulate means with intervals clustered by user, one row per group of ``by`` and metric.

    Args:
        frame: one row an episode with ``task_id``, ``user_id``, the columns of ``by`` and of ``metrics``.

    Returns:
        The columns of ``by`` (in the order of first appearance), then ``metric, mean, low, high, n_tasks,
        n_users`` and ``n_missing``, rows that were not scored, which enter no mean. Intervals of
        :data:`SHARES` are those of :func:`share_interval`.
    """
    groups = frame.groupby(list(by), sort=False, dropna=False) if by else [((), frame)]
    # Missing values enter no mean: they are counted beside it.
    rows = []
    for labels, group in groups:
        for metric in metrics:
            scored = group.dropna(subset=[metric])
            interval_of = share_interval if metric in SHARES else mean_interval
            interval = interval_of(scored[metric], scored["user_id"])
            tasks, users = scored["task_id"].nunique(), scored["user_id"].nunique()
            rows.append((*labels, metric, *interval, tasks, users, len(group) - len(scored)))
    return pd.DataFrame(rows, columns=[*by, "metric", *Interval._fields, "n_tasks", "n_users", "n_missing"])


def paired_test(frame: pd.DataFrame, metric: str, a: str, b: str, *, flips: int = _FLIPS) -> PairedTest:
    """Compare two given policies, ``a`` and ``b``, on the same tasks: difference a - b, interval, p.

    p is of a sign-flip test by user: had neither policy an advantage, each user's summed difference might as
    well have the other sign. All combinations of signs are tried for up to 13 users with any difference, else
    9,999 at random, so that p is never below .0002. Where few users differ, such p are larger than those of a
    t-test, whose interval (given here) then is too narrow. p is 1 where at most one user differs, and NaN
    with fewer than two users.

    Args:
        frame: one row an episode with ``method, task_id, user_id`` and ``metric``. A method's rows on one
            task, as from several seeds, are averaged first. Rows without the metric are left out.
        flips: random sign flips; 0: no p is wanted, it is NaN.
    """
    scored = frame[frame["method"].isin([a, b])].dropna(subset=[metric])
    wide = scored.groupby(["user_id", "task_id", "method"])[metric].mean().unstack("method")
    both = wide.reindex(columns=[a, b]).dropna()
    users = both.index.get_level_values("user_id")
    differences = both[a] - both[b]
    sums = differences.groupby(users).sum().to_numpy()
    flipped = sums[np.abs(sums) > 1e-9]  # users without a difference have no sign to flip
    if not flips or len(sums) < 2 or len(flipped) < 2:
        p = np.nan if not flips or len(sums) < 2 else 1.0
    else:
        from scipy.stats import permutation_test

        look = {"permutation_type": "samples", "vectorized": True, "n_resamples": flips, "batch": 1_000}
        p = float(permutation_test((flipped,), np.sum, rng=np.random.default_rng(0), **look).pvalue)
    interval = mean_interval(differences, users)
    return PairedTest(*interval, p, len(both), users.nunique(), len(wide) - len(both))


def name_left_out(table: pd.DataFrame) -> pd.DataFrame:
    """Drop the column ``n_left_out`` of paired tests where both methods were scored on all tasks."""
    return table if table["n_left_out"].any() else table.drop(columns="n_left_out")


def sample_tasks(tasks: Sequence[Task], n: int, seed: int) -> list[Task]:
    """Draw ``n`` of the tasks, in their order; all of them for ``n`` = 0 or more than there are."""
    if not 0 < n < len(tasks):
        return list(tasks)
    chosen = rng(seed, "sample_tasks").choice(len(tasks), size=n, replace=False)
    return [tasks[i] for i in sorted(chosen)]


def sort_by_type(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by ``method``, as they first appear, then by ``type``, those of all tasks last."""
    order = {"method": list(frame["method"].unique()), "type": (*TASK_TYPES, OVERALL)}
    return frame.sort_values(["method", "type"], key=lambda c: c.map(order[c.name].index), kind="stable")


def split_by_type(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Split episodes by the types that were played; after several types, "overall" has all of them."""
    parts = [(task, frame[frame["type"] == task]) for task in TASK_TYPES if task in set(frame["type"])]
    return [*parts, (OVERALL, frame)] if len(parts) > 1 else parts


def by_task(frame: pd.DataFrame, metrics: Mapping[str, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tabulate one row a method, one column a task type and metric: the shape of PersonalWAB's Table 3.

    Only types that were played have columns. Several are followed by "overall", the mean over all tasks,
    which stays empty for a method that was not scored on all of these types.

    Args:
        metrics: column of ``frame`` -> its name in the table.

    Returns:
        The means, and the same as text with 95% intervals clustered by user. Where a method was scored on
        part of a type's tasks, both have a column (type, :data:`SCORED`).
    """
    methods, parts = frame["method"].unique(), split_by_type(frame)
    means, cells = {}, {}
    for task, part in parts:
        for metric, name in metrics.items():
            summary = summarise(part, ["method"], [metric]).set_index("method")
            if task == OVERALL:  # a mean over fewer types is no overall
                n_types = part.dropna(subset=[metric]).groupby("method")["type"].nunique()
                summary.loc[n_types.reindex(summary.index, fill_value=0) < len(parts) - 1, "mean"] = np.nan
            means[task, name], cells[task, name] = summary["mean"], format_intervals(summary)
        # A metric that a method has nowhere (a reference has no steps) says nothing of what was scored.
        scored = part[list(metrics)].notna().any(axis=1).groupby(part["method"]).agg(["sum", "size"])
        partly = scored[scored["sum"] < scored["size"]]
        if len(partly):
            texts = partly["sum"].astype(str) + " of " + partly["size"].astype(str)
            means[task, SCORED] = cells[task, SCORED] = texts
    tables = (pd.DataFrame(columns).reindex(methods).rename_axis("method") for columns in (means, cells))
    return tuple(tables)


def world_comparisons(
    frame: pd.DataFrame, metric: str, pairs: Mapping[str, tuple[str, str]], resamples: int = 999
) -> pd.DataFrame:
    """Compare methods over worlds, a row a comparison and task type: here the world is the unit.

    A world has its own shop, people and trainings (another seed of the data). It gives one difference, the
    mean over the tasks that both methods were scored on. What other users of the same worlds would give is
    another, narrower question: for it each world's users are resampled, with all of their tasks.

    Args:
        frame: one row an episode, with its ``world``; task types are told in order of appearance.
        pairs: what is compared, in words -> the two methods, first minus second.

    Returns:
        ``comparison, task, difference, low, high, p`` by Student's t over worlds (NaN with fewer than two,
        p also where all worlds differ alike), ``users_low, users_high``, the middle 95% over resampled users,
        and ``n_worlds``.
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
                drawn = rng(0, "resampled users", str(world)).integers(
                    len(users), size=(resamples, len(users))
                )
                sums = users[drawn].sum(axis=1)
                resampled.append(sums[:, 0] / sums[:, 1])
            ends = np.quantile(np.mean(resampled, axis=0), [0.025, 0.975]) if resampled else [np.nan] * 2
            rows.append((name, task, *_t_test(of_worlds), *ends, len(of_worlds)))
    columns = ["comparison", "task", "difference", "low", "high", "p", "users_low", "users_high", "n_worlds"]
    return pd.DataFrame(rows, columns=columns)


def _t_test(differences: pd.Series) -> tuple[float, float, float, float]:
    """Return mean, interval and two-sided p by Student's t: each difference is a unit of its own."""
    from scipy.stats import ttest_1samp

    interval = mean_interval(differences, differences.index)
    # Units that differ alike have means whose last bits may differ.
    differ = differences.max() - differences.min() > 1e-12 * max(1.0, differences.abs().max())
    return *interval, float(ttest_1samp(differences, 0).pvalue) if differ else np.nan


def paired_tests(frame: pd.DataFrame, metric: str, pairs: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Compare methods on the same tasks, one row a comparison and task type.

    Args:
        pairs: what is compared, in words -> the two methods, first minus second.

    Returns:
        ``comparison, task``, then those of :class:`PairedTest`.
    """
    rows = [
        {"comparison": name, "task": task, **paired_test(part, metric, a, b)._asdict()}
        for name, (a, b) in pairs.items()
        for task, part in split_by_type(frame)
        if task != OVERALL
    ]
    return name_left_out(pd.DataFrame(rows))
