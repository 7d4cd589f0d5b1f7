"""The core: what an agent is told, what its calls bring, when the reward comes."""

import json

import pytest

from pwagents.adapters.core import ENDED, Session
from pwagents.web.environment import MAX_STEPS


@pytest.fixture
def session(task_set):
    return Session(task_set)


@pytest.fixture
def search(task_set):
    """The first search task."""
    return next(task for task in task_set.tasks.values() if task.type == "search")


def test_the_same_agent_earns_what_it_earns_with_the_runner(session, greedy, rewards):
    earned = {}
    for task_id in session.tasks:
        told, answers = session.reset(task_id), []
        while not session.done:
            answer = session.step(*greedy(told, answers))
            answers.append(answer.text)
        earned[task_id] = answer.reward
        assert answer.done and session.finish() == answer.reward
    assert earned == rewards


def test_an_agent_is_told_rules_past_and_request_and_nothing_of_the_answer(session, search, benchmark):
    told = session.reset(search.task_id)
    assert told.endswith(f"User {search.user_id}: {search.instruction}")
    assert "call stop" in told and "latest first" in told
    last = benchmark.history(search, "test")[-1]
    assert benchmark.products[last.parent_asin].title in told
    assert search.target not in told or search.target in {
        b.parent_asin for b in benchmark.history(search, "test")
    }
    names = [tool["function"]["name"] for tool in session.tasks.tools]
    assert names == list(session.tasks.functions) and names[-2:] == ["respond", "stop"]


def test_the_reward_comes_at_the_end_and_is_that_of_the_last_attempt(session, search, benchmark):
    session.reset(search.task_id)
    title = benchmark.products[search.target].title
    right = session.step("search_product_by_query", {"query": title})
    assert right == (right.text, 0.0, False) and search.target in right.text
    session.step("search_product_by_query", json.dumps({"query": "zzz"}))
    ended = session.step("stop", "")
    assert ended.done and ended.reward == 0.0
    session.reset(search.task_id)
    session.step("search_product_by_query", {"query": title})
    assert session.finish() > 0.5 and session.done
    assert len(session.trajectory.steps) == 1


def test_a_malformed_call_is_a_step_that_says_what_is_wrong(session, search):
    session.reset(search.task_id)
    assert session.step("search_product_by_query", "{'query'").text.startswith(
        "Error: the arguments of search"
    )
    assert "unknown function 'buy'" in session.step("buy", {}).text
    assert session.step(None, {"x": float("nan")}).text.endswith("(NaN is no JSON)")
    assert "query" in session.step("search_product_by_query", {"words": "mat"}).text
    kinds = [step.error_kind for step in session.trajectory.steps]
    assert kinds == ["malformed_json", "unknown_function", "malformed_json", "wrong_arguments"]


def test_an_episode_ends_after_ten_steps_and_nothing_follows_the_end(session, search):
    session.reset(search.task_id)
    answers = [session.step("respond", {"content": "Which color?"}) for _ in range(MAX_STEPS + 2)]
    assert [answer.done for answer in answers] == [False] * (MAX_STEPS - 1) + [True] * 3
    assert answers[-1] == (ENDED, 0.0, True)
    assert len(session.trajectory.steps) == MAX_STEPS


def test_a_session_without_a_task_and_a_task_that_is_none_are_errors(session):
    with pytest.raises(ValueError, match="no task is under way"):
        session.step("stop", {})
    with pytest.raises(ValueError, match="no task is under way"):
        session.finish()
    for wrong in ("t-none", None, ["a"]):
        with pytest.raises(ValueError, match=r"task_id: found .*; expected one of the 18 tasks"):
            session.reset(wrong)


def test_a_failure_outside_the_agent_is_no_reward(session, search):
    session.reset(search.task_id)

    def no_user(*_):
        raise OSError("the user's endpoint is down")

    session._episode.user = no_user
    with pytest.raises(OSError):
        session.step("respond", {"content": "Which color?"})  # a harness may make an answer of it
    with pytest.raises(OSError, match="endpoint is down"):
        session.finish()
