"""Means with intervals and paired tests, over tasks that come in users, and over seeds of a training.

Two kinds of chance are kept apart. **Over tasks**: what a given policy, or two, would reach on other tasks.
Tasks of one user resemble each other, so they are not independent draws. These intervals and tests are
clustered by user: the variance is built from the sums of residuals within users (the cluster-robust
estimator for a mean, with the factor G / (G - 1) for G users) and the quantile is Student's t with G - 1
degrees of freedom. Intervals of a metric from 0 to 1 are cut at the ends of that range: Wilson's, which never
reach beyond it, are for shares of independent hits, and ours are neither hits nor independent.

**Over seeds** (:func:`over_seeds`): what another training by the same method would give. The seed is the
unit. However many tasks are played, a method that was trained once has not been compared with another.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

SHARES = (
    *("function_accuracy", "step_accuracy", "result_official", "result_final", "result_accuracy", "value"),
    *("website_retrieval", "website_utilization", "preference_retrieval", "preference_utilization"),
    *("p_web", "p_pref", "p_avg", "intent", "success", "reached"),
)
_FLIPS = 9_999  # random sign flips where there are too many to try them all


class Interval(NamedTuple):
    """A mean and its confidence interval; ``low`` and ``high`` are NaN with fewer than two clusters."""

    mean: float
    low: float
    high: float


class PairedTest(NamedTuple):
    """Mean difference a - b of two given policies on the tasks both were scored on, its interval and
    two-sided p."""

    difference: float
    low: float
    high: float
    p: float
    n_tasks: int
    n_users: int
    n_left_out: int  # tasks that only one of the two was scored on


class SeedTest(NamedTuple):
    """Mean difference a - b of two methods of training over seeds, its interval and two-sided p."""

    difference: float
    low: float
    high: float
    p: float
    n_seeds: int


def mean_interval(values: Sequence[float], clusters: Sequence, level: float = 0.95) -> Interval:
    """Mean of ``values`` with an interval clustered by ``clusters`` (one label per value).

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
    mean, error, n_clusters = _mean_and_error(values, clusters)
    from scipy.special import stdtrit

    half = stdtrit(n_clusters - 1, (1 + level) / 2) * error if n_clusters > 1 else np.nan
    return Interval(mean, mean - half, mean + half)


def within_range(interval: Interval) -> Interval:
    """The interval of a share, cut at 0 and 1."""
    return Interval(interval.mean, max(interval.low, 0.0), min(interval.high, 1.0))


def _mean_and_error(values: np.ndarray, clusters: Sequence) -> tuple[float, float, int]:
    """Mean, its cluster-robust standard error (NaN for one cluster) and the number of clusters."""
    codes, labels = pd.factorize(np.asarray(clusters, dtype=object))
    n_clusters = len(labels)
    mean = float(values.mean())
    # Residuals of one user's tasks lean the same way and add up, where independent ones would cancel: so the
    # users' sums are squared, not the tasks' residuals.
    sums = np.bincount(codes, weights=values - mean)
    if n_clusters < 2:
        return mean, np.nan, n_clusters
    variance = n_clusters / (n_clusters - 1) * (sums**2).sum() / len(values) ** 2
    return mean, float(np.sqrt(variance)), n_clusters


def paired_test(frame: pd.DataFrame, metric: str, a: str, b: str, level: float = 0.95) -> PairedTest:
    """Compare two given policies, ``a`` and ``b``, on the same tasks: difference a - b, interval, p.

    p is of a sign-flip test by user: had neither policy an advantage, each user's summed difference might as
    well have the other sign. All combinations of signs are tried for up to 13 users with any difference, else
    9,999 at random, so that p is never below .0002. Where few users differ, such p are larger than those of a
    t-test, whose interval (given here) then is too narrow.

    Args:
        frame: one row per episode with ``method``, ``task_id``, ``user_id`` and ``metric``
            (:func:`pwagents.evaluation.runner.records_frame`). Several rows of one method on one task, as
            from several seeds, are averaged first. Rows without the metric are left out.

    p is 1 where at most one user differs, and NaN with fewer than two users.
    """
    scored = frame[frame["method"].isin([a, b])].dropna(subset=[metric])
    wide = scored.groupby(["user_id", "task_id", "method"])[metric].mean().unstack("method")
    both = wide.reindex(columns=[a, b]).dropna()
    users = both.index.get_level_values("user_id")
    differences = (both[a] - both[b]).to_numpy()
    interval = mean_interval(differences, users, level)
    return PairedTest(
        *interval, _p_value(differences, users), len(both), users.nunique(), len(wide) - len(both)
    )


def _p_value(differences: np.ndarray, users: Sequence) -> float:
    codes, labels = pd.factorize(np.asarray(users, dtype=object))
    if len(labels) < 2:
        return np.nan
    sums = np.bincount(codes, weights=differences)
    sums = sums[np.abs(sums) > 1e-9]  # users without a difference have no sign to flip
    if len(sums) < 2:
        return 1.0
    from scipy.stats import permutation_test

    flipped = permutation_test(
        (sums,),
        np.sum,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_FLIPS,
        batch=1_000,
        rng=np.random.default_rng(0),
    )
    return float(flipped.pvalue)


def over_seeds(frame: pd.DataFrame, metric: str, a: str, b: str) -> SeedTest:
    """Compare two methods of training, each trained once a seed: the paired differences a - b of the seeds'
    means, with Student's t over seeds.

    Args:
        frame: one row an episode, or a seed's mean, with ``method, seed`` and ``metric``; both methods' on
            the same tasks.

    The interval and p are NaN with fewer than two common seeds, p also where all seeds differ alike.
    """
    means = frame.dropna(subset=[metric]).groupby(["seed", "method"])[metric].mean().unstack("method")
    both = means.reindex(columns=[a, b]).dropna()
    differences, seeds = (both[a] - both[b]).to_numpy(), both.index
    interval = mean_interval(differences, seeds)
    if len(seeds) < 2:
        return SeedTest(*interval, np.nan, len(seeds))
    mean, error, _ = _mean_and_error(differences, seeds)
    from scipy.special import stdtr

    p = 2 * stdtr(len(seeds) - 1, -abs(mean / error)) if error > 0 else np.nan
    return SeedTest(*interval, float(p), len(seeds))


def summarise(
    frame: pd.DataFrame, by: Sequence[str], metrics: Sequence[str], level: float = 0.95
) -> pd.DataFrame:
    """Means with intervals clustered by user, one row per group of ``by`` and metric.

    Args:
        frame: one row per episode with ``task_id``, ``user_id``, the columns of ``by`` and of ``metrics``.
        by: columns to group by; groups keep the order of first appearance.

    Returns:
        The columns of ``by``, then ``metric, mean, low, high, n_tasks, n_users, n_missing``; the last is
        the number of rows without a value (not scored), which enter no mean. Intervals of :data:`SHARES`
        are cut at 0 and 1.
    """
    groups = frame.groupby(list(by), sort=False, dropna=False) if by else [((), frame)]
    rows = []
    for labels, group in groups:
        for metric in metrics:
            scored = group.dropna(subset=[metric])
            interval = mean_interval(scored[metric], scored["user_id"], level)
            rows.append(
                {
                    **dict(zip(by, labels, strict=True)),
                    "metric": metric,
                    **(within_range(interval) if metric in SHARES else interval)._asdict(),
                    "n_tasks": scored["task_id"].nunique(),
                    "n_users": scored["user_id"].nunique(),
                    "n_missing": len(group) - len(scored),
                }
            )
    columns = [*by, "metric", *Interval._fields, "n_tasks", "n_users", "n_missing"]
    return pd.DataFrame(rows, columns=columns)


def noise_floor(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """How far two runs of one and the same method differ when only the seed does, one row a method.

    Args:
        frame: one row per episode with ``method, seed, task_id, user_id`` and ``metric``. Tasks that were not
            scored under all seeds are left out.

    Returns:
        ``method, seeds, mean, sd`` (standard deviation of the seeds' means), ``largest`` (largest difference
        of two seeds' means) and ``must_exceed``: the farthest end of any 95% interval of the paired
        difference of two seeds, clustered by user. Two methods that differ by less than it differ no more
        than two runs of one method may. The last three are NaN with one seed.
    """
    rows = []
    for method, group in frame.groupby("method", sort=False):
        wide = group.pivot(index=["user_id", "task_id"], columns="seed", values=metric).dropna()
        users = wide.index.get_level_values("user_id")
        tests = [mean_interval(wide[a] - wide[b], users) for a, b in combinations(wide.columns, 2)]
        largest = np.max([abs(test.mean) for test in tests] or [np.nan])
        must_exceed = np.max([max(-test.low, test.high) for test in tests] or [np.nan]) + 0.0  # never -0
        means = wide.mean()
        rows.append((method, len(means), means.mean(), means.std(), largest, must_exceed))
    return pd.DataFrame(rows, columns=["method", "seeds", "mean", "sd", "largest", "must_exceed"])
