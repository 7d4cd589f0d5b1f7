"""The teacher by rules: what it asks, what it calls with, and that it sees no more than S_t."""

import pytest

from pwagents.llm.chat import Reply
from pwagents.orion.judge import LlmJudge, judge_of
from pwagents.orion.teacher import OfflineTeacher, make_teacher
from pwagents.profiles.contextual import Purchase
from pwagents.schema import FUNCTION_OF, Behavior, Review

from ..agents.conftest import ScriptedModel
from .small_study import call, cases, elsewhere, play, state_of, step

ABOUTS = (
    *("brand", "price", "color", "material", "feature", "style"),
    *("flavor", "diet", "pack", "origin", "scent", "formula"),
)


def answered(about, text):
    return step(call("ask", f"Which {about} would you like?"), text)


def ask_all(teacher, task, study):
    """What it asks for, question by question, where it may ask a lot."""
    _, trajectory = play(study, teacher, task)
    return [s.action.arguments["content"].split()[1] for s in trajectory.steps if s.is_talk]


@pytest.fixture(scope="module")
def teacher(catalogue):
    def of(task, questions=0):
        return OfflineTeacher(catalogue, 0, lambda _: FUNCTION_OF[task], questions)

    return of


@pytest.mark.parametrize("about", ABOUTS)
def test_user_and_profile_understand_every_question(study, about):
    products = study.benchmark.products
    target = next(a for a, p in products.items() if about.capitalize() in (*p.details, "Brand", "Price"))
    task = next(task for task in study.train_tasks if task.type == "search")
    episode = study.start(task.model_copy(update={"target": target}))
    question = f"Which {about} would you like?"
    assert study.catalogue.find_attribute(question) == about
    episode.step(call("ask", question))
    assert about in {line.about for line in episode.state.profile.lines if line.provenance == "stated"}


@cases("open")
def test_what_is_open_follows_from_request_shop_and_profile(teacher, case):
    instruction, known, first, never = case
    lines = [(f"{about}: x", True, "history") for about in known]
    state, asked = state_of(instruction, *lines), []
    while (action := teacher("search", questions=9)(state)).name == "respond":
        asked.append(action.arguments["content"].split()[1])
        assert f"open: {asked[-1]}" in action.thought
        state = state_of(instruction, *lines, session=(*state.session, answered(asked[-1], "Either way.")))
    assert asked[0] == (first or asked[0]) and not {*never} & {*asked} and len({*asked}) == len(asked)
    assert not asked[1:] or first != "type", "no answer to it, nothing to go on asking about"


def test_how_many_it_asks_is_a_limit_and_its_order_is_seeded(study, train_tasks):
    tasks = [*train_tasks["search"][:8], *train_tasks["review"][:2]]
    for questions in (0, 1, 3):
        asked = [ask_all(make_teacher(study, 0, questions), task, study) for task in tasks]
        assert max(map(len, asked)) <= questions
    orders = [[ask_all(make_teacher(study, n, 3), task, study) for task in tasks] for n in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


@cases("queries")
def test_a_query_is_composed_of_request_profile_and_answers(teacher, case):
    wanted, lines, answer, query = case
    session = (answered(*answer),) if answer else ()
    action = teacher("search")(state_of(f"Find me {wanted}.", *lines, session=session))
    assert action.arguments["query"] == query


def test_a_recommendation_takes_the_purchases_that_hold_most_of_what_was_said(teacher):
    titles = {"B1": "Navy cotton bath towel", "B2": "White linen bath towel", "B3": "Navy steel desk lamp"}
    bought = tuple(Purchase(asin, title, "Home", "2020-01") for asin, title in titles.items())

    def ids(instruction, *session):
        state = state_of(instruction, purchases=bought, session=session)
        return teacher("recommend")(state).arguments["product_sequence"]

    navy = answered("color", "Best in navy.")
    assert ids("Anything nice?") == ["B1", "B2", "B3"]
    assert ids("Anything nice?", navy) == ["B1", "B3"]
    assert ids("Any ideas for a towel?", navy) == ["B1"]
    assert teacher("recommend")(state_of("Anything nice?")).arguments["product_sequence"] == []


def test_a_review_in_the_earlier_ones_words_mentions_what_is_asked_for(teacher, benchmark):
    products = benchmark.products.values()
    towel, mat = (next(p for p in products if t in p.title) for t in ("bath towel", "yoga mat"))
    earlier = Review(rating=5, text="What a lovely find, my yoga mat! I trust it by now. It made my week.")
    past = (Behavior(parent_asin=mat.parent_asin, timestamp=1, review=earlier),)
    asked = (
        step(call("ask", "How many stars would you give it?"), "I would give it two stars."),
        step(call("ask", "What should the review mention?"), "Do mention the smell."),
    )

    def review(instruction, session=()):
        state = state_of(instruction, product=towel, history=past, session=session)
        return teacher("search", questions=2)(state)

    assert review("Review my bath towel.").arguments["content"] == "How many stars would you give it?"
    assert review("Review my bath towel.", asked).arguments["review"] == (
        "I am not happy with my bath towel. I do not like the smell."
    )
    five = (step(asked[0].action, "Five stars."), step(asked[1].action, "Either way is fine."))
    assert review("Review my bath towel, mention the Willow brand.", five).arguments["review"] == (
        "What a lovely find, my bath towel! I am glad about the Willow brand. It made my week."
    )


def test_another_hidden_target_changes_nothing_for_teacher_or_judge(study, train_tasks):
    """Tasks that differ in their target alone are played alike, and each action has the same score."""
    for task in (*train_tasks["search"], *train_tasks["recommend"]):
        played = []
        for target in (task.target, next(a for a in study.benchmark.products if a != task.target)):
            other = task.model_copy(update={"target": target})
            states, trajectory = play(study, make_teacher(study, 0, 0), other)
            actions = [each.action for each in trajectory.steps]
            played.append((states, actions, judge_of(study).scores(states[:-1], actions)))
            told = [LlmJudge(None).request(*each) for each in zip(states, actions, strict=False)]
            played[-1] += (make_teacher(study, 0, 2)(states[0]), told)
        assert played[0] == played[1]


def test_a_language_model_teaches_from_the_same_messages_each_round_another_reply(
    study, train_tasks, tmp_path
):
    done = Reply(text='<think>x</think><tool_call>{"name": "stop", "arguments": {}}</tool_call>')
    model, roles = ScriptedModel([done] * 3), study.settings.players
    taught = elsewhere(study, tmp_path, players=roles.changed(teacher="openai:x"))
    taught.model = {"openai:x": model}.get
    for number, kind in ((0, "search"), (1, "search"), (0, "review")):
        teach = make_teacher(taught, number, questions=2)
        assert teach(study.start(train_tasks[kind][0]).state).name == "stop"
    assert [request.sample for request in model.requests] == [0, 1, 0]
    assert [request.sampling["temperature"] for request in model.requests] == [0.6, 0.6, 1.0]
    assert model.requests[0].messages == model.requests[1].messages and model.requests[0].tools
