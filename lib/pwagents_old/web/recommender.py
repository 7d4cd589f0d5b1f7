"""The service behind ``get_recommendations_by_history``: SASRec over product ids, which knows no future.

What one user bought before their test tasks may lie after another user's, and would tell that user of a
future. So several are trained, each on what lies before its date, and a user gets the latest one whose date
is not after their first test task (:class:`RecommendersByTime`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pwagents.errors import DataError
from pwagents.schema import Benchmark
from pwagents_old.cache import cached, hash_of
from pwagents_old.project import code_hash
from pwagents_old.web.functions import RESULTS, ProductRecommender
from pwagents_old.web.settings import SasRecSettings

if TYPE_CHECKING:
    from pwagents_old.web.sasrec import SasRec


class Recommender:
    """Recommends products to follow a sequence of products; threads may share it.

    Args:
        index: product id -> the model's item number.
        candidates: ids that may be recommended, None for all of ``index``; ids not in ``index`` are ignored.

    Raises:
        DataError: no candidate is in ``index``.
    """

    def __init__(self, model: "SasRec", index: Mapping[str, int], candidates: Iterable[str] | None = None):
        import torch

        self.model, self.index = model.eval(), dict(index)
        # In order, so that equal scores are ordered by id.
        self._candidates = sorted(index if candidates is None else index.keys() & set(candidates))
        if not self._candidates:
            expected = "products seen in training"
            raise DataError("recommender", "all", "candidates", "none that it knows", expected)
        with torch.inference_mode():
            self._embeddings = model.item_emb(torch.tensor([index[asin] for asin in self._candidates]))

    @classmethod
    def fit(
        cls,
        sequences: Mapping[str, Sequence[str]],
        config: SasRecSettings,
        seed: int,
        cache_dir: Path | None = None,
    ) -> "Recommender":
        """Train on user -> product ids, oldest first, once where ``cache_dir`` keeps the weights.

        Raises:
            DataError: fewer than two products, or no sequence of two.
        """
        from safetensors.torch import load_file, save_file

        from pwagents_old.web.sasrec import sasrec_from, train_sasrec

        # Items are numbered in the ids' order, rows stand in the users': neither depends on how they came.
        products = sorted({asin for sequence in sequences.values() for asin in sequence})
        index = {asin: i for i, asin in enumerate(products, start=1)}
        rows = [[index[asin] for asin in sequences[user]] for user in sorted(sequences)]
        train = partial(train_sasrec, rows, len(index), config, seed)
        if cache_dir is None:
            return cls(train(), index)

        def make(folder: Path) -> None:
            save_file(train().state_dict(), folder / "model.safetensors")

        parts = {"sequences": hash_of(rows), "settings": asdict(config), "seed": seed}
        folder = cached(cache_dir, "sasrec", parts | {"code": code_hash("web/sasrec")}, make)
        return cls(sasrec_from(load_file(folder / "model.safetensors"), config), index)

    def recommend(self, product_sequence: Sequence[str], k: int = RESULTS) -> list[str]:
        """Rank the ``k`` products most likely to follow, best first; ties go to the lower id.

        Of ``product_sequence``, oldest first, the last ``max_length`` (30) known ids count; none gives an
        empty list. Its own products may be recommended again, as published: people do buy things twice.
        """
        import torch

        from pwagents_old.web.sasrec import pad

        # An agent may say anything in a list of ids.
        items = [self.index[a] for a in product_sequence if isinstance(a, str) and a in self.index]
        if not items or k < 1:
            return []
        with torch.inference_mode():
            last = self.model(pad([items], self.model.max_length))[:, -1]
            (scores,) = (last @ self._embeddings.T).numpy()
        k = min(k, len(scores))
        best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])  # no more than these is sorted
        return [self._candidates[i] for i in best[np.argsort(-scores[best], kind="stable")][:k]]


class NoRecommender:
    """Before anybody has bought anything there is nothing to recommend."""

    def recommend(self, product_sequence: Sequence[str], k: int = RESULTS) -> list[str]:
        return []


@dataclass(frozen=True)
class RecommendersByTime:
    """Recommenders, each trained on purchases strictly before its date (milliseconds, ascending)."""

    dates: Sequence[int]
    recommenders: Sequence[ProductRecommender]

    @classmethod
    def fit(
        cls,
        benchmark: Benchmark,
        config: SasRecSettings,
        seed: int,
        n_dates: int,
        cache_dir: Path | None = None,
    ) -> "RecommendersByTime":
        """Train on :func:`training_sequences`, at ``n_dates`` dates at most that part the users evenly."""
        # Users are parted evenly by the date of their first test task: each date is some user's.
        starts = sorted(benchmark.first_task(user) for user in {t.user_id for t in benchmark.tasks["test"]})
        candidates = sorted({starts[len(starts) * i // n_dates] for i in range(n_dates)})
        sequences = {date: training_sequences(benchmark, date) for date in candidates}

        def can_learn(date: int) -> bool:
            rows = sequences[date].values()
            return any(len(row) > 1 for row in rows) and len({asin for row in rows for asin in row}) > 1

        # Where the same purchases lie before two dates, as in the embedded world, the later one adds nothing.
        dates = [date for date in candidates if can_learn(date)]
        dates = dates[:1] + [b for a, b in pairwise(dates) if sequences[a] != sequences[b]]
        return cls(dates, [Recommender.fit(sequences[date], config, seed, cache_dir) for date in dates])

    def at(self, timestamp: int) -> ProductRecommender:
        """Return the latest recommender that knows nothing from ``timestamp`` on."""
        # A date equal to the timestamp is early enough: training is on what lies strictly before it.
        i = bisect_right(self.dates, timestamp)
        return self.recommenders[i - 1] if i else NoRecommender()


def training_sequences(benchmark: Benchmark, date: int) -> dict[str, list[str]]:
    """Collect what strangers, and users in their train periods, bought before ``date``, oldest first."""
    periods = {user: benchmark.train_period(user) for user in benchmark.behaviors}
    users = {user: [b.parent_asin for b in own if b.timestamp < date] for user, own in periods.items()}
    return users | purchases_of_strangers(benchmark, date)


def purchases_of_strangers(benchmark: Benchmark, date: int) -> dict[str, list[str]]:
    """Collect what each stranger bought before ``date``, oldest first."""
    population = benchmark.population.items()
    return {stranger: [asin for time, asin in bought if time < date] for stranger, bought in population}
