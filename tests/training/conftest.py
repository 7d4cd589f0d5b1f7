"""A small world with Orion's setting, and a random small model."""

import pytest

from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.training.small_model import make_small_model
from pwagents.training.small_tokenizer import make_tokenizer


@pytest.fixture(scope="session")
def world():
    return make_world(WorldConfig(n_users=12, n_products=400), seed=3)


@pytest.fixture(scope="session")
def benchmark(world):
    return world.benchmark


@pytest.fixture(scope="session")
def catalogue(benchmark):
    return Catalogue(benchmark.products)


@pytest.fixture(scope="session")
def updater(catalogue):
    return OfflineUpdater(catalogue)


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def small_model(tokenizer):
    return make_small_model(tokenizer, seed=1)
