"""Profiles by rules: traits read off pages, what profiles say of behaviours, how answers change them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.data.synthetic import make_world
from pwagents.profiles.catalogue import BANDS, Catalogue, Trait
from pwagents.profiles.contextual import ContextualProfile, ProfileLine
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.types import OTHER
from pwagents.profiles.update import OfflineUpdater, merge_lines
from pwagents.settings import WorldSettings
from pwagents.users.rules import RuleUser

from .conftest import bought, lamp, results, talk

RED = [lamp(n, store="Other", details={"Color": "red"}, title="Shade red") for n in (20, 21, 22)]
LAMPS = {p.parent_asin: p for p in [*(lamp(n) for n in range(12)), *RED]}  # white and navy in turn, then red


def test_traits_are_brand_price_band_details_and_words_of_the_title():
    # Without details, a title is read with the values of other pages.
    bare = lamp(99, title="Lumo desk lamp in navy", store=None, price=None, details={})
    catalogue = Catalogue(LAMPS | {"B099": bare})
    words = ["topic: reading", "topic: lamp"]
    told = ["brand: Lumo", "price: budget", "color: navy", *words]
    assert [trait.text for trait in catalogue.traits("B001")] == told
    assert [trait.text for trait in catalogue.traits("B099")][:2] == ["brand: Lumo", "color: navy"]
    assert [t.text for t in catalogue.find("Please Lumo in navy")] == ["brand: Lumo", "color: navy"]
    assert catalogue.find("lumo") == Catalogue({}).find("navy lamp") == []


def test_price_bands_of_the_embedded_world_are_mostly_its_tiers():
    world = make_world(WorldSettings(n_users=1, n_products=2000), seed=0)
    catalogue, tiers = Catalogue(world.benchmark.products), world.truth.items
    agree = [Trait("price", item.values["tier"]) in catalogue.traits(asin) for asin, item in tiers.items()]
    assert sum(agree) / len(agree) > 0.8 and set(BANDS) == {item.values["tier"] for item in tiers.values()}


@pytest.fixture(scope="module")
def profiler():
    return OfflineProfiler(Catalogue(LAMPS))


def purchases(ratings, text=""):
    """Behaviours on consecutive days, of ratings by the numbers of products."""
    rated = enumerate(ratings.items(), start=1)
    return tuple(bought(LAMPS[f"B{n:03}"], rating, text, day) for day, (n, rating) in rated)


def test_what_liked_products_share_is_positive_and_what_disliked_ones_share_negative(profiler):
    (profile,) = profiler.write_global([purchases({1: 5, 3: 4, 5: 5, 2: 3})])
    assert "color: navy" in profile.positive and "color: white" not in profile.positive
    behaviors = purchases({20: 1, 21: 2, 1: 5}, "The red is awful")
    assert profiler.write_global([behaviors])[0].negative[:1] == ("color: red",)
    assert profiler.write_micro([("lamps", behaviors)])[0].avoidances[:1] == ("color: red",)
    (acquitted,) = profiler.write_global([purchases({1: 1, 3: 5, 5: 5, 7: 5})])
    assert "color: navy" not in acquitted.negative  # it is liked as often


def test_facts_follow_prices_and_reviews_and_guess_nothing(profiler):
    cheap, dear = purchases({0: 5, 1: 5, 2: 5}), purchases({9: 5, 10: 5, 11: 5})
    sensitivity = [p.facts.price_sensitivity for p in profiler.write_global([cheap, dear])]
    assert sensitivity == ["High", "Low"]
    loud, flat = purchases({1: 5, 3: 5}, "I love it! My best lamp!"), purchases({1: 2, 3: 2}, "Broke.")
    loud, flat = (profile.facts for profile in profiler.write_global([loud, flat]))
    assert "Enthusiastic" in loud.tone_and_style and "Critical" in flat.tone_and_style
    assert (loud.gender, loud.age, loud.occupation) == (OTHER, OTHER, OTHER)


# The dynamic update: what is stated, what is inferred, and what overrides what

ASK, BRAND = "Is one of these what you want?", "Do you prefer any brand?"
LOOKS = [("navy", "Lumo"), ("white", "Lumo"), ("red", "Acme")] * 8
SHOP = [
    lamp(n, details={"Color": color, "Material": ("oak", "oak", "steel", "steel")[n % 4]}, store=store)
    for n, (color, store) in enumerate(LOOKS)
]


@pytest.fixture(scope="module")
def update():
    return OfflineUpdater(Catalogue({p.parent_asin: p for p in SHOP}))


def line(text):
    sign, (provenance, value) = text[0], text[1:].split(" ", 1)
    return ProfileLine.of(value, sign == "+", provenance)


def profile(*texts):
    return ContextualProfile(lines=tuple(map(line, texts)))


def after(update, before, *session, instruction="A lamp."):
    lines = update(before, instruction, session).profile.lines
    return [f"{'+' if x.positive else '-'}{x.provenance} {x.text}" for x in lines]


WHITE, LUMO, NO_STEEL = "+history color: white", "+history brand: Lumo", "-history material: steel"
BEFORE = profile(WHITE, LUMO, NO_STEEL)


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [  # what is stated overrides the past, and what is wanted now is avoided no more
        ("Which color?", "Best in navy.", ["+stated color: navy", LUMO, NO_STEEL]),
        ("Made of what?", "Steel, please.", ["+stated material: steel", WHITE, LUMO]),
        # who does not mind one thing has no preference about it any more, and may have others
        (BRAND, "I don't mind the brand, but it should be navy.", ["+stated color: navy", NO_STEEL]),
        (BRAND, "I do not know that.", [WHITE, LUMO, NO_STEEL]),
        ("Color?", "Not navy, rather red.", ["+stated color: red", LUMO, "-stated color: navy", NO_STEEL]),
        ("Price?", "At most $35!", ["+stated price: at most 35 dollars", WHITE, LUMO, NO_STEEL]),
    ],
)
def test_an_answer_overrides_the_past(update, question, answer, expected):
    assert after(update, BEFORE, talk(question, answer)) == expected


def test_a_complaint_makes_what_all_results_share_unwanted_and_contradicts_nothing_stated(update):
    steel_lumo = [p for p in SHOP if p.store == "Lumo" and p.details["Material"] == "steel"]
    session = [results(steel_lumo), talk(ASK, "Not quite right yet. Best in red.")]
    lines = after(update, BEFORE, *session, instruction="A lamp of steel.")
    assert "-inferred brand: Lumo" in lines and "+history brand: Lumo" not in lines
    assert "+stated color: red" in lines
    assert "-inferred material: steel" not in lines  # the instruction asks for it
    stated, lumo = profile("+stated brand: Lumo"), [p for p in SHOP if p.store == "Lumo"]
    assert after(update, stated, results(lumo), talk(ASK, "No, not that.")) == ["+stated brand: Lumo"]
    twice = after(update, profile("+stated color: navy"), talk("Which color?", "Sorry, red after all."))
    assert twice == ["+stated color: red"], "but the user themselves may"
    for session in ((), (talk("Which color?", "Navy.", error="unknown"),)):
        assert update(BEFORE, "A lamp.", session).profile == BEFORE


def test_it_understands_the_rule_based_user(benchmark, catalogue):
    """Asked for brand and color, the simulated user names the target's, and so does the profile then."""
    user, update = RuleUser(benchmark.products), OfflineUpdater(catalogue)
    for task in (t for t in benchmark.tasks["test"] if t.type == "search"):
        target = benchmark.products[task.target]
        for about, truth in (("brand", target.store), ("color", target.details.get("Color"))):
            question = f"Which {about} would you like?"
            lines = after(update, profile(), talk(question, user(task, (), question).text))
            assert lines == ([f"+stated {about}: {truth}"] if truth else [])


LINES = st.builds(
    lambda sign, provenance, about, value: line(f"{sign}{provenance} {about}: {value}"),
    st.sampled_from("+-"),
    st.sampled_from(["history", "stated", "inferred"]),
    st.sampled_from(["color", "feature", "topic"]),
    st.sampled_from("abc"),
)


@given(st.lists(LINES, max_size=6), st.lists(LINES, max_size=3))
def test_settling_never_loses_the_users_word(old, new):
    before = merge_lines(ContextualProfile(), old)
    settled = merge_lines(before, new)
    stated_now = [x for x in new if x.provenance == "stated"]
    stated_before = [x for x in before.lines if x.provenance == "stated"]
    kept = [x for x in stated_before if not any(y.about == x.about for y in stated_now)]
    assert all(x in settled.lines for x in (*stated_now, *kept))
    for y in (y for y in stated_now if y.positive and y.about != "topic"):
        rivals = [x for x in settled.lines if x.about == y.about and x.positive and x.provenance != "stated"]
        assert not [x for x in rivals if x not in new]
