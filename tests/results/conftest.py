"""A world that is small, and large enough for its properties to show; no figure outlives its test."""

import matplotlib
import matplotlib.pyplot as plt
import pytest

from pwagents.data.synthetic import make_world
from pwagents.settings import WorldSettings
from pwagents.shop.search import build_search_engine

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures():
    with matplotlib.rc_context():
        yield
    plt.close("all")


@pytest.fixture(scope="session")
def world():
    return make_world(WorldSettings(n_users=60, n_products=1200, history=(10, 40)), seed=0)


@pytest.fixture(scope="session")
def engine(world):
    return build_search_engine(world.benchmark.products)


@pytest.fixture(scope="session")
def small():
    return make_world(WorldSettings(n_users=12, n_products=300), seed=0)
