"""What the tests of language models share: circumstances as a table, requests, tiny models."""

from pathlib import Path

import pytest
import yaml

from .tiny import CALL, save_model

CIRCUMSTANCES = yaml.safe_load(Path(__file__).with_name("circumstances.yaml").read_text("utf-8"))
HI = [{"role": "user", "content": "hi"}]
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "search", "description": "Search.", "parameters": QUERY}}


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """The folder of a tiny model with random weights."""
    return save_model(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def telling_model(tmp_path_factory):
    """The folder of a tiny model that calls ``search`` whatever it is asked."""
    return save_model(tmp_path_factory.mktemp("telling"), ["Let me look. ", *CALL])
