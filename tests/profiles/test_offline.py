"""The offline profiler: what it says follows from behaviours and catalogue, and from nothing else."""

import pytest

from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline import OfflineProfiler, weigh
from pwagents.profiles.types import OTHER

from .conftest import bought, lamp

RED = [lamp(n, store="Other", details={"Color": "red"}, title="Shade red") for n in (20, 21, 22)]
LAMPS = {p.parent_asin: p for p in [*(lamp(n) for n in range(12)), *RED]}


@pytest.fixture(scope="module")
def profiler():
    return OfflineProfiler(Catalogue(LAMPS))


def purchases(ratings, text=""):
    """Behaviours on consecutive days, of ratings by the numbers of products."""
    rated = enumerate(ratings.items(), start=1)
    return tuple(bought(LAMPS[f"B{n:03}"], rating, text, day) for day, (n, rating) in rated)


def test_what_liked_products_share_is_positive(profiler):
    (profile,) = profiler.write_global([purchases({1: 5, 3: 4, 5: 5, 2: 3})])
    assert "color: navy" in profile.positive and "color: white" not in profile.positive


def test_what_disliked_products_share_is_negative_unless_it_is_liked_as_often(profiler):
    behaviors = purchases({20: 1, 21: 2, 1: 5}, "The red is awful")
    assert profiler.write_global([behaviors])[0].negative[:1] == ("color: red",)
    assert profiler.write_micro([("lamps", behaviors)])[0].avoidances[:1] == ("color: red",)
    (acquitted,) = profiler.write_global([purchases({1: 1, 3: 5, 5: 5, 7: 5})])
    assert "color: navy" not in acquitted.negative


def test_newer_purchases_decide_between_values(profiler):
    white, navy = dict.fromkeys((0, 2, 4), 5), dict.fromkeys((1, 3, 5), 5)
    for ratings, winner in ((white | navy, "navy"), (navy | white, "white")):
        support = {e.trait.value: e.support for e in weigh(purchases(ratings), profiler.catalogue)}
        assert max(("navy", "white"), key=support.get) == winner


def test_facts_follow_prices_and_reviews_and_guess_nothing(profiler):
    cheap, dear = purchases({0: 5, 1: 5, 2: 5}), purchases({9: 5, 10: 5, 11: 5})
    sensitivity = [p.facts.price_sensitivity for p in profiler.write_global([cheap, dear])]
    assert sensitivity == ["High", "Low"]
    loud, flat = purchases({1: 5, 3: 5}, "I love it! My best lamp!"), purchases({1: 2, 3: 2}, "Broke.")
    loud, flat = (profile.facts for profile in profiler.write_global([loud, flat]))
    assert "Enthusiastic" in loud.tone_and_style and "Positive" in loud.tone_and_style
    assert "Critical" in flat.tone_and_style and flat.interaction_complexity == "Low"
    assert (loud.gender, loud.age, loud.occupation) == (OTHER, OTHER, OTHER)
