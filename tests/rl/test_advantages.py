"""Advantages against cases computed by hand."""

from fractions import Fraction

import numpy as np
import pytest

from pwagents.rl.advantages import (
    critic_advantages,
    gae,
    group_advantages,
    returns_to_go,
    sampled_rewards,
    states_of,
    token_advantages,
)
from pwagents.rl.rollout import Played, Rollout, loss_mask
from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.schema import Action, Observation, Step, Trajectory

from .game import CIRCUMSTANCES


def rollout(names, turns, mask, error="", thought="", answer="."):
    """An episode whose steps call these functions; ``error`` is that of a stop."""
    steps = tuple(
        Step(
            action=Action(name=name, thought=thought),
            observation=Observation(text=answer),
            error=error if name == "stop" else "",
        )
        for name in names
    )
    trajectory = Trajectory(task_id="t", user_id="u", type="search", target="B1", steps=steps)
    return Rollout([1], list(range(len(turns))), mask, [-0.5 * m for m in mask], turns, (), trajectory)


GROUPS = CIRCUMSTANCES["groups"]


@pytest.mark.parametrize(("rewards", "how", "differences", "variance"), GROUPS.values(), ids=GROUPS)
def test_a_group_is_compared_by_hand(rewards, how, differences, variance):
    divisor = 1 if variance is None else float(Fraction(variance)) ** 0.5 + 1e-4
    for values, own in zip(group_advantages(rewards, **how), differences, strict=True):
        assert list(values) == pytest.approx([value / divisor for value in own])
        assert values.any() == any(own), "0 is 0"


def test_a_state_is_what_was_done_and_came_back_and_no_thought():
    one, same, other = (
        states_of(rollout(["respond", "stop"], [0, 1], [1, 1], thought=thought, answer=answer))
        for thought, answer in (("open: colour", "Navy."), ("hm", "Navy."), ("hm", "Grey."))
    )
    assert one == same and one[0] == other[0] and one[1] != other[1]


def test_neither_answers_nor_what_follows_stop_are_learned_from():
    one = rollout(["respond", "stop", "search"], turns=[0, 0, 1, 1, 2], mask=[1, 0, 1, 1, 1])
    other = rollout(["respond", "search"], turns=[0, 0, 0, 1, 1], mask=[1, 1, 0, 1, 1])
    assert loss_mask(one) == [1, 0, 1, 1, 0]
    refused = rollout(["stop", "search"], turns=[0, 0, 1], mask=[1, 0, 1], error="stop takes no arguments")
    assert loss_mask(refused) == [1, 0, 1], "it ended nothing"
    played = Played([one, other], [[0.0, 1.0, 9.0], [0.0, 4.0]], {})
    config = GrpoSettings(max_steps=1, num_generations=2, credit="turn", scale_rewards="none")
    # Still to come: 10, 10, 9 and 4, 4: less their means (7, 7): 3, 3 and -3, -3.
    assert token_advantages(played, config).tolist() == [3, 3, 3, -3, -3, -3, -3]


def test_gae_by_hand():
    # gamma .9, lambda .5, from the end:
    # surprise 2 + 0 - 1 = 1            advantage 1
    # surprise 0 + .9 * 1 - 0 = .9      advantage .9 + .45 * 1 = 1.35
    # surprise 1 + .9 * 0 - 1 = 0       advantage 0 + .45 * 1.35 = .6075
    # surprise 0 + .9 * 1 - .5 = .4     advantage .4 + .45 * .6075 = .673375
    advantages = gae([0, 1, 0, 2], [0.5, 1, 0, 1], gamma=0.9, lam=0.5)
    assert list(advantages) == pytest.approx([0.673375, 0.6075, 1.35, 1])


def test_a_reward_is_paid_at_the_last_sampled_token_of_its_turn_and_answers_take_no_time():
    # lambda 1, gamma 1: the advantage is what is still to come less the value.
    episode = rollout(["respond", "search"], turns=[0, 0, 0, 1, 1], mask=[1, 1, 0, 1, 1])
    rewards = sampled_rewards(episode, [0.5, 1.0])
    assert rewards == [0.0, 0.5, 0.0, 1.0]
    assert list(returns_to_go(rewards, 1.0)) == pytest.approx([1.5, 1.5, 1.0, 1.0])
    assert list(gae(rewards, [0.2] * 4, 1.0, 1.0)) == pytest.approx([1.3, 1.3, 0.8, 0.8])


def test_the_critic_is_told_what_was_still_to_come_whatever_it_forecast():
    episodes = [rollout(["stop"], [0], [1]), rollout(["respond", "stop"], [0, 0, 1], [1, 0, 1])]
    played = Played(episodes, [[1.0], [0.5, 1.0]], {})
    config = PpoSettings(max_steps=1, lam=0.5, gamma=0.9)
    advantages, returns = critic_advantages(played, [0.2, 0.1, 0.3], config)
    # GAE: 1 - .2 = .8; 1 - .3 = .7, before it .5 + .9 * .3 - .1 = .67, and .45 * .7 = .315 with it.
    by_hand = np.array([0.8, 0.985, 0.7])
    assert list(advantages) == pytest.approx((by_hand - by_hand.mean()) / by_hand.std(ddof=1))
    assert list(returns) == pytest.approx([1.0, 1.4, 1.0])
    # While it knows nothing, to ask first is no worse: the longer way is not punished for its length.
    played = Played(episodes, [[1.0], [0.0, 1.0]], {})
    assert not critic_advantages(played, [0.0] * 3, PpoSettings(max_steps=1))[0].any()
