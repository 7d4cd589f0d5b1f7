"""The offline profiler: what it says follows from behaviours and catalogue, and from nothing else."""

import inspect

import pytest

from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline import OfflineProfiler, weigh
from pwagents.profiles.types import OTHER


@pytest.fixture(scope="module")
def lamps(product_of):
    products = [product_of(n) for n in range(12)]
    products += [
        product_of(n, store="Other", details={"Color": "red"}, title="Shade red") for n in (20, 21, 22)
    ]
    return {p.parent_asin: p for p in products}


@pytest.fixture(scope="module")
def profiler(lamps):
    return OfflineProfiler(Catalogue(lamps))


@pytest.fixture
def purchases(lamps, bought):
    """``purchases(ratings by id, text)``: behaviours on consecutive days."""

    def make(ratings, text=""):
        return tuple(
            bought(lamps[asin], rating, text, day)
            for day, (asin, rating) in enumerate(ratings.items(), start=1)
        )

    return make


def test_what_liked_products_share_is_positive(profiler, purchases):
    profile = profiler.write_global([purchases({"B001": 5, "B003": 4, "B005": 5, "B002": 3})])[0]
    assert "color: navy" in profile.positive and "color: white" not in profile.positive


def test_what_disliked_products_share_is_negative(profiler, purchases):
    behaviors = purchases({"B020": 1, "B021": 2, "B001": 5}, "The red is awful")
    assert profiler.write_global([behaviors])[0].negative[:1] == ("color: red",)
    assert profiler.write_micro([("lamps", behaviors)])[0].avoidances[:1] == ("color: red",)


def test_liking_something_as_often_acquits_it(profiler, purchases):
    negative = profiler.write_global([purchases({"B001": 1, "B003": 5, "B005": 5, "B007": 5})])[0].negative
    assert "color: navy" not in negative


def test_newer_purchases_decide_between_values(profiler, purchases):
    older_white = purchases({"B000": 5, "B002": 5, "B004": 5, "B001": 5, "B003": 5, "B005": 5})
    older_navy = purchases({"B001": 5, "B003": 5, "B005": 5, "B000": 5, "B002": 5, "B004": 5})
    catalogue = profiler.catalogue
    for behaviors, winner in ((older_white, "navy"), (older_navy, "white")):
        support = {e.trait.value: e.support for e in weigh(behaviors, catalogue)}
        assert max(("navy", "white"), key=support.get) == winner


def test_price_sensitivity_follows_what_was_paid(profiler, purchases):
    cheap = purchases({"B000": 5, "B001": 5, "B002": 5})
    dear = purchases({"B009": 5, "B010": 5, "B011": 5})
    assert [p.facts.price_sensitivity for p in profiler.write_global([cheap, dear])] == ["High", "Low"]


def test_tone_follows_the_reviews(profiler, purchases):
    loud = profiler.write_global([purchases({"B001": 5, "B003": 5}, "I love it! My best lamp!")])[0].facts
    flat = profiler.write_global([purchases({"B001": 2, "B003": 2}, "Broke.")])[0].facts
    assert "Enthusiastic" in loud.tone_and_style and "Positive" in loud.tone_and_style
    assert "Critical" in flat.tone_and_style and flat.interaction_complexity == "Low"


def test_what_cannot_be_counted_is_not_guessed(profiler, purchases):
    facts = profiler.write_global([purchases({"B001": 5})])[0].facts
    assert (facts.gender, facts.age, facts.occupation) == (OTHER, OTHER, OTHER)


def test_an_empty_history_has_an_empty_profile(profiler):
    profile = profiler.write_global([()])[0]
    assert profile.positive == profile.negative == ()
    assert profile.facts.shopping_interest == OTHER


def test_nothing_but_behaviours_and_catalogue_reaches_it(world, histories):
    """No truth is taken, and a user's profile is another's once the behaviours are swapped."""
    assert list(inspect.signature(OfflineProfiler).parameters) == ["catalogue"]
    assert list(inspect.signature(Catalogue).parameters) == ["products"]
    profiler = OfflineProfiler(Catalogue(world.benchmark.products))
    first, second = sorted(histories, key=lambda user: -len(histories[user]))[:2]
    assert world.truth.people[first].interests != world.truth.people[second].interests
    one, other = profiler.write_global([histories[first], histories[second]])
    swapped = profiler.write_global([histories[second], histories[first]])
    assert one != other and swapped == [other, one]


def test_profiles_of_the_world_are_full(histories, catalogue):
    profiles = OfflineProfiler(catalogue).write_global(list(histories.values()))
    assert sum(bool(p.positive) for p in profiles) / len(profiles) > 0.9
    assert {p.facts.price_sensitivity for p in profiles} <= {"High", "Medium", "Low"}


def test_real_users_have_profiles(amazon):
    histories = [h for user in amazon.behaviors if len(h := amazon.train_period(user)) > 15]
    profiles = OfflineProfiler(Catalogue(amazon.products)).write_global(histories)
    assert len(profiles) >= 40
    assert sum(bool(p.positive) for p in profiles) / len(profiles) > 0.9
    assert len({p.facts.shopping_interest for p in profiles}) == len(profiles)
