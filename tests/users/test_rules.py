"""The rule-based user tells what it is asked, one fact at a time, and judges results."""

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.evaluation.metrics import attempts
from pwagents.schema import TASK_TYPES, Action, Product, Review, Task, UserProfile
from pwagents.users.leaks import ordinary_questions
from pwagents.users.rules import RuleUser
from pwagents.web.environment import WebEnvironment

LAMP = Product(
    parent_asin="B0LAMP0001",
    title="Larkspur Foldable Reading Lamp for Bed, Navy, with Clip",
    category="Home and Kitchen",
    price=37.49,
    store="Larkspur",
    features=("Bends in all directions.",),
    description=("A premium lamp for late readers.",),
    details={"Material": "Aluminum", "Item model number": "LX 20", "Light Source": "LED"},
)
PRAISE = Review(rating=4, text="Sturdy and bright, and the battery lasts. My husband sleeps on.")
PROFILE = UserProfile(
    **dict.fromkeys(UserProfile.model_fields, "x") | {"focus_aspect": "Quality, brand reputation"}
)


def task(task_type="search", instruction="I need something for my bedroom.", product=LAMP, review=PRAISE):
    return Task(
        task_id="t1",
        user_id="ann",
        type=task_type,
        timestamp=1,
        instruction=instruction,
        target=product.parent_asin,
        review=review,
    )


def answer(question, of=None, session=(), seed=0, product=LAMP, profiles=None) -> str:
    user = RuleUser({product.parent_asin: product}, profiles, seed=seed)
    return user(of or task(), session, question).text


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is your budget?", "around 35 dollars, so something premium"),
        ("Any brand you trust?", "Larkspur"),
        ("Which colour?", "navy"),
        ("Navy or white?", "navy"),
        ("What should it be made of?", "aluminum"),
        ("Which light source?", "led"),
        ("What kind of thing?", "lamp"),
        ("Which features matter?", "foldable"),
        ("What is the occasion?", "late readers"),
        ("Which department?", "home and kitchen"),
    ],
)
def test_a_question_about_something_gets_one_fact_about_it(question, expected):
    text = answer(question).lower()
    assert expected.lower() in text
    others = {"35 dollars", "larkspur", "navy", "aluminum", "led", "foldable", "readers", "kitchen"}
    assert [
        other
        for other in others
        if re.search(rf"\b{other}\b", text.lower()) and other not in expected.lower()
    ] == []


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many stars?", "four stars"),
        ("What should the review mention?", "sturdy|bright|battery"),
        ("Is there a problem with the battery?", "battery"),
    ],
)
def test_in_a_review_task_the_real_review_is_known(question, expected):
    assert re.search(expected, answer(question, task("review")).lower())


@pytest.mark.parametrize(
    "question", ["Which size?", "What title does it have?", "Who won the cup last year?"]
)
def test_what_it_does_not_know_gets_no_fact(question):
    text = answer(question)
    assert not re.search("lamp|larkspur|navy|dollar|foldable|LX", text, re.IGNORECASE)


def test_without_a_price_or_store_nobody_is_made_up():
    bare = Product(parent_asin="B0BARE0001", title="Something with Many Words in It", category="Toys & Games")
    for question in ("What price?", "Which brand?", "Which color?"):
        assert not re.search(r"\d|toys", answer(question, task(product=bare), product=bare))


@pytest.mark.parametrize(
    ("price", "expected"),
    [(0, "free"), (0.6, "around 1 dollar"), (7.99, "around 8 dollars"), (17.99, "around 20 dollars"),
     (123, "around 120 dollars"), (480, "around 500 dollars"), (1799, "around 1800 dollars")],
)  # fmt: skip
def test_prices_are_told_in_round_numbers(price, expected):
    product = LAMP.model_copy(update={"price": price})
    assert expected in answer("What price?", product=product)


def test_a_profile_tells_what_matters_to_the_user():
    assert (
        "quality, brand reputation" in answer("What is important to you?", profiles={"ann": PROFILE}).lower()
    )


def test_wording_follows_the_seed_and_the_fact_does_not():
    texts = [answer("Which color?", seed=seed) for seed in range(20)]
    assert len(set(texts)) == 3 and all("navy" in text for text in texts)
    assert texts == [answer("Which color?", seed=seed) for seed in range(20)]


def test_nothing_told_is_told_again_as_new(exchange):
    user, session, told = RuleUser({LAMP.parent_asin: LAMP}), (), []
    for _ in range(15):
        text = user(task(), session, "Is there anything else I should know?").text
        session += (exchange["said"]("Is there anything else I should know?", text),)
        told.append(text)
    facts = user.facts(task())
    values = [next((f.value for f in facts if f.value.lower() in text.lower()), None) for text in told]
    assert values[: len(facts)] == [fact.value for fact in facts]
    assert set(values[len(facts) :]) == {None}
    assert re.match("As before|I told you already|Nothing new", user(task(), session, "Which color?").text)


def test_what_the_instruction_says_counts_as_told():
    of = task(instruction="I need a lamp in navy.")
    assert re.match("As before|I told you already|Nothing new", answer("Which color?", of))
    assert "lamp" not in answer("What are you looking for?", of)


def test_wrong_results_get_a_hint_and_right_ones_a_word_of_content(exchange):
    wrong, right = (exchange["shown"]("B0OTHER001"),), (exchange["shown"]("B0OTHER001", LAMP.parent_asin),)
    assert re.match("Not quite|No, not|I am not happy", answer("Here is what I found.", session=wrong))
    assert "lamp" in answer("I found these. Do you like them?", session=wrong)  # the first thing untold
    assert re.search("stop|done", answer("Here is what I found.", session=right))
    assert re.search("stop|done", answer("Do these work for you?", session=wrong + right))
    assert not re.search("stop|done", answer("And these?", session=right + wrong))
    assert "navy" in answer("Which color?", session=wrong)  # a question is answered all the same


def test_a_product_looked_up_is_no_result(exchange):
    right, looked_up = exchange["shown"]("B0OTHER001", LAMP.parent_asin), exchange["looked_up"]("B0OTHER001")
    assert re.search("stop|done", answer("Is this right?", session=(right, looked_up)))
    assert not re.search("not|lamp|navy|dollar", answer("I will have a look.", session=(looked_up,)))


def test_an_answer_that_begins_like_an_error_was_said_all_the_same(exchange):
    session = (exchange["said"]("Which color?", "Error: my last one was grey; navy, please."),)
    assert re.match("As before|I told you already|Nothing new", answer("Which color?", session=session))


def test_before_any_result_a_statement_lets_the_agent_go_on():
    assert not re.search("not|lamp|navy|dollar", answer("I will have a look."))


def test_a_published_review_has_to_bring_up_the_points(exchange):
    poor, good = exchange["published"]("Nice thing."), exchange["published"]("A sturdy, bright companion.")
    assert re.search("sturdy|bright|battery", answer("I posted it.", task("review"), (poor,)).lower())
    assert re.search("stop|done", answer("I posted it.", task("review"), (good,)))


def test_malformed_calls_reach_no_user(shop, task_of):
    heard = []

    def user(task, session, says):
        heard.append(RuleUser(shop.benchmark.products)(task, session, says))
        return heard[-1]

    environment = WebEnvironment(shop, "multi_turn", user)
    environment.reset(task_of["search"])
    environment.step(Action(name="respond", arguments={}))
    environment.step(Action(name="search_product_by_query", arguments={"words": 1}))
    environment.step(Action(name="respond", arguments={"content": "I had a look."}))
    assert len(heard) == 1 and not re.search("Not|No,|happy", heard[0].text)


def test_a_whole_session_leads_to_the_target(shop, task_of):
    """Ask, add every answer to the query, search again: in the end the user is content."""
    environment = WebEnvironment(shop, "multi_turn", RuleUser(shop.benchmark.products))
    query = environment.reset(task_of["search"]).observation
    for _ in range(3):
        for content in ("Here is what I found, what else?", "Anything else?"):
            step = environment.step(Action(name="respond", arguments={"content": content}))
            query += " " + step.observation.text
        environment.step(Action(name="search_product_by_query", arguments={"query": query}))
        if attempts(environment.trajectory)[-1]:
            break
    step = environment.step(Action(name="respond", arguments={"content": "Are you content?"}))
    assert attempts(environment.trajectory)[-1] > 0 and re.search("stop|done", step.observation.text)


def test_one_user_serves_many_threads(world_benchmark):
    tasks, user = world_benchmark.tasks["test"][:40], RuleUser(world_benchmark.products)
    alone = [RuleUser(world_benchmark.products)(t, (), "Which brand?").text for t in tasks]
    together = [""] * len(tasks)

    def ask(i):
        together[i] = user(tasks[i], (), "Which brand?").text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


WORDS = st.sampled_from(["Larkspur", "lamp", "not", "I", "that", "the", "stop", "around", "20", "navy"])
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join) | st.text(min_size=1, max_size=30)


@given(
    task_type=st.sampled_from(TASK_TYPES),
    title=TEXTS.filter(str.strip),
    store=st.none() | TEXTS,
    category=TEXTS.filter(str.strip),
    details=st.dictionaries(TEXTS, TEXTS, max_size=3),
    description=st.lists(TEXTS, max_size=1),
    price=st.none() | st.floats(0, 1e5),
    text=TEXTS,
    question=TEXTS | st.sampled_from([q for t in TASK_TYPES for q in ordinary_questions(t)]),
)
def test_whatever_the_page_says_nothing_leaks(
    is_leak, exchange, task_type, title, store, category, details, description, price, text, question
):
    product = Product(
        parent_asin="B0LAMP0001",
        title=title,
        category=category,
        store=store,
        details=details,
        description=tuple(description),
        price=price,
    )
    of = task(task_type, product=product, review=Review(rating=2, text=text))
    for session in ((), (exchange["shown"]("B0OTHER001"),), (exchange["shown"]("B0LAMP0001"),)):
        said = answer(question, of, session, product=product)
        assert said.strip() and "\n" not in said
        assert not is_leak(said, product)
