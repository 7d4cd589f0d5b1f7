"""Means with intervals, and paired tests, over tasks that come in users.

They say what a given policy, or two, would reach on other tasks. Tasks of one user resemble each other, so
intervals and tests are clustered by user. What another *training* by the same method would give, or another
world, is another question: :mod:`pwagents.results.seeds`.

A mean over part of its tasks says so. A user, judge or updater that cannot answer leaves a task without a
score (what the *agent* refuses counts 0). A ``frame`` has one row an episode
(:func:`pwagents.results.episodes.frame`).
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from pwagents.results.tables import format_intervals
from pwagents.schema import TASK_TYPES

# Metrics from 0 to 1.
SHARES = (
    *("function_accuracy", "step_accuracy", "result_official", "result_final", "result_accuracy", "value"),
    *("website_retrieval", "website_utilization", "preference_retrieval", "preference_utilization"),
    *("p_web", "p_pref", "p_avg", "intent", "success", "reached"),
)
# In place of a task type: all tasks, in whose mean each weighs the same, and the mean of the types' means.
OVERALL, MEAN = "overall", "mean"
SCORED = "scored"  # heading: how many of a type's tasks a mean is over, if it is not over all
_FLIPS = 9_999  # random sign flips where there are too many to try them all


class Interval(NamedTuple):
    """A mean and its 95% confidence interval, NaN with fewer than two clusters."""

    mean: float
    low: float
    high: float


class PairedTest(NamedTuple):
    """Difference a - b of two policies on the tasks both were scored on, interval, p."""

    difference: float
    low: float
    high: float
    p: float
    n_tasks: int
    n_users: int
    n_left_out: int  # tasks that only one of the two was scored on


def mean_interval(values: Sequence[float], clusters: Sequence) -> Interval:
    """Return the mean of ``values`` with an interval clustered by ``clusters``, a label per value.

    This is the cluster-robust estimator for a mean, with the factor G / (G - 1) for G clusters and Student's
    t with G - 1 degrees of freedom, as of statsmodels' OLS on a constant.

    Raises:
        ValueError: the lengths differ, or a value is not finite (leave missing values out first).
    """
    values = np.asarray(values, dtype=float)
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values but {len(clusters)} cluster labels")
    if not np.isfinite(values).all():
        raise ValueError("values must be finite; leave missing values out first")
    codes, labels = pd.factorize(np.asarray(clusters, dtype=object))
    mean, n_clusters = float(values.mean()) if len(values) else np.nan, len(labels)
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
    """Return the interval of a metric from 0 to 1.

    It is cut at both ends, and Wilson's (1927) if all values are 0 or all 1: there :func:`mean_interval` is a
    point, however few tasks there are. Wilson's counts clusters, each of which is then a hit or a miss: more
    tasks of one user add no certainty.
    """
    interval = mean_interval(values, clusters)
    if interval.mean in (0, 1) and interval.low == interval.high:
        from statsmodels.stats.proportion import proportion_confint

        n_clusters = len(set(clusters))
        ends = proportion_confint(interval.mean * n_clusters, n_clusters, method="wilson")
        interval = Interval(interval.mean, min(ends[0], interval.mean), max(ends[1], interval.mean))
    return Interval(interval.mean, max(interval.low, 0.0), min(interval.high, 1.0))


def summarise(frame: pd.DataFrame, by: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """Tabulate means with intervals clustered by user, by groups and metric.

    Args:
        frame: one row an episode with ``task_id``, ``user_id``, the columns of ``by`` and of ``metrics``.

    Returns:
        The columns of ``by`` (in the order of first appearance), then ``metric, mean, low, high, n_tasks,
        n_users`` and ``n_missing``, rows that were not scored, which enter no mean. Intervals of
        :data:`SHARES` are those of :func:`share_interval`.
    """
    groups = frame.groupby(list(by), sort=False, dropna=False) if by else [((), frame)]
    # Missing values enter no mean: they are counted.
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
    """Compare two policies, ``a`` and ``b``, on the same tasks: a - b, interval, p.

    p is of a sign-flip test by user: had neither policy an advantage, each user's summed difference might as
    well have the other sign. All combinations of signs are tried for up to 13 users with any difference, else
    9,999 at random, so that p is never below .0002. Where few users differ, such p are larger than those of a
    t-test, whose interval (given here) then is too narrow. p is 1 where at most one user differs, and NaN
    with fewer than two users.

    Args:
        frame: a method's rows on one task, as from several seeds, are averaged first.
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


def paired_gains(frame: pd.DataFrame, metric: str, better: str, base: str, by: Sequence[str]) -> pd.DataFrame:
    """Test how much more ``better`` reaches than ``base``, one row a group of ``by``.

    Returns:
        The columns of ``by`` (in the order of first appearance), then those of :class:`PairedTest`;
        ``n_left_out`` where tasks are left out.
    """
    rows = [
        {**dict(zip(by, values, strict=True)), **paired_test(part, metric, better, base)._asdict()}
        for values, part in frame.groupby(list(by), sort=False)
    ]
    return name_left_out(pd.DataFrame(rows))


def paired_tests(
    frame: pd.DataFrame,
    metric: str,
    pairs: Mapping[str, tuple[str, str]],
    *,
    overall: bool = False,
    flips: int = _FLIPS,
) -> pd.DataFrame:
    """Compare given policies, a row a comparison and task type.

    Args:
        pairs: what is compared, in words -> the two methods, first minus second.
        overall: whether a row of all tasks follows several types.
        flips: as of :func:`paired_test`.

    Returns:
        ``comparison, task`` and those of :class:`PairedTest`, ``n_left_out`` only if there are any. A pair
        without common tasks of a type has no row there, nor has "overall" where it lacks a type.
    """
    rows, scored = [], frame.dropna(subset=[metric])
    for name, (a, b) in pairs.items():
        # A mean over fewer types is no overall of the pair.
        types = scored.groupby("method")["type"].unique()
        whole = overall and all({*types.get(method, ())} == {*frame["type"]} for method in (a, b))
        for task, part in split_by_type(frame):
            if task != OVERALL or whole:
                test = paired_test(part, metric, a, b, flips=flips)
                rows.append({"comparison": name, "task": task, **test._asdict()})
    table = pd.DataFrame(rows, columns=["comparison", "task", *PairedTest._fields])
    table = table if flips else table.drop(columns="p")
    return name_left_out(table[table["n_tasks"] > 0].reset_index(drop=True))


def trained_differences(
    frame: pd.DataFrame,
    pairs: Mapping[str, tuple[str, str]],
    metric: str,
) -> pd.DataFrame:
    """Compare trained policies, a row a comparison and task type, and "overall".

    There is no p: if a policy was trained once, the tasks measure this policy, not how it was trained.

    Args:
        pairs: as of :func:`paired_tests`.
    """
    return paired_tests(frame, metric, pairs, overall=True, flips=0)


def name_left_out(table: pd.DataFrame) -> pd.DataFrame:
    """Drop the column ``n_left_out`` of paired tests if no task was left out."""
    return table if table["n_left_out"].any() else table.drop(columns="n_left_out")


def sort_by_type(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by ``method``, as they first appear, then by ``type``."""
    order = {"method": list(frame["method"].unique()), "type": (*TASK_TYPES, OVERALL, MEAN)}
    return frame.sort_values(["method", "type"], key=lambda c: c.map(order[c.name].index), kind="stable")


def split_by_type(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Split episodes by type; after several types, "overall" has all of them."""
    parts = [(task, frame[frame["type"] == task]) for task in TASK_TYPES if task in set(frame["type"])]
    return [*parts, (OVERALL, frame)] if len(parts) > 1 else parts


def by_task(frame: pd.DataFrame, metrics: Mapping[str, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tabulate a row a method, a column a task type and metric, as PersonalWAB's Table 3 does.

    Only types that were played have columns. Several are followed by "overall", the mean over all tasks,
    which stays empty for a method that was not scored on all of these types.

    Args:
        metrics: column of ``frame`` -> its name in the table.

    Returns:
        The means, and the same as text with their intervals. Where a method was scored on part of a type's
        tasks, both have a column (type, :data:`SCORED`), such as "7 of 10".
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


def add_targets(
    means: pd.DataFrame, cells: pd.DataFrame, frame: pd.DataFrame, metrics: Mapping[str, str]
) -> None:
    """Add a column (type, "METRIC, TARGET") for each ``target`` of the frame to tables of :func:`by_task`."""
    for task, of_type in frame.groupby("type", sort=False):
        for (target, part), (metric, name) in product(of_type.groupby("target"), metrics.items()):
            summary = summarise(part, ["method"], [metric]).set_index("method")
            column = (task, f"{name}, {target}")
            means[column], cells[column] = summary["mean"], format_intervals(summary)


def by_type_and_mean(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Tabulate means by method and task type, and :data:`MEAN`, the mean of the types.

    "overall" of :func:`by_task` weighs each task the same instead. Here a task moves the mean by
    1 / (number of types x tasks of its type), and the interval, clustered by user, is of these parts.

    Returns:
        As of :func:`summarise` by ``method, type``. A method that was not scored on all types of the frame
        has no mean, and where there is a single type nobody has.
    """
    frame = frame.reset_index(drop=True)
    rows, n_types = [summarise(frame, ["method", "type"], [metric])], frame["type"].nunique()
    # A task's part is the mean of types' means, plus its residual within its type, weighed as the type is.
    # The parts' mean is that mean; a user's residuals add up across types, as the clustered interval needs.
    scored = frame.dropna(subset=[metric])
    types = scored.groupby(["method", "type"], sort=False)[metric]
    middle = scored["method"].map(types.mean().groupby("method").mean())
    share = scored.groupby("method")[metric].transform("size") / (n_types * types.transform("size"))
    parts = middle + share * (scored[metric] - types.transform("mean"))
    complete = scored.groupby("method")["type"].transform("nunique") == n_types
    if n_types > 1 and complete.any():
        # Rows that were not scored stay, for the mean says how many they are.
        balanced = frame.assign(**{metric: parts, "type": MEAN})
        balanced = balanced[balanced["method"].isin(scored.loc[complete, "method"])]
        rows.append(summarise(balanced, ["method", "type"], [metric]))
    return sort_by_type(pd.concat(rows)).reset_index(drop=True)
