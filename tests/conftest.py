"""What all tests share: no network, property tests without a clock, a small world, a random small model."""

import gc
import os
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import httpcore2
import pytest
from hypothesis import settings

from base_model.dialogues import dialogue_tokenizer
from base_model.small import make_small_model
from pwagents import embedding, engine
from pwagents.data.synthetic import make_world
from pwagents.embedding import Embedder
from pwagents.orion.agent import RULES
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.update import OfflineUpdater
from pwagents.settings import WorldSettings

from .llm.server import ChatServer

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # expected numbers are a CPU's; a GPU has benchmarks/gpu_proof.py
os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # tests run in a process a core already

# Machines that run tests are often busy: a slow example is no failure.
settings.register_profile("pwagents", deadline=None)
settings.load_profile("pwagents")


# The longest first, so that no process is left alone with one of them at the end.
LONGEST = "twice paper_preset dialogues launch transformers_serve portable make browser readme train"


def pytest_collection_modifyitems(items):
    place = {f"test_{name}": i for i, name in enumerate(LONGEST.split())}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


def pytest_collection_finish():
    """What was imported stays: nobody need look through it again and again for what may go."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    gc.unfreeze()


class Remembering:
    """MiniLM, which embeds the same texts side by side once: the second time they would come out the same."""

    def __init__(self, model):
        self.model, self.known = model, {}

    def __call__(self, texts):
        key = tuple(texts)
        if key not in self.known:
            self.known[key] = self.model(texts)
        return self.known[key]


@pytest.fixture(scope="session", autouse=True)
def minilm_is_loaded_once():
    """Embedders that read as much of a text share a model, which takes half a second to load."""
    load = embedding._model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "_model", cache(lambda max_tokens: Remembering(load(max_tokens))))
        yield


@pytest.fixture
def each_text_is_embedded_again(monkeypatch):
    """For tests of embedding itself."""
    monkeypatch.setattr(Remembering, "__call__", lambda self, texts: self.model(texts))


@pytest.fixture(scope="session", autouse=True)
def certificates_are_read_once():
    """Clients of endpoints share the machine's certificates, which take 40 ms to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpcore2.default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


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
    from joblib import Parallel  # not above: it imports numpy, and pwagents comes first

    def start():
        monkeypatch.setattr(engine, "in_use", "dask")
        monkeypatch.setattr(engine, "_cluster", lambda _: (Parallel(n_jobs=1), 2))

    return start


# The world of the tests of agents that train; rooms with another one have fixtures of their own.
@pytest.fixture(scope="session")
def world():
    return make_world(WorldSettings(n_users=12, n_products=400), seed=3)


@pytest.fixture(scope="session")
def benchmark(world):
    return world.benchmark


@pytest.fixture(scope="session")
def task_of(benchmark):
    """The first test task of each type."""
    return {t.type: t for t in reversed(benchmark.tasks["test"])}


@pytest.fixture(scope="session")
def embedder():
    return Embedder(max_tokens=48, batch_size=32)  # enough to tell what is closer


@pytest.fixture(scope="session")
def catalogue(benchmark):
    return Catalogue(benchmark.products)


@pytest.fixture(scope="session")
def updater(catalogue):
    return OfflineUpdater(catalogue)


@pytest.fixture(scope="session")
def tokenizer():
    return dialogue_tokenizer(RULES)


@pytest.fixture
def small_model(tokenizer):
    return make_small_model(tokenizer, seed=1)


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Orion's small study, for all whose tests play its episodes."""
    from .orion.small_study import small_study

    return small_study(tmp_path_factory.mktemp("orion"))
