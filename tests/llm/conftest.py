"""What the tests of language models share: tiny models."""

import pytest

from .tiny import SEARCH, save_random_model, save_telling_model


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """The folder of a tiny model with random weights."""
    return save_random_model(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def telling_model(tmp_path_factory):
    """The folder of a tiny model that calls ``search`` whatever it is asked."""
    return save_telling_model(tmp_path_factory.mktemp("telling"), SEARCH)
