"""What all tests share: no network, and property tests without a clock."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from .llm.server import ChatServer

os.environ["HF_HUB_OFFLINE"] = "1"

# Machines that run tests are often busy: a slow example is no failure.
settings.register_profile("pwagents", deadline=None)
settings.load_profile("pwagents")


@pytest.fixture(scope="session")
def project_root() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def chat_server():
    """Start local servers: ``chat_server(faults=0.2)`` is a running :class:`ChatServer`."""
    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(ChatServer(**options))
