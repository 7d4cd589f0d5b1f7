"""A small shop that the tests of the environment and the agents share."""

import pytest

from pwagents.data.synthetic import make_world
from pwagents.settings import SasRecSettings, WorldSettings
from pwagents.shop.environment import Shop
from pwagents.shop.sasrec import Recommender, RecommendersByTime
from pwagents.shop.search import build_search_engine


class WordOverlap:
    """Stands in for MiniLM where a test is not about embeddings: the share of words in common."""

    def cosine(self, text, other):
        a, b = set(text.lower().split()), set(other.lower().split())
        return len(a & b) / len(a | b)


@pytest.fixture(scope="session")
def world():
    return make_world(WorldSettings(n_users=30, n_products=240), seed=0)


@pytest.fixture(scope="session")
def shop(benchmark, tmp_path_factory):
    sequences = {u: [b.parent_asin for b in benchmark.train_period(u)] for u in benchmark.behaviors}
    cache = tmp_path_factory.mktemp("cache")
    recommender = Recommender.fit(sequences, SasRecSettings(epochs=1), seed=0, cache_dir=cache)
    always = RecommendersByTime([0], [recommender])
    return Shop(benchmark, build_search_engine(benchmark.products), always, WordOverlap())
