"""A world that is small, and large enough for its properties to show."""

import pytest

from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.web.search import build_search_engine


@pytest.fixture(scope="session")
def config():
    return WorldConfig(n_users=60, n_products=1200, history=(10, 40))


@pytest.fixture(scope="session")
def world(config):
    return make_world(config, seed=0)


@pytest.fixture(scope="session")
def engine(world):
    return build_search_engine(world.benchmark.products)
