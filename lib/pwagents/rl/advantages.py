"""From rewards to advantages: GRPO's comparison within a group, by episode or by turn, and GAE.

A step's reward R_t belongs to all tokens that the policy sampled at that step; what came back in between
(tool, profile and user text) never has an advantage, nor has anything after a valid ``stop``.
"""

from collections.abc import Sequence

import numpy as np

from pwagents.rl.rollout import Played, Rollout, loss_mask
from pwagents.seeds import rng
from pwagents.settings import Credit, GrpoSettings, Scale

_EPSILON = 1e-4  # added to the standard deviation, as TRL does


def token_advantages(groups: Sequence[Played], config: GrpoSettings, seed: int = 0) -> np.ndarray:
    """Return GRPO's advantages of all learned tokens, episode after episode: each has its step's.

    Args:
        groups: the episodes of a task each, which are compared.
        seed: of the control whose returns change places.
    """
    found: list[float] = []
    for number, group in enumerate(groups):
        per_step = group_advantages(group.rewards, config.credit, config.scale_rewards)
        if config.permuted:
            order = rng(seed, "permuted returns", str(number)).permutation(len(per_step))
            per_step = [np.full(len(own), per_step[i][0]) for own, i in zip(per_step, order, strict=True)]
        found += [
            steps[turn]
            for rollout, steps in zip(group.rollouts, per_step, strict=True)
            for learned, turn in zip(loss_mask(rollout), rollout.turns, strict=True)
            if learned
        ]
    return np.array(found)


def group_advantages(
    rewards: Sequence[Sequence[float]], credit: Credit = "episode", scale: Scale = "group"
) -> list[np.ndarray]:
    """Compare the episodes of one group, all of the same task (Guo et al. 2025; Orion, Algorithm 1, line 11).

    ``episode``: the return is the sum of R_t; every step of an episode has the same advantage,
    (return - group's mean) / (group's standard deviation + 1e-4), the standard deviation with n - 1.

    ``turn``: step t is judged by what was still to come, G_t = R_t + R_t+1 + ..., against the group's
    mean of G_t, in which an episode that was over before step t counts as 0: nothing more came. So step 0 is
    compared as whole episodes are, and a step that one episode alone reached still has something to be
    compared with. All steps of the group share one scale, the root of the squared differences' sum over
    (steps - 1): late steps, which few episodes reach, are not blown up. Orion does not say how returns are
    normalised per step; this rule is ours.

    With ``scale`` "none" nothing is divided (Liu et al. 2025, "Dr. GRPO"). Dividing by the group's own
    deviation makes every group count alike. Where all episodes of a task succeed, or all fail, that blows a
    small alignment reward up to full size.

    Args:
        rewards: of each episode, R_t of each step.

    Returns:
        For each episode one advantage a step. With credit "episode" all 0 where the episodes earned the same.
    """
    if credit == "turn":
        # Episodes that are over earn 0: the table of (episodes, steps) is filled up with it.
        table = np.zeros((len(rewards), max(map(len, rewards))))
        for i, steps in enumerate(rewards):
            table[i, : len(steps)] = returns_to_go(steps)
        shifted = table - table[0]
        difference = shifted - shifted.mean(axis=0)  # exactly 0 where all are equal
        taken = [difference[i, : len(steps)] for i, steps in enumerate(rewards)]
        if scale == "none":
            return taken
        squares = np.concatenate(taken) ** 2
        deviation = np.sqrt(squares.sum() / max(len(squares) - 1, 1))
        return [values / (deviation + _EPSILON) for values in taken]

    returns = np.array([sum(steps) for steps in rewards])
    shifted = returns - returns[0]
    advantages = shifted - shifted.mean()  # exactly 0 where all are equal
    if scale == "group":
        advantages = advantages / ((returns.std(ddof=1) if len(returns) > 1 else 0.0) + _EPSILON)
    return [np.full(len(steps), value) for steps, value in zip(rewards, advantages, strict=True)]


def returns_to_go(rewards: Sequence[float]) -> np.ndarray:
    """Return G_t = R_t + G_t+1 of each step."""
    earned, total = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        total += rewards[t]
        earned[t] = total
    return earned


def critic_advantages(groups: Sequence[Played], values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return PPO's advantages (GAE) and the returns of all learned tokens, episode after episode.

    Advantages are less their mean and divided by their deviation: over all that this process played, as PPO
    is mostly run, and not within a task, so that whether all episodes of a task went well still counts.

    Returns, which the critic is fitted to, are what was really still to come: a critic that is told its own
    forecasts learns slowly what early tokens lead to.

    Args:
        values: (tokens,) of the critic.
    """
    pairs = (pair for group in groups for pair in zip(group.rollouts, group.rewards, strict=True))
    rewards = [sampled_rewards(*pair) for pair in pairs]
    parts = np.split(np.asarray(values, float), np.cumsum([len(episode) for episode in rewards])[:-1])
    pairs = zip(rewards, parts, strict=True)
    advantages = np.concatenate([gae(*pair) for pair in pairs])
    returns = np.concatenate([returns_to_go(episode) for episode in rewards])
    return (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8), returns


def sampled_rewards(rollout: Rollout, rewards: Sequence[float]) -> list[float]:
    """Return a reward for each token that is learned from: R_t at the last one of step t, 0 elsewhere."""
    turns = [turn for learned, turn in zip(loss_mask(rollout), rollout.turns, strict=True) if learned]
    following = [*turns[1:], None]
    return [rewards[t] if t != after else 0.0 for t, after in zip(turns, following, strict=True)]


def gae(rewards: Sequence[float], values: Sequence[float]) -> np.ndarray:
    """Return the generalized advantages of one episode's sampled tokens (Schulman et al. 2016), lambda 1.

    They are :func:`returns_to_go` less the values, but for rounding.

    Tokens of answers are no time steps: the next state of a turn's last token is the first token of the next
    turn. After the last token nothing more is earned.

    Args:
        rewards: :func:`sampled_rewards`.
        values: the critic's value before each of these tokens.
    """
    advantages, following, next_value = np.zeros(len(rewards)), 0.0, 0.0
    for i in reversed(range(len(rewards))):
        following += rewards[i] + next_value - values[i]
        advantages[i], next_value = following, values[i]
    return advantages
