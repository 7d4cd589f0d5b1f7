"""A benchmark, and profiles for its users."""

import pytest

from pwagents.data.synthetic import make_world
from pwagents.schema import UserProfile
from pwagents.settings import WorldSettings

FACTS = dict.fromkeys(UserProfile.model_fields, "High")
FACTS |= {"age": "25-34", "brand_preference": "Acme", "tone_and_style": "Positive, detailed"}
FACTS |= {"focus_aspect": "Price, Material"}


@pytest.fixture(scope="session")
def facts():
    """A profile, its fields as given: ``facts(interaction_complexity="Low")``."""
    return lambda **changes: UserProfile(**FACTS | changes)


@pytest.fixture(scope="session")
def world():
    return make_world(WorldSettings(n_users=20, n_products=240), seed=0)
