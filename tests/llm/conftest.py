"""What the tests of language models share: tiny models, and circumstances as a table."""

from pathlib import Path

import pytest
import yaml

from .tiny import SEARCH, save_random_model, save_telling_model

CIRCUMSTANCES = yaml.safe_load(Path(__file__).with_name("circumstances.yaml").read_text("utf-8"))


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """The folder of a tiny model with random weights."""
    return save_random_model(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def telling_model(tmp_path_factory):
    """The folder of a tiny model that calls ``search`` whatever it is asked."""
    return save_telling_model(tmp_path_factory.mktemp("telling"), SEARCH)
