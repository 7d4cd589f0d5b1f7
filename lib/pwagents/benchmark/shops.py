"""The shop in which a task is played: which recommender it has depends on the protocol and on the user."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pwagents.data.settings import DataSettings
from pwagents.embedding import Embedder
from pwagents.project import file_hash
from pwagents.schema import Benchmark, Protocol, Task
from pwagents.web.functions import ProductRecommender, Shop
from pwagents.web.recommenders_by_time import RecommendersByTime
from pwagents.web.search import build_search_engine
from pwagents.web.settings import ShopSettings


class Shops:
    """A shop for each task: search engine and catalogue are shared, recommenders differ.

    Leak-free, a user gets the latest recommender that knows nothing from their first test task on. As
    published, everybody gets the recommender published with PersonalWAB, where its files are there: it has
    seen all purchases.

    Args:
        data: where the published recommender may lie.
        seed: of the recommenders' training.
        cache_dir: keeps index, recommenders and embeddings between runs.

    Attributes:
        engine: the search engine.
        embedder: scores reviews.
        recommenders: by date, trained on strangers and on the benchmark's train periods.
        published: the published recommender; None where there is none.
    """

    def __init__(
        self, benchmark: Benchmark, settings: ShopSettings, data: DataSettings, seed: int, cache_dir: Path
    ):
        self.benchmark, self.settings = benchmark, settings
        self.engine = build_search_engine(benchmark.products, settings.search_engine, cache_dir)
        self.embedder = Embedder(cache_dir, max_tokens=512)  # as long as the published scorer reads a review
        self.recommenders = RecommendersByTime.fit(
            benchmark, settings.recommender, seed, settings.rec_dates, cache_dir
        )
        self.published, self._hashes = _published(benchmark, data)
        self._latest = Shop(
            benchmark,
            self.engine,
            self.recommenders.at(float("inf")),
            self.embedder,
            settings.observation,
        )

    def of(self, task: Task, protocol: Protocol = "leak_free") -> Shop:
        """The shop that the task's user finds."""
        if protocol == "as_published" and self.published:
            return replace(self._latest, recommender=self.published)
        first = self.benchmark.first_task(task.user_id)
        return replace(self._latest, recommender=self.recommenders.at(first))

    def recommender_name(self, protocol: Protocol) -> str:
        """What tables say of the recommender."""
        if protocol == "leak_free":
            return f"SASRec trained here, {self.settings.recommender.loss} loss"
        return "the published checkpoint" if self.published else "as leak-free (no published checkpoint)"

    def params(self, protocol: Protocol) -> dict[str, Any]:
        """What tells runs with a published recommender from others, for the keys of records."""
        return {"published": self._hashes} if self.published and protocol == "as_published" else {}


def _published(benchmark: Benchmark, data: DataSettings) -> tuple[ProductRecommender | None, list[str]]:
    """The published recommender and the hashes of its files, where they lie with PersonalWAB's data."""
    from pwagents.web.published_recommender import find_published, load_published

    files = find_published(data.folder) if data.source == "personalwab" else None
    if files is None:
        return None, []
    return load_published(*files, products=benchmark.products), [file_hash(file) for file in files]
