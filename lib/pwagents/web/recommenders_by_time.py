"""Recommenders that do not know the future: one for each of several dates.

Where users shop at different times, as in real data, what one user bought before their test tasks may lie
after another user's test tasks. A recommender trained on all of it would tell the second user of a future. So
several are trained, each on what lies before its date, and a user gets the latest one whose date is not after
their first test task.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from pwagents.schema import Benchmark
from pwagents.web.functions import RESULTS, ProductRecommender
from pwagents.web.settings import SasRecSettings


class NothingKnown:
    """Before anybody has bought anything there is nothing to recommend."""

    def recommend(self, product_sequence: Sequence[str], k: int = RESULTS) -> list[str]:
        return []


class RecommendersByTime:
    """Recommenders in the order of their dates.

    Args:
        dates: milliseconds, ascending.
        recommenders: one a date, trained on purchases strictly before it.
    """

    def __init__(self, dates: Sequence[int], recommenders: Sequence[ProductRecommender]):
        self.dates, self.recommenders = list(dates), list(recommenders)

    @classmethod
    def fit(
        cls,
        benchmark: Benchmark,
        config: SasRecSettings,
        seed: int,
        n_dates: int,
        cache_dir: Path | None = None,
    ) -> "RecommendersByTime":
        """Train on :func:`training_sequences`, at ``n_dates`` dates that part the users evenly.

        Dates before which the same purchases lie share one training. Where, as in the embedded world, all
        that is learned from lies before the first test task of all, that is every date: one recommender is
        trained.
        """
        from pwagents.web.recommender import Recommender  # loads torch

        # Users are parted evenly by the date of their first test task: each date is some user's.
        starts = sorted(benchmark.first_task(user) for user in {t.user_id for t in benchmark.tasks["test"]})
        candidates = sorted({starts[len(starts) * i // n_dates] for i in range(n_dates)})
        sequences = {date: training_sequences(benchmark, date) for date in candidates}
        dates = [date for date in candidates if _can_learn(sequences[date])]
        # Where nothing was bought between two dates that is learned from, the later one adds nothing.
        dates = dates[:1] + [b for a, b in pairwise(dates) if sequences[a] != sequences[b]]
        fitted = [Recommender.fit(sequences[date], config, seed, cache_dir) for date in dates]
        return cls(dates, fitted)

    def at(self, timestamp: int) -> ProductRecommender:
        """The latest recommender that knows nothing from ``timestamp`` on."""
        i = bisect_right(self.dates, timestamp)
        return self.recommenders[i - 1] if i else NothingKnown()


def training_sequences(benchmark: Benchmark, date: int) -> dict[str, list[str]]:
    """Buyer -> the products that they bought before ``date``, oldest first: strangers, and the benchmark's
    users in their train periods."""
    users = {
        user: [b.parent_asin for b in benchmark.train_period(user) if b.timestamp < date]
        for user in benchmark.behaviors
    }
    return users | purchases_of_strangers(benchmark, date)


def purchases_of_strangers(benchmark: Benchmark, date: int) -> dict[str, list[str]]:
    """Stranger -> the products that they bought before ``date``, oldest first."""
    return {
        stranger: [asin for timestamp, asin in bought if timestamp < date]
        for stranger, bought in benchmark.population.items()
    }


def _can_learn(sequences: dict[str, list[str]]) -> bool:
    products = {product for sequence in sequences.values() for product in sequence}
    return len(products) > 1 and any(len(sequence) > 1 for sequence in sequences.values())
