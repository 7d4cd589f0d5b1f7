"""Which past purchases a contextual profile tells, and that an answer changes them."""

import pytest

from pwagents.orion.wishes import BOUGHT, Recall, WishReader
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.schema import Action, Observation, Step


@pytest.fixture(scope="module")
def recall(catalogue, updater):
    return Recall(WishReader(catalogue, updater))


@pytest.fixture(scope="module")
def bought(benchmark):
    """A long past, in which something was bought twice."""
    products = sorted(benchmark.products)
    return (*products[:12], products[3])


def profile_of(*lines):
    return ContextualProfile(lines=tuple(ProfileLine.of(*line) for line in lines))


def values(catalogue, about, asins):
    return [{trait.value for trait in catalogue.traits(asin) if trait.about == about} for asin in asins]


def test_where_nothing_is_stated_the_last_are_told_each_once(recall, bought):
    told = recall(profile_of(), bought).bought
    assert told == (*bought[-BOUGHT:-1], bought[3]) and len(set(told)) == BOUGHT
    assert recall(profile_of(), bought[:2]).bought == bought[:2]
    assert recall(profile_of(), ()).bought == ()


def test_those_with_most_of_what_is_stated_are_told(recall, catalogue, benchmark):
    everything = tuple(sorted(benchmark.products))
    of_one = next(iter(values(catalogue, "brand", everything)[0]))
    line = (f"brand: {of_one}", True, "stated")
    fitting = [asin for asin in everything if ("brand", of_one) in catalogue.traits(asin)]
    assert recall(profile_of(line), everything).bought == tuple(fitting[-BOUGHT:])
    price = next(trait.value for trait in catalogue.traits(fitting[0]) if trait.about == "price")
    both = [asin for asin in fitting if ("price", price) in catalogue.traits(asin)]
    assert len(both) < len(fitting)
    told = recall(profile_of(line, (f"price: {price}", True, "stated")), everything).bought
    assert told == tuple(both[-BOUGHT:])


def test_neither_the_past_nor_what_is_unwanted_chooses(recall, catalogue, bought):
    brand = next(iter(values(catalogue, "brand", bought)[0]))
    lines = [(f"brand: {brand}", True, "history"), (f"brand: {brand}", False, "stated")]
    for line in lines:
        assert recall(profile_of(line), bought).bought == recall(profile_of(), bought).bought


def test_an_answer_tells_other_ids_and_the_lines_are_the_updaters(recall, catalogue, updater, bought):
    brand = next(iter(values(catalogue, "brand", bought)[0]))
    action = Action(name="respond", arguments={"content": "Which brand would you like?"})
    session = (Step(action=action, observation=Observation(text=f"Preferably by {brand}.")),)
    before = recall(profile_of(("color: navy", True, "history")), bought)
    after = recall.after(updater, bought)(before, "Got anything nice?", session).profile
    assert after.lines == updater(before, "Got anything nice?", session).profile.lines
    assert after.bought == recall(profile_of((f"brand: {brand}", True, "stated")), bought).bought
    assert after.bought != before.bought and bought[0] in after.bought
    assert after.describe().endswith(f"\nBought before: {', '.join(after.bought)}")
