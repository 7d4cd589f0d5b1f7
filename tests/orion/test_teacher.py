"""The offline teacher: what it asks, what it searches for, and that it sees no more than S_t."""

from dataclasses import replace

import pytest

from pwagents.agents.replies import read_turn
from pwagents.evaluation.metrics import attempts
from pwagents.llm.chat import Reply
from pwagents.orion.teacher import QUESTIONS
from pwagents.orion.wishes import WishReader
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.schema import Action, Behavior, Observation, Review, Step
from pwagents.web.environment import BeliefState, Context

from .world import SPLIT, make_setting, make_teacher

LOOKS = ("brand", "price", "color", "material", "feature", "style")
ABOUT = {"type": "topic"}  # what a question is about -> what profiles call it
TASTES = ("flavor", "diet", "pack", "origin", "scent", "formula")


@pytest.fixture(scope="module")
def setting(benchmark, catalogue):
    return make_setting(benchmark, catalogue)


@pytest.fixture(scope="module")
def tasks(benchmark):
    return {
        kind: [t for t in benchmark.tasks[SPLIT] if t.type == kind]
        for kind in ("search", "recommend", "review")
    }


def play(setting, teacher, task):
    episode = setting.start(task)
    while not episode.done:
        episode.step(teacher(episode.state))
    return episode.trajectory


def state_of(instruction, *lines, product=None, history=(), words=()):
    profile = ContextualProfile(lines=tuple(ProfileLine.of(*line) for line in lines), words=words)
    return BeliefState("U1", instruction, instruction, product, history, (), profile, Context(profile))


def stated(profile):
    return {line.about for line in profile.lines if line.provenance == "stated"}


def query_of(action):
    assert action.name == "search_product_by_query"
    return action.arguments["query"]


@pytest.mark.parametrize("about", [*LOOKS, *TASTES])
def test_user_and_profile_understand_every_question(setting, updater, benchmark, tasks, about):
    question = f"Which {about} would you like?"
    assert updater.find_attribute(question) == about
    key = about.capitalize()
    target = next(a for a, p in benchmark.products.items() if key in (*p.details, "Brand", "Price"))
    task = next(t for t in tasks["search"] if not stated(setting.context_of(t).profile))
    task = task.model_copy(update={"target": target})
    environment = setting.start(task)
    environment.step(Action(name="respond", arguments={"content": question}))
    assert about in stated(environment.state.profile)


def test_questions_pay(setting, catalogue, tasks):
    means = []
    for questions in (0, 2):
        teacher = make_teacher(setting, catalogue, questions=questions)
        played = [play(setting, teacher, task) for task in tasks["search"]]
        assert all(len(t.steps) <= questions + 2 and t.steps[-1].action.name == "stop" for t in played)
        means.append(sum(attempts(t)[-1] for t in played) / len(played))
    assert means[1] > means[0] + 0.1


def test_how_often_it_asks_differs_by_task_and_seed_and_repeats(setting, catalogue, tasks):
    def questions(seed):
        teacher = make_teacher(setting, catalogue, seed=seed)
        return [len(play(setting, teacher, task).steps) - 2 for task in tasks["search"]]

    assert set(questions(0)) == set(range(QUESTIONS + 1))
    assert questions(0) == questions(0) != questions(1)


def test_one_attribute_at_a_time_and_none_twice(setting, catalogue, tasks):
    for task in tasks["search"]:
        steps = play(setting, make_teacher(setting, catalogue, questions=3), task).steps
        asked = [s.action.arguments["content"] for s in steps if s.action.name == "respond"]
        assert len(set(asked)) == len(asked)
        assert all(q.split()[1] in s.action.thought for q, s in zip(asked, steps, strict=False))


def test_what_is_stated_is_not_asked_and_what_is_avoided_is_not_searched(setting, catalogue):
    teacher = make_teacher(setting, catalogue, questions=9)
    teacher.identify = lambda instruction: "search_product_by_query"
    lines = [
        ("color: white", True, "stated"),
        ("material: cotton", False, "history"),
        ("style: plain", True, "history"),
    ]
    state = state_of("Find me a new bath towel.", *lines, words=("bath", "towel"))
    assert "color" not in teacher(state).thought
    teacher.questions = 0
    assert query_of(teacher(state)) == "white plain bath towel"
    without_words = state_of("Find me a new bath towel.", *lines)
    assert query_of(teacher(without_words)) == "Find me a new bath towel. white plain"
    both = [("style: plain", True, "history"), ("style: plain", False, "inferred")]
    assert query_of(teacher(state_of("A bath towel.", *both, words=("towel",)))) == "towel"
    assert query_of(teacher(state_of("A bath towel.", *both))) == "A bath towel."


def test_an_episode_begins_with_what_is_said_and_tastes_that_such_products_can_have(catalogue, updater):
    lines = [
        ("material: linen", True, "history"),
        ("scent: rose", True, "history"),
        ("topic: bath", True, "history"),
        ("Likes what lasts for years.", True, "history"),
        ("material: linen", False, "history"),
        ("brand: Ember", False, "history"),
        ("topic: bath", False, "history"),
    ]
    profile = ContextualProfile(lines=tuple(ProfileLine.of(*line) for line in lines))
    begun = WishReader(catalogue, updater).begin(profile, "Need some laundry powder at a budget price.")
    assert [(line.text, line.positive) for line in begun.lines] == [
        ("price: budget", True),
        ("scent: rose", True),
        ("Likes what lasts for years.", True),
        ("material: linen", False),
        ("brand: Ember", False),
        ("topic: bath", False),
    ]
    assert begun.words == ("laundry", "powder")


def test_recommendations_come_from_what_was_bought(setting, catalogue, tasks):
    for task in tasks["recommend"]:
        call, stop = play(setting, make_teacher(setting, catalogue, questions=0), task).steps
        told = setting.context_of(task).profile.bought
        assert tuple(call.action.arguments["product_sequence"]) == told
        assert stop.action.name == "stop"


def values_of(catalogue, asin, about):
    return [trait.value for trait in catalogue.traits(asin) if trait.about == ABOUT.get(about, about)]


def test_before_a_recommendation_it_asks_what_tells_past_purchases_apart(setting, catalogue, tasks):
    asked = set()
    for task in tasks["recommend"]:
        episode, teacher = setting.start(task), make_teacher(setting, catalogue, questions=2)
        while not episode.done:
            told, action = episode.state.profile.bought, teacher(episode.state)
            if action.name == "respond":
                about = action.arguments["content"].split()[1]
                asked.add(about)
                assert (
                    len({frozenset(values_of(catalogue, asin, about)) for asin in told} - {frozenset()}) > 1
                )
            elif action.name == "get_recommendations_by_history":
                assert tuple(action.arguments["product_sequence"]) == told
            episode.step(action)
    assert {"type", "brand"} <= asked


def test_what_kind_of_thing_is_not_asked_where_the_request_says_it(setting, catalogue, benchmark):
    teacher = make_teacher(setting, catalogue, questions=9)
    teacher.identify = lambda instruction: "get_recommendations_by_history"
    told = tuple(benchmark.products)[:20]
    for instruction, asks in {"Any ideas for a bath towel?": False, "Any ideas?": True}.items():
        profile = ContextualProfile(bought=told)
        state = BeliefState("U1", instruction, instruction, None, (), (), profile, Context(profile, told))
        thoughts = []
        for _ in range(9):
            action = teacher(state)
            thoughts.append(action.thought)
            about = action.arguments.get("content", "Which ? would").split()[1]
            step = Step(action=action, observation=Observation(text="No preference there."))
            state = replace(state, session=(*state.session, step))
            if about == "?":
                break
        assert any("type" in thought for thought in thoughts) == asks


def test_of_one_product_nothing_is_asked(setting, catalogue, benchmark):
    teacher = make_teacher(setting, catalogue, questions=9)
    teacher.identify = lambda instruction: "get_recommendations_by_history"
    profile = ContextualProfile(bought=tuple(benchmark.products)[:1])
    state = BeliefState("U1", "Any ideas?", "Any ideas?", None, (), (), profile, Context(profile))
    action = teacher(state)
    assert (action.name, action.arguments["product_sequence"]) == (
        "get_recommendations_by_history",
        list(profile.bought),
    )


def test_a_review_in_the_earlier_ones_words(setting, catalogue, benchmark):
    towel = next(p for p in benchmark.products.values() if "bath towel" in p.title)
    mat = next(p for p in benchmark.products.values() if "yoga mat" in p.title)
    review = Review(rating=5, text="What a lovely find, my yoga mat! I trust it by now. It made my week.")
    past = Behavior(parent_asin=mat.parent_asin, timestamp=1, review=review)
    lines = [("brand: Willow", True, "stated")]
    teacher = make_teacher(setting, catalogue)

    def review_of(stars):
        instruction = (
            f"Help with a review of my bath towel. I rate it {stars} stars. Mention the Willow brand."
        )
        return teacher(state_of(instruction, *lines, product=towel, history=(past,))).arguments["review"]

    assert review_of("five") == (
        "What a lovely find, my bath towel! I am glad about the Willow brand. It made my week."
    )
    assert review_of("two") == "I am not happy with my bath towel. I do not like the Willow brand."


def test_another_hidden_target_changes_nothing(setting, catalogue, benchmark, tasks):
    """Tasks that differ in their target alone begin alike, and the teacher acts the same."""
    teacher, again = make_teacher(setting, catalogue), make_teacher(setting, catalogue)
    for task in [*tasks["search"], *tasks["recommend"]]:
        other = next(asin for asin in benchmark.products if asin != task.target)
        state, hidden = (
            setting.start(task).state,
            setting.start(task.model_copy(update={"target": other})).state,
        )
        assert state == hidden and teacher(state) == again(hidden)


def test_its_turns_are_read_as_a_policys(setting, catalogue, tasks):
    for kind in tasks:
        for step in play(setting, make_teacher(setting, catalogue), tasks[kind][0]).steps:
            action: Action = step.action
            text = f'{action.thought}<tool_call>{{"name": "{action.name}", "arguments": {{}}}}</tool_call>'
            assert action.thought.startswith(f"<think>{kind}, open: ") and action.thought.endswith("</think>")
            assert read_turn(Reply(text=text)).thought == action.thought
