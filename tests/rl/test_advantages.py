"""Advantages against cases computed by hand."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from pwagents.rl.advantages import critic_advantages, group_advantages, token_advantages
from pwagents.rl.loss import token_losses
from pwagents.rl.rollout import Played, Rollout, loss_mask
from pwagents.schema import Action, Observation, Step, Trajectory
from pwagents.settings import GrpoSettings

from .game import CIRCUMSTANCES


def rollout(names, turns, mask, error=""):
    """An episode whose steps call these functions; ``error`` is that of a stop."""
    actions, seen = [Action(name=name) for name in names], Observation(text=".")
    steps = [Step(action=a, observation=seen, error=error if a.name == "stop" else "") for a in actions]
    trajectory = Trajectory(task_id="t", user_id="u", type="search", target="B1", steps=steps)
    return Rollout([1], list(range(len(turns))), mask, [-0.5 * m for m in mask], turns, (), trajectory)


GROUPS = CIRCUMSTANCES["groups"]


@pytest.mark.parametrize(("rewards", "how", "differences", "variance"), GROUPS.values(), ids=GROUPS)
def test_a_group_is_compared_by_hand(rewards, how, differences, variance):
    divisor = 1 if variance is None else float(Fraction(variance)) ** 0.5 + 1e-4
    for values, own in zip(group_advantages(rewards, **how), differences, strict=True):
        assert list(values) == pytest.approx([value / divisor for value in own])
        assert values.any() == any(own), "0 is 0"


def test_a_token_that_moved_too_far_the_right_way_is_clipped_and_one_that_moved_the_wrong_way_is_not():
    ratios, gains = torch.tensor([1.5, 0.5, 1.5, 0.5]), torch.tensor([1.0, 1.0, -1.0, -1.0])
    losses = token_losses(ratios.log(), torch.zeros(4), torch.zeros(4), gains)
    torch.testing.assert_close(losses.loss, torch.tensor([-1.2, -0.5, 1.5, 0.8]))
    assert losses.clip_fraction.tolist() == [1, 0, 0, 1]


def test_neither_answers_nor_what_follows_stop_are_learned_from():
    one = rollout(["respond", "stop", "search"], turns=[0, 0, 1, 1, 2], mask=[1, 0, 1, 1, 1])
    other = rollout(["respond", "search"], turns=[0, 0, 0, 1, 1], mask=[1, 1, 0, 1, 1])
    assert loss_mask(one) == [1, 0, 1, 1, 0]
    refused = rollout(["stop", "search"], turns=[0, 0, 1], mask=[1, 0, 1], error="stop takes no arguments")
    assert loss_mask(refused) == [1, 0, 1], "it ended nothing"
    played = Played([one, other], [[0.0, 1.0, 9.0], [0.0, 4.0]], {})
    config = GrpoSettings(max_steps=1, num_generations=2, credit="turn", scale_rewards="none")
    # Still to come: 10, 10, 9 and 4, 4: less their means (7, 7): 3, 3 and -3, -3.
    assert token_advantages([played], config).tolist() == [3, 3, 3, -3, -3, -3, -3]


def test_what_is_earned_is_held_against_a_forecast_and_the_critic_told_what_was_still_to_come():
    """A reward is paid at the last sampled token of its turn, and answers take no time."""
    episodes = [rollout(["stop"], [0], [1]), rollout(["respond", "stop"], [0, 0, 0, 1], [1, 1, 0, 1])]
    played = Played(episodes, [[1.0], [0.5, 1.0]], {})
    advantages, returns = critic_advantages([played[:1], played[1:]], [0.2, 0.1, 0.2, 0.3])
    # What was still to come, 1, 1.5, 1.5 and 1, less the forecasts.
    by_hand = np.array([0.8, 1.4, 1.3, 0.7])
    assert list(advantages) == pytest.approx((by_hand - by_hand.mean()) / by_hand.std(ddof=1))
    assert list(returns) == pytest.approx([1.0, 1.5, 1.5, 1.0]), "whatever it forecast"
    # While it knows nothing, to ask first is no worse: the longer way is not punished for its length.
    played = Played(episodes, [[1.0], [0.0, 1.0]], {})
    assert not critic_advantages([played], [0.0] * 4)[0].any()


def test_permuted_returns_are_those_of_the_group_in_another_order():
    """A control: each episode is paid for another one, and no group for another group."""
    names, n = ["stop"], 8
    episodes = [rollout(names, [0], [1]) for _ in range(n)]
    groups = [Played(episodes, [[float(i + 10 * number)] for i in range(n)], {}) for number in range(2)]
    usual = GrpoSettings(max_steps=1, num_generations=n)
    own = token_advantages(groups, usual).reshape(2, n)
    one, other = (
        token_advantages(groups, usual.changed(permuted=True), seed).reshape(2, n) for seed in (1, 2)
    )
    for each in (one, other):
        assert np.sort(each, axis=1) == pytest.approx(own) and (each != own).any(axis=1).all()
    assert (one != other).any() and (one[0] != one[1]).any()
