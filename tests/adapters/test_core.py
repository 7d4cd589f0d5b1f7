"""The core: what an agent is told, what its calls bring, when the reward comes; the tasks of a preset."""

import json

import pytest

from pwagents.adapters import ENDED, Session, load_tasks
from pwagents.shop.environment import MAX_STEPS
from pwagents.shop.sasrec import RecommendersByTime

from .conftest import play_greedily


@pytest.fixture
def session(task_set):
    return Session(task_set)


@pytest.fixture
def search(task_set):
    """The first search task."""
    return next(task for task in task_set.tasks.values() if task.type == "search")


def test_the_same_agent_earns_what_it_earns_with_the_runner(session, rewards):
    earned = {}
    for task_id in session.tasks:
        play_greedily(session.reset(task_id), lambda *call: session.step(*call)[::2])
        earned[task_id] = session.finish()
    assert earned == rewards


def test_an_agent_is_told_rules_past_and_request_and_nothing_of_the_answer(session, search, benchmark):
    text = session.reset(search.task_id)
    assert text.endswith(f"User {search.user_id}: {search.instruction}")
    assert "call stop" in text and "latest first" in text
    history = benchmark.history(search, "test")
    assert benchmark.products[history[-1].parent_asin].title in text
    assert search.target not in text or search.target in {b.parent_asin for b in history}
    names = [tool["function"]["name"] for tool in session.tasks.tools]
    assert names == list(session.tasks.functions) and names[-2:] == ["respond", "stop"]


def test_the_reward_comes_at_the_end_and_is_that_of_the_last_attempt(session, search, benchmark):
    title = benchmark.products[search.target].title
    session.reset(search.task_id)
    right = session.step("search_product_by_query", {"query": title})
    assert (right.reward, right.done) == (0.0, False) and search.target in right.text
    session.step("search_product_by_query", json.dumps({"query": "zzz"}))
    ended = session.step("stop", "")
    assert ended.done and ended.reward == session.finish() == 0.0
    session.reset(search.task_id)
    session.step("search_product_by_query", {"query": title})
    assert session.finish() > 0.5 and session.done and len(session.trajectory.steps) == 1


def test_a_malformed_call_is_a_step_that_says_what_is_wrong(session, search):
    session.reset(search.task_id)
    for name, arguments, part, kind in (
        ("search_product_by_query", "{'query'", "the arguments of search", "malformed_json"),
        (None, {"x": float("nan")}, "NaN is no JSON", "malformed_json"),
        ("search_product_by_query", {"words": "mat"}, "query", "wrong_arguments"),
    ):
        text = session.step(name, arguments).text
        assert "Error: " in text and part in text and session.trajectory.steps[-1].error_kind == kind


def test_nothing_follows_the_end_and_a_session_without_a_task_or_one_that_is_none_are_errors(session, search):
    for act in (session.finish, lambda: session.step("stop", {})):
        with pytest.raises(ValueError, match="no task is under way"):
            act()
    for wrong in ("t-none", ["a"]):
        with pytest.raises(ValueError, match=r"task_id: found .*; expected one of the 18 tasks"):
            session.reset(wrong)
    session.reset(search.task_id)
    answers = [session.step("respond", {"content": "Which color?"}) for _ in range(MAX_STEPS + 2)]
    assert [answer.done for answer in answers] == [False] * (MAX_STEPS - 1) + [True] * 3
    assert answers[-1] == (ENDED, 0.0, True) and len(session.trajectory.steps) == MAX_STEPS


def test_a_failure_outside_the_agent_is_no_reward(session, search):
    session.reset(search.task_id)

    def no_user(*_):
        raise OSError("the user's endpoint is down")

    session._environment.user = no_user
    with pytest.raises(OSError):
        session.step("respond", {"content": "Which color?"})  # a harness may make an answer of it
    with pytest.raises(OSError, match="endpoint is down"):
        session.finish()


TINY = {"data": {"n_users": 12, "n_products": 300}, "shop": {"rec_dates": 1, "recommender": {"epochs": 1}}}


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.setattr(RecommendersByTime, "fit", lambda *_: RecommendersByTime([], []))
    given = {"tasks": 6, "output_dir": tmp_path, **TINY}
    return lambda *names, **options: load_tasks(*names, **given, **options)


@pytest.mark.parametrize("split", ["test", "train"])
def test_an_agent_sees_what_lies_before_the_first_task_of_the_split(load, split):
    tasks = load(split=split)
    benchmark = tasks.start(next(iter(tasks.tasks.values()))).shop.benchmark
    assert set(tasks) <= {task.task_id for task in benchmark.tasks[split]} and len(tasks) == 6
    for task_id, task in tasks.tasks.items():
        history = tasks.start(task).state.history
        assert history == benchmark.history(task, split)
        assert Session(tasks).reset(task_id).count("  Title: ") == min(len(history), 20)
    tasks = load(track="single_turn")  # which has no talk, and ends with the first call
    assert not {"respond", "stop"} & set(tasks.functions)
    session = Session(tasks)
    assert "cannot ask anything back" in session.reset(next(iter(tasks)))
    assert session.step("search_product_by_query", {"query": "coat"}).done
