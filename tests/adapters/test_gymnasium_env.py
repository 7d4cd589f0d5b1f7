"""The Gymnasium adapter: its own checker, and the same rewards."""

import json

import pytest

pytest.importorskip("gymnasium", reason="an extra: pip install -e .[gymnasium]")

from gymnasium.utils.env_checker import check_env

from pwagents.adapters.gymnasium_env import ShopEnv

from .conftest import greedy


def test_gymnasium_s_checker_has_nothing_to_say(task_set, recwarn):
    check_env(ShopEnv(task_set), skip_render_check=True)
    told = [str(warning.message) for warning in recwarn]
    assert not [text for text in told if "gym" in text.lower()]


def test_the_same_agent_earns_what_it_earns_with_the_runner(task_set, rewards):
    env, earned = ShopEnv(task_set), {}
    for task_id in task_set:
        told, info = env.reset(options={"task_id": task_id})
        answers, ended = [], False
        while not ended:
            name, arguments = greedy(told, answers)
            call = json.dumps({"name": name, "arguments": arguments})
            answer, reward, ended, _, _ = env.step(call)
            answers.append(answer)
        earned[info["task_id"]] = reward
    assert earned == rewards


@pytest.mark.parametrize("action", ["buy it", "[1]", '{"name": "stop", "arguments": [1]}', "{}"])
def test_a_text_that_is_no_call_is_a_step_with_an_error(task_set, action):
    env = ShopEnv(task_set)
    env.reset(seed=0)
    told, reward, ended, truncated, _ = env.step(action)
    assert told.startswith("Error: ") and (reward, ended, truncated) == (0.0, False, False)
