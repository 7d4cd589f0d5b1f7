"""InteRecAgent: a profile that goes from task to task, made and kept by the model or by rules."""

import json

import pytest

from pwagents.agents.interec import play_interec
from pwagents.errors import NotEvaluableError

from .conftest import ScriptedModel, call

PROFILE = {"like": ["A"], "dislike": ["B"], "expect": ["mugs"], "unread": 0}


@pytest.fixture
def play_one(setup_of, environment_of):
    def play(model, task, profile):
        return play_interec(setup_of(model), environment_of(task), profile)

    return play


def profile_reply(**parts):
    return f"Here it is:\n```json\n{json.dumps(parts)}\n```"


def test_a_first_profile_comes_from_the_history_and_each_task_adds_to_it(play_one, task_of):
    task = task_of["search"]
    script = [
        profile_reply(like=["A", "D"], dislike=["B"]),
        "Which brand?",
        call("search_product_by_query", '{"query": "mug"}'),
        call("stop"),
        profile_reply(like=["B", "C"], dislike=["D"], expect=["a Kestrel mug"]),
    ]
    model = ScriptedModel(script)
    trajectory, profile = play_one(model, task, {})
    assert profile == {"like": ["A", "B", "C"], "dislike": ["D"], "expect": ["a Kestrel mug"], "unread": 0}
    first, agent, *_, last = (request.messages for request in model.requests)
    before, _, past = first[0]["content"].partition("<data>")
    assert "clearly dislike" in before and past.count("stars.") > 10
    assert "<data>\nlike: A, D\ndislike: B\nexpect: -\n</data>" in agent[0]["content"]
    talk = ("Which brand?", "I prefer ", 'search_product_by_query({"query": "mug"})', "stop({})")
    assert all(text in last[0]["content"] for text in (task.instruction, *talk))
    assert trajectory.usage.calls == 5


def test_a_profile_that_cannot_be_read_or_is_refused_is_counted_and_changes_nothing(play_one, task_of):
    for reply in ("I cannot.", '{"like": "A"}', '{"like": [1]}', '{"like": ["A"', "{" * 100_000):
        _, profile = play_one(ScriptedModel([call("stop"), reply]), task_of["search"], PROFILE)
        assert profile == PROFILE | {"unread": 1}

    def refuse(request):
        raise NotEvaluableError("the prompt is too long")

    trajectory, profile = play_one(ScriptedModel(refuse), task_of["search"], PROFILE)
    assert (trajectory.end, trajectory.message) == ("refused", "NotEvaluableError: the prompt is too long")
    assert profile == PROFILE | {"unread": 1}


def test_offline_the_profile_is_kept_by_rules(play_one, benchmark, task_of, policy):
    task = task_of["search"]
    trajectory, profile = play_one(policy, task, {})
    history = benchmark.history(task, "test")
    assert set(profile["like"]) == {b.parent_asin for b in history if b.review.rating >= 4}
    assert profile["expect"] == [trajectory.steps[0].observation.text]
    assert all(step.action.usage is None for step in trajectory.steps)
