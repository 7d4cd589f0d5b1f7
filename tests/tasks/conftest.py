"""Benchmarks of every source, and profiles for their users."""

from pathlib import Path

import pytest

from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.schema import UserProfile

FACTS = {
    "gender": "Female",
    "age": "25-34",
    "occupation": "Writer",
    "price_sensitivity": "Medium",
    "shopping_interest": "Home, Kitchen",
    "brand_preference": "Acme",
    "diversity_preference": "High",
    "interaction_complexity": "High",
    "tone_and_style": "Positive, detailed",
    "item_reference": "Purchase history",
    "focus_aspect": "Price, Material",
}


@pytest.fixture(scope="session")
def facts():
    """A profile, its fields as given: ``facts(interaction_complexity="Low")``."""
    return lambda **changes: UserProfile(**FACTS | changes)


@pytest.fixture(scope="session")
def world():
    return make_world(WorldConfig(n_users=20, n_products=240), seed=0).benchmark


@pytest.fixture(scope="session", params=["synthetic", "amazon"])
def source(request, world, project_root):
    """A benchmark of each source; raw Amazon files are not part of the repository."""
    if request.param == "synthetic":
        return world
    folder = Path(project_root).parent / "shared" / "data" / "amazon_reviews_2023"
    if not folder.is_dir():
        pytest.skip("no raw Amazon Reviews 2023 files here")
    return load_amazon(folder, n_users=60, min_behaviors=5, max_products=100)
