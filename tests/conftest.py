"""What all tests share: no network, and property tests without a clock."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"

# Machines that run tests are often busy: a slow example is no failure.
settings.register_profile("pwagents", deadline=None)
settings.load_profile("pwagents")


@pytest.fixture(scope="session")
def project_root() -> Path:
    return Path(__file__).resolve().parents[1]
