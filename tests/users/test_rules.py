"""The rule-based user tells what it is asked, one fact at a time, and judges results."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.profiles.contextual import ContextualProfile, ProfileLine
from pwagents.schema import TASK_TYPES, Product, Review, UserProfile
from pwagents.users.rules import DIFFICULT, ImpatientUser, RuleUser, VagueUser, WrongUser

from .conftest import LAMP, is_leak, lamp_task, look_up, results, review, talk
from .questions import ordinary_questions

TRAITS = dict.fromkeys(UserProfile.model_fields, "x") | {"focus_aspect": "Quality, brand reputation"}
PROFILE = UserProfile(**TRAITS)
OLD = "as before|i told you already|nothing new"


def answer(question, task=None, session=(), seed=0, product=LAMP, profiles=None) -> str:
    user = RuleUser({product.parent_asin: product}, profiles, seed=seed)
    return user(task or lamp_task(), session, question).text


def priced(price):
    return {"product": LAMP.model_copy(update={"price": price})}


REVIEW = {"task": lamp_task("review")}
BARE = Product(parent_asin="B0BARE0001", title="Something with Many Words in It", category="Toys & Games")
NOTHING_KNOWN = {"task": lamp_task(target="B0BARE0001"), "product": BARE}
NAVY = {"task": lamp_task(instruction="I need a lamp in navy.")}
LIKE_AN_ERROR = {"session": (talk("Which color?", "Error: my last one was grey; navy, please."),)}
FACTS = ["larkspur", "navy", "aluminum", "led", "lamp", "foldable", "readers", "kitchen", "toys", "dollars"]


@pytest.mark.parametrize(
    ("question", "given", "expected"),
    [
        ("What is your budget?", {}, "around 35 dollars, so something premium"),
        ("Any brand you trust?", {}, "larkspur"),
        ("Which colour?", {}, "navy"),
        ("What kind of thing?", {}, "lamp"),
        ("Which features matter?", {}, "foldable"),
        ("What is important to you?", {"profiles": {"ann": PROFILE}}, "quality, brand reputation"),
        ("What price?", priced(0.6), r"around 1 dollar\b"),  # prices are told in round numbers
        ("What price?", priced(1799), "around 1800 dollars"),
        ("How many stars?", REVIEW, "four stars"),  # of the real review
        ("What should the review mention?", REVIEW, "sturdy|bright|battery"),
        ("Which size?", {}, ""),  # what it does not know
        ("What price?", NOTHING_KNOWN, r"^\D*$"),
        ("Which color?", NAVY, f"({OLD}).*navy"),  # what the instruction or an answer says counts as told
        ("Which color?", LIKE_AN_ERROR, f"({OLD}).*navy"),
    ],
)
def test_a_question_about_something_gets_one_fact_about_it(question, given, expected):
    text = answer(question, **given).lower()
    others = [fact for fact in FACTS if re.search(rf"\b{fact}\b", text) and fact not in expected]
    assert re.search(expected, text) and not others


def test_nothing_told_is_told_again_as_new():
    user, session, question = RuleUser({LAMP.parent_asin: LAMP}), (), "Is there anything else I should know?"
    for _ in range(15):
        session += (talk(question, user(lamp_task(), session, question).text),)
    facts = [fact.value for fact in user.facts(lamp_task())]
    texts = [step.observation.text.lower() for step in session]
    values = [next((value for value in facts if value.lower() in text), None) for text in texts]
    assert values[: len(facts)] == facts and set(values[len(facts) :]) == {None}
    assert re.match(OLD, user(lamp_task(), session, "Which color?").text.lower())


def test_wrong_results_get_a_hint_and_right_ones_or_a_review_with_the_points_a_word_of_content():
    wrong, right = results("B0OTHER001"), results("B0OTHER001", LAMP.parent_asin)
    hint = answer("I found these. Do you like them?", session=(wrong,))  # the first thing untold
    assert re.match("Not quite|No, not|I am not happy", hint) and "lamp" in hint
    assert "navy" in answer("Which color?", session=(wrong,))  # a question is answered all the same
    for session in ((right,), (wrong, right), (right, look_up("B0OTHER001"))):  # a look-up is no result
        assert re.search("stop|done", answer("Do these work for you?", session=session))
    assert not re.search("stop|done", answer("And these?", session=(right, wrong)))
    poor, good = review("Nice thing."), review("A sturdy, bright companion.")
    assert re.search("sturdy|bright|battery", answer("I posted it.", lamp_task("review"), (poor,)).lower())
    assert re.search("stop|done", answer("I posted it.", lamp_task("review"), (good,)))


WORDS = st.sampled_from(["Larkspur", "lamp", "not", "I", "that", "the", "stop", "around", "20", "navy"])
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join) | st.text(min_size=1, max_size=30)
PRODUCTS = st.builds(
    Product,
    parent_asin=st.just(LAMP.parent_asin),
    title=TEXTS.filter(str.strip),
    store=st.none() | TEXTS,
    category=TEXTS.filter(str.strip),
    details=st.dictionaries(TEXTS, TEXTS, max_size=3),
    description=st.lists(TEXTS, max_size=1).map(tuple),
    price=st.none() | st.floats(0, 1e5),
)
QUESTIONS = TEXTS | st.sampled_from([question for t in TASK_TYPES for question in ordinary_questions(t)])


@given(task_type=st.sampled_from(TASK_TYPES), product=PRODUCTS, text=TEXTS, question=QUESTIONS)
def test_whatever_the_page_says_nothing_leaks(task_type, product, text, question):
    task = lamp_task(task_type, review=Review(rating=2, text=text))
    for session in ((), (results("B0OTHER001"),), (results("B0LAMP0001"),)):
        line = answer(question, task, session, product=product)
        assert line.strip() and "\n" not in line and not is_leak(line, product)


# Users who make it harder: each differs from the cooperative one in a single way, and none leaks


@pytest.fixture(scope="module")
def asked(benchmark):
    """(task, question) of every type of task."""
    tasks = [[t for t in benchmark.tasks["test"] if t.type == type_][:12] for type_ in TASK_TYPES]
    return [(t, question) for some in tasks for t in some for question in ordinary_questions(t.type)]


@pytest.mark.parametrize("kind", DIFFICULT.values())
def test_each_differs_in_its_share_of_facts_leaks_nothing_and_follows_the_seed(kind, benchmark, asked):
    products, differs = benchmark.products, []
    cooperative, user, again = (each(products, seed=1) for each in (RuleUser, kind, kind))
    for task, question in asked:
        text, expected = user(task, (), question).text, cooperative(task, (), question).text
        assert text == again(task, (), question).text and not is_leak(text, products[task.target])
        is_told = cooperative.react(task, (), question)[0] == "tell"
        if is_told and (kind is not WrongUser or task.type != "review"):
            differs.append(text != expected)
        elif kind in (VagueUser, WrongUser):
            assert text == expected
    low, high = {VagueUser: (0.35, 0.65), WrongUser: (0.02, 0.2)}.get(kind, (0, 1))
    assert len(differs) > 50 and low <= sum(differs) / len(differs) <= high


def test_of_what_the_page_does_not_tell_it_says_what_it_usually_likes():
    """It knows P_ctx,0, too (Orion, 4.3)."""
    lines = [("size: large", True), ("color: grey", True), ("scent: mint", False)]
    profile = ContextualProfile(lines=tuple(ProfileLine.of(*line, "history") for line in lines))
    user, said = RuleUser({LAMP.parent_asin: LAMP}), {}
    for about in ("size", "color", "scent"):
        said[about] = user(lamp_task(), (), f"Which {about} would you like?", profile).text.lower()
    assert "large" in said["size"] and "navy" in said["color"] and "mint" not in said["scent"]
    told = (talk("Which color?", "It would look good in navy."),)
    impatient = ImpatientUser({LAMP.parent_asin: LAMP})
    assert "large" not in impatient(lamp_task(), told, "Which size would you like?", profile).text.lower()
    vague = [VagueUser({LAMP.parent_asin: LAMP}, seed=seed) for seed in range(30)]
    tells = ["large" in user(lamp_task(), (), "Which size would you like?", profile).text for user in vague]
    assert 0 < sum(tells) < len(tells), "what it usually likes it holds back like all else"
