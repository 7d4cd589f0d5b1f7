"""An episode's contextual profile: where it begins, when it changes, and that nothing else changes it."""

import pytest

from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import Update
from pwagents.schema import Action, Usage
from pwagents.web.environment import Context, UserReply, WebEnvironment

BEFORE = ContextualProfile(lines=(ProfileLine.of("color: navy", True, "history"),))
ASK = Action(name="respond", arguments={"content": "Which material?"})
SEARCH = Action(name="search_product_by_query", arguments={"query": "mat"})


class Hears:
    """Takes down what the user answers; notes what it is given."""

    def __init__(self):
        self.given = []

    def __call__(self, profile, instruction, session):
        self.given.append((profile, instruction, tuple(session)))
        if session[-1].action.name != "respond":
            return Update(profile)
        line = ProfileLine.of(session[-1].observation.text, True, "stated")
        return Update(ContextualProfile(lines=(line, *profile.lines)))


@pytest.fixture
def begin(shop, benchmark, task_of):
    """``begin(context, update)``: an episode of the search task, with a user who wants cotton."""

    def make(context=None, update=None):
        environment = WebEnvironment(shop, "multi_turn", lambda *_: UserReply("material: cotton"))
        task = task_of["search"]
        environment.reset(task, benchmark.history(task, "test"), context, update)
        return environment

    return make


def test_an_episode_begins_with_what_was_retrieved(begin):
    context = Context(BEFORE, ("B0OLD",))
    state = begin(context).state
    assert (state.profile, state.context, state.session) == (BEFORE, context, ())
    assert (begin().state.profile, begin().state.context) == (None, None)


def test_an_answer_changes_the_profile_and_is_told_with_its_observation(begin):
    update = Hears()
    episode = begin(Context(BEFORE), update)
    step = episode.step(ASK)
    state = episode.state
    assert step == state.session[-1]
    assert [line.text for line in state.profile.lines] == ["material: cotton", "color: navy"]
    assert state.session[-1].profile == state.profile.describe()
    assert state.context.profile == BEFORE, "P_ctx,0 stays what it was"
    (profile, instruction, session) = update.given[0]
    assert (profile, instruction) == (BEFORE, state.instruction)
    assert [(step.action, step.observation.text) for step in session] == [(ASK, "material: cotton")]
    assert episode.trajectory.steps == state.session


def test_a_step_that_changes_nothing_tells_no_profile_and_the_next_one_goes_on_from_there(begin):
    update = Hears()
    episode = begin(Context(BEFORE), update)
    episode.step(ASK)
    after = episode.state.profile
    episode.step(SEARCH)
    state = episode.state
    assert state.profile == after and state.session[-1].profile == ""
    assert update.given[1][0] == after and len(update.given[1][2]) == 2
    assert [bool(step.profile) for step in state.session] == [True, False]


def test_what_an_update_cost_stands_on_its_step_whether_the_profile_changed_or_not(begin):
    cost = Usage(calls=1, prompt_tokens=30, completion_tokens=4)
    hears = Hears()
    episode = begin(Context(BEFORE), lambda *given: hears(*given)._replace(usage=cost))
    episode.step(ASK)
    episode.step(SEARCH)
    steps = episode.trajectory.steps
    assert [step.update_usage for step in steps] == [cost, cost]
    assert [bool(step.profile) for step in steps] == [True, False]


def test_a_lost_step_reaches_the_update_too(begin):
    update = Hears()
    episode = begin(Context(BEFORE), update)
    episode.step(Action(problem="two calls", problem_kind="malformed_json"))
    assert update.given[0][2][-1].error == "two calls" and episode.state.profile == BEFORE


@pytest.mark.parametrize("context", [None, Context(BEFORE)])
def test_without_an_update_the_profile_stays_and_without_a_profile_there_is_no_update(begin, context):
    update = Hears() if context is None else None
    episode = begin(context, update)
    episode.step(ASK)
    episode.step(SEARCH)
    state = episode.state
    assert state.profile == (context.profile if context else None)
    assert not any(step.profile for step in state.session)
    assert update is None or not update.given


def test_the_belief_state_before_a_step_is_not_changed_by_it(begin):
    episode = begin(Context(BEFORE), Hears())
    first = episode.state
    episode.step(ASK)
    assert (first.profile, first.session) == (BEFORE, ())
    assert episode.state is not first


def test_the_profiles_of_two_episodes_do_not_mix(begin):
    """They share one update: what one user says is not held of the other."""
    update = Hears()
    first, second = begin(Context(BEFORE), update), begin(Context(BEFORE), update)
    first.step(ASK)
    second.step(SEARCH)
    assert second.state.profile == BEFORE
