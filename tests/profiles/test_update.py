"""The dynamic profile update by rules: what is stated, what is inferred, and what overrides what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import OfflineUpdater, settle
from pwagents.users.rules import RuleUser

from .conftest import lamp, results, talk

ASK = "Is one of these what you want?"
LOOKS = [("navy", "Lumo"), ("white", "Lumo"), ("red", "Acme")] * 8
LAMPS = [
    lamp(n, details={"Color": color, "Material": ("oak", "oak", "steel", "steel")[n % 4]}, store=store)
    for n, (color, store) in enumerate(LOOKS)
]


@pytest.fixture(scope="module")
def update():
    return OfflineUpdater(Catalogue({p.parent_asin: p for p in LAMPS}))


def line(text):
    sign, (provenance, value) = text[0], text[1:].split(" ", 1)
    return ProfileLine.of(value, sign == "+", provenance)


def profile(*texts):
    return ContextualProfile(lines=tuple(map(line, texts)))


BEFORE = profile("+history color: white", "+history brand: Lumo", "-history material: steel")


def after(update, before, *session, instruction="A lamp."):
    lines = update(before, instruction, session).profile.lines
    return [f"{'+' if x.positive else '-'}{x.provenance} {x.text}" for x in lines]


WHITE, LUMO, NO_STEEL = "+history color: white", "+history brand: Lumo", "-history material: steel"
BRAND = "Do you prefer any brand?"


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [  # what is stated overrides the past, and what is wanted now is avoided no more
        ("Which color?", "Best in navy.", ["+stated color: navy", LUMO, NO_STEEL]),
        ("Made of what?", "Steel, please.", ["+stated material: steel", WHITE, LUMO]),
        # who does not mind one thing has no preference about it any more, and may have others
        (BRAND, "No preference there.", [WHITE, NO_STEEL]),
        (BRAND, "I don't mind the brand, but it should be navy.", ["+stated color: navy", NO_STEEL]),
    ],
)
def test_an_answer_overrides_the_past(update, question, answer, expected):
    assert after(update, BEFORE, talk(question, answer)) == expected


def test_a_later_statement_overrides_an_earlier_one(update):
    once = update(BEFORE, "A lamp.", [talk("Which color?", "Navy.")]).profile
    twice = after(update, once, talk("Which color?", "Sorry, red after all."))
    assert "+stated color: red" in twice and "+stated color: navy" not in twice


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Not navy, rather white.", ["-stated color: navy", "+stated color: white"]),
        ("Anything but red.", ["-stated color: red"]),
        ("I usually trust Acme.", ["+stated brand: Acme"]),
        ("I would spend around 20 dollars.", ["+stated price: around 20 dollars"]),
        ("No more than $35!", ["+stated price: no more than 35 dollars"]),
        ("It should be walnut.", ["+stated color: walnut"]),  # no value of the shop: in the user's own words
    ],
)
def test_answers_in_many_words(update, answer, expected):
    assert after(update, profile(), talk("Which color would you like?", answer)) == expected


@pytest.mark.parametrize(
    "session",
    [
        (),
        (talk("Which color?", "Navy.", error="unknown"),),
        (talk("Which color?", "I do not know that."),),
        (results(LAMPS[:3]), talk(ASK, "Yes, that is right, you can stop here.")),
    ],
)
def test_what_tells_nothing_changes_nothing(update, session):
    assert update(BEFORE, "A lamp.", session).profile == BEFORE


def test_a_complaint_makes_what_all_results_share_unwanted(update):
    steel_lumo = [p for p in LAMPS if p.store == "Lumo" and p.details["Material"] == "steel"]
    session = [results(steel_lumo), talk(ASK, "Not quite right yet. Best in red.")]
    lines = after(update, BEFORE, *session, instruction="A lamp of steel.")
    assert "-inferred brand: Lumo" in lines and "+history brand: Lumo" not in lines
    assert "+stated color: red" in lines
    assert "-inferred material: steel" not in lines  # the instruction asks for it
    stated = profile("+stated brand: Lumo")  # which nothing inferred contradicts
    lumo = [p for p in LAMPS if p.store == "Lumo"]
    assert after(update, stated, results(lumo), talk(ASK, "No, not that.")) == ["+stated brand: Lumo"]
    hint = talk(ASK, "No, not that. Think reading.")  # it may be a word of titles
    assert "+stated topic: reading" in after(update, profile(), results(LAMPS[:3]), hint)


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
    before = settle(ContextualProfile(words=("towel",), bought=("B0A",)), old)
    settled = settle(before, new)
    assert (settled.words, settled.bought) == (before.words, before.bought)
    stated_now = [x for x in new if x.provenance == "stated"]
    assert all(x in settled.lines for x in stated_now)
    for x in before.lines:
        if x.provenance == "stated" and not any(y.about == x.about for y in stated_now):
            assert x in settled.lines
    for y in stated_now:
        rivals = [x for x in settled.lines if x.about == y.about and x.positive and x.provenance != "stated"]
        assert not y.positive or y.about == "topic" or not [x for x in rivals if x not in new]
