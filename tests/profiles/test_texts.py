"""Profiles as texts: what each make says of a user, and that it looks at nothing else."""

import numpy as np

from pwagents.profiles.consistency import (
    describe_average,
    describe_facts,
    describe_history,
    describe_keywords,
    describe_profiles,
)
from pwagents.profiles.types import Cluster, GlobalProfile, MicroProfile, UserProfiles
from pwagents.schema import Behavior, Product, Review, UserProfile

FACTS = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Other") | {"brand_preference": "Acme, Lumo"})
PRODUCTS = {
    asin: Product(parent_asin=asin, title=title, category=category, store=store)
    for asin, title, category, store in (
        ("B1", "Oak desk lamp", "Home", "Lumo"),
        ("B2", "Brass floor lamp", "Home", "Lumo"),
        ("B3", "Green tea", "Grocery", None),
    )
}


def behavior(asin, text=""):
    return Behavior(parent_asin=asin, timestamp=1, review=Review(rating=5, text=text))


HISTORIES = {
    "ann": (behavior("B1", "Bright light, bright enough"), behavior("B2", "Bright light")),
    "bob": (behavior("B3", "A fragrant cup with light taste"),),
    "cid": (behavior("B3"),),
}


def test_raw_history_has_a_text_a_product():
    texts = describe_history(HISTORIES, PRODUCTS)
    assert [len(texts[user]) for user in HISTORIES] == [2, 1, 1]
    assert texts["ann"][0].startswith("Oak desk lamp. Home")


def test_an_averaged_profile_is_one_text_of_what_comes_up_most():
    texts = describe_average(HISTORIES, PRODUCTS)
    assert texts["ann"] == ["Home, Lumo, lamp, brass, desk, floor, oak"]
    assert texts["bob"] == ["Grocery, green, tea"]


def test_keywords_are_those_of_the_users_own_reviews_the_telling_ones_first():
    texts = describe_keywords(HISTORIES)
    assert texts["ann"][0].split(", ")[:2] == ["bright", "light"]
    assert "light" in texts["bob"][0] and not texts["bob"][0].startswith("light")
    assert texts["cid"] == ["-"]


def test_facts_are_a_text_each():
    (texts,) = describe_facts({"ann": FACTS}).values()
    assert len(texts) == 11 and "Brand Preference: Acme, Lumo" in texts


def test_micro_profiles_stand_beside_the_global_one_without_what_is_to_be_avoided():
    cluster = Cluster("Home > lighting", (0, 1), np.zeros(384, np.float32))
    whole = GlobalProfile(facts=FACTS, positive=("brand: Lumo", "color: green"), negative=("material: oak",))
    micro = MicroProfile(recommendations=("material: brass",), avoidances=("size: huge",))
    made = {
        "ann": UserProfiles("ann", whole, (cluster,), (micro,)),
        "bob": UserProfiles("bob", GlobalProfile(facts=FACTS)),
    }
    texts = describe_profiles(made)
    assert texts["ann"][11:] == ["brand: Lumo; color: green", "Home > lighting: material: brass"]
    assert len(texts["bob"]) == 11
    assert not any("oak" in text or "huge" in text for text in texts["ann"])
