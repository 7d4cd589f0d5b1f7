"""InteRecAgent: a profile that goes from task to task, made and kept by the model or by rules."""

import json
from itertools import count

import pytest

from pwagents.agents.interec import InteRecAgent, merge, play_task, update
from pwagents.agents.methods import METHODS
from pwagents.evaluation.runner import run_user_episodes
from pwagents.schema import Usage
from pwagents.web.environment import WebEnvironment

PROFILE = {"like": ["A"], "dislike": ["B"], "expect": ["mugs"], "unread": 0}


@pytest.fixture
def play_one(setup_of, shop, benchmark, brand_user):
    def play(model, task, profile, **fields):
        environment = WebEnvironment(shop, "multi_turn", brand_user)
        return play_task(
            setup_of(model, **fields), environment, task, benchmark.history(task, "test"), profile
        )

    return play


def profile_reply(**parts):
    return f"Here it is:\n```json\n{json.dumps(parts)}\n```"


def test_the_profile_is_told_after_the_latest_behaviours(setup_of, state_of, task_of, scripted):
    system = InteRecAgent(setup_of(scripted([]), length=1), PROFILE).messages(state_of(task_of["search"]))[0][
        "content"
    ]
    assert system.endswith(
        "What the customer likes, dislikes and expects:\n<data>\nlike: A\ndislike: B\nexpect: mugs\n</data>"
    )
    assert system.count("stars.") == 1


def test_a_first_profile_comes_from_the_history_and_each_task_adds_to_it(play_one, task_of, scripted, calls):
    task = task_of["search"]
    script = [
        profile_reply(like=["A"], dislike=["B"]),
        "Which brand?",
        calls("search_product_by_query", '{"query": "mug"}'),
        calls("stop"),
        profile_reply(like=["B", "C"], expect=["a Kestrel mug"]),
    ]
    model = scripted(script)
    trajectory, profile = play_one(model, task, {})
    assert profile == {"like": ["A", "B", "C"], "dislike": [], "expect": ["a Kestrel mug"], "unread": 0}
    first, agent, *_, last = (request.messages for request in model.requests)
    assert "clearly dislike" in first[0]["content"] and first[0]["content"].count("stars.") > 10
    assert "like: A\ndislike: B\nexpect: -" in agent[0]["content"]
    for said in (
        task.instruction,
        "Which brand?",
        "I prefer ",
        'search_product_by_query({"query": "mug"})',
        "stop({})",
    ):
        assert said in last[0]["content"]
    assert sum((step.action.usage for step in trajectory.steps), Usage()).calls == 5


def test_a_profile_at_hand_is_not_made_anew(play_one, task_of, scripted, calls):
    model = scripted([calls("stop"), profile_reply()])
    assert play_one(model, task_of["search"], PROFILE)[1] == PROFILE
    assert len(model.requests) == 2


def test_an_agent_without_a_profile_begins_an_empty_one(setup_of, play, task_of, scripted, calls):
    agent = METHODS["InteRecAgent"](setup_of(scripted([calls("stop"), profile_reply(like=["A"])])))
    profile, _ = update(agent, play(agent, task_of["search"]).state)
    assert profile == {"like": ["A"], "dislike": [], "expect": [], "unread": 0}


@pytest.mark.parametrize(
    "said", ["", "I cannot.", "[1]", '{"like": "A"}', '{"like": [1]}', '{"like": ["A"', "{" * 100_000]
)
def test_a_profile_that_cannot_be_read_is_counted_and_changes_nothing(
    play_one, task_of, scripted, calls, said
):
    _, profile = play_one(scripted([calls("stop"), said]), task_of["search"], PROFILE)
    assert profile == PROFILE | {"unread": 1}


def test_the_latest_word_on_a_product_counts_and_expectations_are_the_latest():
    merged = merge(PROFILE, {"like": ["B"], "dislike": ["A"], "expect": [f"e{i}" for i in range(30)]})
    assert merged == {
        "like": ["B"],
        "dislike": ["A"],
        "expect": [f"e{i}" for i in range(30)],
        "unread": 0,
    }


def test_offline_the_profile_is_kept_by_rules(play_one, benchmark, task_of, policy):
    task = task_of["search"]
    trajectory, profile = play_one(policy, task, {})
    history = benchmark.history(task, "test")
    assert set(profile["like"]) == {b.parent_asin for b in history if b.review.rating >= 4}
    assert profile["expect"] == [trajectory.steps[0].observation.text]
    assert all(step.action.usage is None for step in trajectory.steps)


def test_the_runner_stores_and_passes_on_what_is_remembered(
    tmp_path, setup_of, shop, benchmark, brand_user, scripted, calls
):
    wishes = (f"wish {i}" for i in count())

    def answer(request):
        return profile_reply(expect=[next(wishes)]) if len(request.messages) == 1 else calls("stop")

    model = scripted(answer)

    def solve(task, profile):
        environment = WebEnvironment(shop, "multi_turn", brand_user)
        return play_task(setup_of(model), environment, task, benchmark.history(task, "test"), profile)

    names = {"method": "InteRecAgent", "model": "scripted", "params": {}}
    tasks = benchmark.tasks["test"][:12]
    records = run_user_episodes(tasks, solve, tmp_path / "a", **names, workers=3)
    remembered = {}
    for task, record in sorted(zip(tasks, records, strict=True), key=lambda pair: pair[0].timestamp):
        before = remembered.get(task.user_id, [])
        remembered[task.user_id] = record.memory["expect"]
        assert record.memory["expect"][: len(before)] == before and len(record.memory["expect"]) > len(before)
    said = len(model.requests)
    assert run_user_episodes(tasks, solve, tmp_path / "a", **names) == records
    assert len(model.requests) == said
