"""What searches gain by the values of profiles."""

import numpy as np
import pytest

from pwagents.benchmark.search_gain import AVERAGED, HEARD, RETRIEVED, profile_values, search_with_profiles
from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.types import Cluster, GlobalProfile, MicroProfile, UserProfiles
from pwagents.profiles.update import OfflineUpdater
from pwagents.schema import Product, Review, Task, UserProfile
from pwagents.web.search import Bm25Engine

PRODUCTS = {
    asin: Product(parent_asin=asin, title=title, category="Home", details={"Color": title.split()[0]})
    for asin, title in [("B1", "red oak stool"), ("B2", "blue oak stool"), ("B3", "steel kettle")]
    + [(f"C{i}", f"{color} chair") for i, color in enumerate(["red", "blue"] * 3)]
}


@pytest.fixture
def task():
    return Task(
        task_id="t", user_id="u", type="search", timestamp=1, instruction="a blue stool", target="B2",
        review=Review(rating=5),
    )  # fmt: skip


def test_a_value_that_matters_pays_and_one_that_is_said_is_not_said_twice(task):
    engine = Bm25Engine({asin: PRODUCTS[asin].title for asin in ("B1", "B2", "B3")})
    task = task.model_copy(update={"instruction": "an oak stool"})
    told = {"right": [["oak", "blue"]], "wrong": [["red"]]}
    frame = search_with_profiles(engine, [task], told, added=(0, 1))
    values = frame.set_index(["method", "added"])["result_accuracy"]
    assert values["right", 0] == values["wrong", 0] == values["wrong", 1] == 0.9
    assert values["right", 1] == 1.0


def test_what_the_instruction_contradicts_is_no_longer_added(task):
    facts = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Other"))
    micro = MicroProfile(recommendations=("color: red", "material: oak"))
    whole = GlobalProfile(facts=facts, positive=("price: budget",))
    own = UserProfiles("u", whole, (Cluster("stools", (0,), np.ones(384, np.float32)),), (micro,))
    rules = OfflineUpdater(Catalogue(PRODUCTS))
    values = profile_values([task], {"u": own}, Embedder(), rules.hear)
    assert values == {AVERAGED: [["budget"]], RETRIEVED: [["red", "oak"]], HEARD: [["oak"]]}
