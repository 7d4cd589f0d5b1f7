"""The web environment: calls, ends, what agents see, and the profile that follows a session.

What calls are worth, in which order results stand, and where an episode ends, is in ``test_grader.py``.
"""

from dataclasses import replace

import pytest

from pwagents.errors import NotEvaluableError
from pwagents.profiles.contextual import Context, ContextualProfile, ProfileLine, Update
from pwagents.schema import FUNCTION_OF, Action, Usage
from pwagents.shop.environment import DETAILS_FUNCTION, MAX_STEPS, Environment, UserReply, tool_schemas
from pwagents.shop.score import attempts, grade

ASK = Action(name="respond", arguments={"content": "Which color?"})
STOP = Action(name="stop")


def search(query):
    return Action(name="search_product_by_query", arguments={"query": query})


@pytest.fixture
def begin(shop, task_of):
    """``begin("search", ...)``: an environment in which the task of the type has begun."""

    def make(task_type="search", track="multi_turn", shop=shop, user=None, **options):
        return Environment(shop, task_of[task_type], track, user=user, **options)

    return make


def test_a_review_is_measured_when_it_is_published_and_only_in_a_review_task(begin, task_of):
    review = Action(name="add_product_review", arguments={"review": task_of["review"].review.text})
    environment = begin("review")
    for action in (review, Action(name="add_product_review", arguments={"review": "zzz"}), search("mat")):
        environment.step(action)
    assert environment.trajectory.similarities == (1.0, 0.0)
    environment = begin("search")
    environment.step(review)
    assert environment.trajectory.similarities == () and attempts(environment.trajectory) == []


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search_product_by_query", {"query": "x", "a\nb": 1}, "a b: "),
        ("search_product_by_query", {"query": "x", "environment": None}, "environment: "),
        ("buy", {}, "unknown function 'buy'"),
        (DETAILS_FUNCTION, {"product_asin": "x"}, "unknown function"),
    ],
)
def test_a_malformed_call_is_an_observation_of_one_line(begin, name, arguments, message):
    environment = begin()
    step = environment.step(Action(name=name, arguments=arguments))
    assert message in step.error and step.observation.text == f"Error: {step.error}"
    assert "\n" not in step.error and step.error_kind in ("wrong_arguments", "unknown_function")
    assert environment.end is None and grade(environment.trajectory).attempts == 0


def test_respond_reaches_the_user_and_every_end_is_told(begin, task_of):
    heard = []

    def user(task, session, says):
        heard.append((task.task_id, len(session), says))
        return UserReply("Error: navy, please", Usage(calls=1), "[thoughts]")

    environment = begin(user=user)
    environment.step(search("mat"))
    answer, lost = environment.step(ASK), environment.step(Action(name="respond", arguments={}))
    assert (answer.observation.text, answer.user_usage) == ("Error: navy, please", Usage(calls=1))
    assert heard == [(task_of["search"].task_id, 1, "Which color?")]
    assert answer.error == "" and lost.error and lost.user_usage is None
    # What a model thinks as the user is kept for its server, and no agent reads it.
    assert [step.user_extras for step in environment.trajectory.steps] == ["", "[thoughts]", ""]
    assert answer.user_extras == "" and not any(step.user_extras for step in environment.state.session)
    assert environment.trajectory.end == "cut_off", "nobody has ended it"
    environment.step(STOP)
    assert environment.end == "stop"
    environment = begin()
    ends = [environment.step(search("mat")) and environment.end for _ in range(MAX_STEPS)]
    assert ends == [None] * 9 + ["steps"]


def test_a_review_task_without_a_real_review_is_refused(shop, task_of):
    empty = task_of["review"].review.model_copy(update={"text": " "})
    with pytest.raises(NotEvaluableError, match=task_of["review"].task_id):
        Environment(shop, task_of["review"].model_copy(update={"review": empty}))


def test_tool_schemas_come_from_the_signatures():
    names = (*FUNCTION_OF.values(), DETAILS_FUNCTION, "respond", "stop")
    schemas = {tool["function"]["name"]: tool["function"] for tool in tool_schemas(names)}
    parameters = schemas["get_recommendations_by_history"]["parameters"]
    assert parameters["properties"]["product_sequence"]["type"] == "array"
    assert parameters["required"] == ["product_sequence"]
    assert all(function["description"] for function in schemas.values())
    assert not any("environment" in function["parameters"]["properties"] for function in schemas.values())


def test_what_breaks_inside_the_shop_is_no_malformed_call(begin, shop):
    class Broken:
        def search(self, query, k=10):
            raise ValueError("the index is corrupt")

    with pytest.raises(ValueError, match="the index is corrupt"):
        begin(shop=replace(shop, search_engine=Broken())).step(search("navy"))


# What agents see


def test_another_target_leaves_the_state_as_it_is(shop, benchmark, task_of):
    """Whatever an agent could read off its state, it tells neither target nor grade.

    A cheat that read the grade of its last step off the state once reached 1.000.
    """
    for task in (task_of["search"], task_of["recommend"]):
        states, results, title = [], set(), benchmark.products[task.target].title
        for target in [task.target, *list(benchmark.products)[:20]]:
            environment = Environment(shop, task.model_copy(update={"target": target}), "multi_turn")
            for action in [search(title), *map(search, ("mat", "lamp", "headphones"))]:
                environment.step(action)
            states.append(environment.state)
            results.add(grade(environment.trajectory).result_official)
        assert all(state == states[0] for state in states)
        assert task.type != "search" or len(results) > 1


# The contextual profile (Orion, 4.2)

BEFORE = ContextualProfile(lines=(ProfileLine.of("color: navy", True, "history"),))
COST = Usage(calls=1, prompt_tokens=30, completion_tokens=4)


class Hears:
    """Takes down what the user answers; notes what it is given."""

    def __init__(self):
        self.given = []

    def __call__(self, profile, instruction, session):
        self.given.append((profile, instruction, tuple(session)))
        if session[-1].action.name == "respond":
            line = ProfileLine.of(session[-1].observation.text, True, "stated")
            profile = ContextualProfile(lines=(line, *profile.lines))
        return Update(profile, COST)


def cotton(*_):
    return UserReply("material: cotton")


def test_an_answer_changes_the_profile_and_is_told_with_it_and_no_other_step_does(begin):
    update, context = Hears(), Context(BEFORE, ("B0OLD",))
    environment = begin(user=cotton, context=context, update=update)
    first = environment.state
    assert (first.profile, first.context, first.session) == (BEFORE, context, ())
    environment.step(Action(problem="two calls", problem_kind="malformed_json"))
    step, state = environment.step(ASK), environment.state
    assert [line.text for line in state.profile.lines] == ["material: cotton", "color: navy"]
    assert step == state.session[-1] and step.profile == state.profile.describe()
    assert state.context.profile == BEFORE and first.profile == BEFORE, "P_ctx,0 stays what it was"
    environment.step(search("mat"))
    assert environment.state.profile == state.profile == update.given[2][0]
    lost, asked, _ = (session for _, _, session in update.given)
    assert lost[-1].error == "two calls" and {given[1] for given in update.given} == {state.instruction}
    assert (asked[-1].action, asked[-1].observation.text) == (ASK, "material: cotton")
    steps = environment.trajectory.steps
    assert [bool(step.profile) for step in steps] == [False, True, False]
    assert [step.update_usage for step in steps] == [COST] * 3
    alone, without = Hears(), begin(user=cotton, context=context)  # no profile to update, no update
    begin(user=cotton, update=alone).step(ASK)
    without.step(ASK)
    assert without.state.profile == BEFORE and not alone.given
