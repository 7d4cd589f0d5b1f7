"""The dynamic update by rules: what is stated, what is inferred, and what overrides what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import OfflineUpdater, settle

ASK = "Is one of these what you want?"


@pytest.fixture(scope="module")
def lamps(product_of):
    materials = {0: "oak", 1: "oak", 2: "steel", 3: "steel"}
    made = [
        product_of(n, details={"Color": color, "Material": materials[n % 4]}, store=store)
        for n, (color, store) in enumerate([("navy", "Lumo"), ("white", "Lumo"), ("red", "Acme")] * 8)
    ]
    return {p.parent_asin: p for p in made}


@pytest.fixture(scope="module")
def update(lamps):
    return OfflineUpdater(Catalogue(lamps))


@pytest.fixture
def before():
    return profile("+history color: white", "+history brand: Lumo", "-history material: steel")


def line(text):
    sign, (provenance, value) = text[0], text[1:].split(" ", 1)
    return ProfileLine.of(value, sign == "+", provenance)


def profile(*texts):
    return ContextualProfile(lines=tuple(map(line, texts)))


def shown_as(profile):
    return [f"{'+' if x.positive else '-'}{x.provenance} {x.text}" for x in profile.lines]


def test_an_answer_is_stated_and_overrides_the_past(update, before, talk):
    after = update(before, "A lamp.", [talk("Which color would you like?", "Best in navy.")]).profile
    assert shown_as(after) == ["+stated color: navy", "+history brand: Lumo", "-history material: steel"]


def test_a_later_statement_overrides_an_earlier_one(update, before, talk):
    once = update(before, "A lamp.", [talk("Which color?", "Navy.")]).profile
    twice = update(once, "A lamp.", [talk("Which color?", "Sorry, red after all.")]).profile
    assert "+stated color: red" in shown_as(twice) and "+stated color: navy" not in shown_as(twice)


def test_what_the_user_wants_is_avoided_no_more(update, before, talk):
    after = update(before, "A lamp.", [talk("What should it be made of?", "Steel, please.")]).profile
    assert shown_as(after)[0] == "+stated material: steel"
    assert "-history material: steel" not in shown_as(after)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Not navy, rather white.", ["-stated color: navy", "+stated color: white"]),
        ("Anything but red.", ["-stated color: red"]),
        ("I do not want oak.", ["-stated material: oak"]),
        ("I usually trust Acme.", ["+stated brand: Acme"]),
        ("I would spend around 20 dollars.", ["+stated price: around 20 dollars"]),
        ("No more than $35!", ["+stated price: no more than 35 dollars"]),
        ("Something cheap.", ["+stated price: budget"]),
        ("It should be walnut.", ["+stated color: walnut"]),  # no value of the shop: in the user's own words
    ],
)
def test_answers_in_many_words(update, talk, answer, expected):
    after = update(profile(), "A lamp.", [talk("Which color would you like?", answer)]).profile
    assert shown_as(after) == expected


def test_who_does_not_mind_has_no_preference_any_more(update, before, talk):
    after = update(before, "A lamp.", [talk("Do you prefer any brand?", "No preference there.")]).profile
    assert shown_as(after) == ["+history color: white", "-history material: steel"]


def test_who_does_not_mind_one_thing_may_mind_another(update, before, talk):
    answer = "I don't mind the brand, but it should be navy."
    after = update(before, "A lamp.", [talk("Do you prefer any brand?", answer)]).profile
    assert shown_as(after) == ["+stated color: navy", "-history material: steel"]


@pytest.mark.parametrize("answer", ["I do not know that.", "I have no clue.", "I'd rather not say."])
def test_who_does_not_know_changes_nothing(update, before, talk, answer):
    assert update(before, "A lamp.", [talk("Which color?", answer)]).profile == before


def test_a_complaint_makes_what_all_results_share_unwanted(update, before, lamps, talk, results):
    steel_lumo = [p for p in lamps.values() if p.store == "Lumo" and p.details["Material"] == "steel"]
    session = [results(steel_lumo), talk(ASK, "Not quite right yet. Best in red.")]
    after = update(before, "A lamp of steel.", session).profile
    assert "-inferred brand: Lumo" in shown_as(after) and "+history brand: Lumo" not in shown_as(after)
    assert "+stated color: red" in shown_as(after)
    assert "-inferred material: steel" not in shown_as(after)  # the instruction asks for it


def test_nothing_inferred_contradicts_what_was_stated(update, lamps, talk, results):
    lumo = [p for p in lamps.values() if p.store == "Lumo"]
    before = profile("+stated brand: Lumo")
    after = update(before, "A lamp.", [results(lumo), talk(ASK, "No, not that.")]).profile
    assert shown_as(after) == ["+stated brand: Lumo"]


def test_content_makes_nothing_unwanted(update, before, lamps, talk, results):
    session = [results(list(lamps.values())[:3]), talk(ASK, "Yes, that is right, you can stop here.")]
    assert update(before, "A lamp.", session).profile == before


def test_a_hint_may_be_a_word_of_titles(update, lamps, talk, results):
    session = [results(list(lamps.values())[:3]), talk(ASK, "No, not that. Think reading.")]
    assert "+stated topic: reading" in shown_as(update(profile(), "A lamp.", session).profile)


def test_results_errors_and_empty_sessions_say_nothing(update, before, lamps, talk, results):
    for session in ([], [results(list(lamps.values()))], [talk("Which color?", "Navy.", error="unknown")]):
        assert update(before, "A lamp.", session).profile == before


def test_an_instruction_can_be_heard_like_an_answer(update, before):
    assert shown_as(update.hear(before, "I need a red lamp."))[:1] == ["+stated color: red"]


def test_it_understands_the_rule_based_user(world, catalogue, talk):
    """Asked for brand and color, the simulated user names the target's, and so does the profile then."""
    from pwagents.users.rules import RuleUser

    user, update = RuleUser(world.benchmark.products), OfflineUpdater(catalogue)
    tasks = [t for t in world.benchmark.tasks["test"] if t.type == "search"]
    for task in tasks:
        target = world.benchmark.products[task.target]
        for about, truth in (("brand", target.store), ("color", target.details.get("Color"))):
            question = f"Which {about} would you like?"
            step = talk(question, user(task, (), question).text)
            after = update(profile(), task.instruction, [step]).profile
            assert shown_as(after) == ([f"+stated {about}: {truth}"] if truth else [])


LINES = st.builds(
    lambda sign, provenance, about, value: line(f"{sign}{provenance} {about}: {value}"),
    st.sampled_from("+-"),
    st.sampled_from(["history", "stated", "inferred"]),
    st.sampled_from(["color", "feature", "topic"]),
    st.sampled_from("abc"),
)


@given(st.lists(LINES, max_size=6), st.lists(LINES, max_size=3))
def test_settling_never_loses_the_users_word(old, new):
    before = settle(ContextualProfile(), old)
    after = settle(before, new).lines
    stated_now = [x for x in new if x.provenance == "stated"]
    assert all(x in after for x in stated_now)
    for x in before.lines:
        if x.provenance == "stated" and not any(y.about == x.about for y in stated_now):
            assert x in after
    for y in stated_now:
        rivals = [x for x in after if x.about == y.about and x.positive and x.provenance != "stated"]
        assert not y.positive or y.about == "topic" or not [x for x in rivals if x not in new]


def test_lines_know_what_they_are_about():
    assert (line("+history color: navy").about, line("+history color: navy").value) == ("color", "navy")
    assert (line("+history likes lamps").about, line("+history likes lamps").value) == ("", "likes lamps")
    assert line("+history Special Feature : x: y").about == "special feature"


def test_words_and_ids_stay_as_the_lines_change():
    before = ContextualProfile(words=("towel",), bought=("B0A",))
    after = settle(before, [ProfileLine.of("color: navy", True, "stated")])
    assert (after.words, after.bought) == (before.words, before.bought)
