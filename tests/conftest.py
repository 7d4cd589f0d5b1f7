"""What all tests share: no network, property tests without a clock, a small world, a random small model."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from joblib import Parallel

from pwagents import engine
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.lm.small import make_small_model
from pwagents.orion.base import base_tokenizer
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline_update import OfflineUpdater

from .llm.server import ChatServer

os.environ["HF_HUB_OFFLINE"] = "1"

# Machines that run tests are often busy: a slow example is no failure.
settings.register_profile("pwagents", deadline=None)
settings.load_profile("pwagents")


def pytest_collection_modifyitems(items):
    """The longest file first, so that no process is left alone with it at the end."""
    items.sort(key=lambda item: item.path.name != "test_paper_preset.py")


@pytest.fixture(scope="session")
def project_root() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def chat_server():
    """Start local servers: ``chat_server(faults=0.2)`` is a running :class:`ChatServer`."""
    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(ChatServer(**options))


@pytest.fixture
def ship(monkeypatch):
    """From ``ship()`` on all is shipped as to a cluster, whose only process is this one."""

    def start():
        monkeypatch.setattr(engine, "_engine", "dask")
        monkeypatch.setattr(engine, "_cluster", lambda _: (Parallel(n_jobs=1), 2))

    return start


# The world of the tests of agents that train; rooms with another one have fixtures of their own.
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
    return base_tokenizer()


@pytest.fixture
def small_model(tokenizer):
    return make_small_model(tokenizer, seed=1)
