"""What the tests of language models share: a server that fails on purpose, and tiny models."""

from contextlib import ExitStack

import pytest

from .server import ChatServer
from .tiny import SEARCH, save_random_model, save_telling_model


@pytest.fixture
def chat_server():
    """Start local servers: ``chat_server(faults=0.2)`` is a running :class:`ChatServer`."""
    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(ChatServer(**options))


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """The folder of a tiny model with random weights."""
    return save_random_model(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def telling_model(tmp_path_factory):
    """The folder of a tiny model that calls ``search`` whatever it is asked."""
    return save_telling_model(tmp_path_factory.mktemp("telling"), SEARCH)
