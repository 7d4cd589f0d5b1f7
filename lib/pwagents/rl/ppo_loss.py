"""PPO's clipped loss (Schulman et al. 2017), and the critic."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pwagents.rl.advantages import gae, returns_to_go, sampled_rewards
from pwagents.rl.rollout import Played
from pwagents.rl.settings import PpoSettings

if TYPE_CHECKING:
    import torch


class PolicyLoss(NamedTuple):
    """Sums over tokens: ``loss`` to be minimized, ``kl`` from the reference, ``clipped`` tokens."""

    loss: "torch.Tensor"
    kl: float
    clipped: float


def policy_loss(
    logprobs: "torch.Tensor",
    entropies: "torch.Tensor",
    old: "torch.Tensor",
    advantages: "torch.Tensor",
    reference: "torch.Tensor | None",
    config: PpoSettings,
) -> PolicyLoss:
    """The clipped surrogate, the divergence from the reference and the entropy, summed over tokens.

    All tensors are (tokens,). The divergence is estimated as GRPO does (Shao et al. 2024): always positive.
    """
    import torch

    # The smaller of both: a token gains nothing by moving farther than epsilon in the direction that its
    # advantage says, but what moved the wrong way is brought back from anywhere.
    ratio = (logprobs - old).exp()
    limited = ratio.clamp(1 - config.epsilon, 1 + config.epsilon)
    loss = -torch.min(ratio * advantages, limited * advantages).sum()
    # Where the limit is the smaller of the two, the token no longer moves the policy.
    clipped = float((limited * advantages < ratio * advantages).sum())
    kl = torch.zeros(())
    if reference is not None:
        above = reference - logprobs
        kl = (above.exp() - above - 1).sum()
        loss = loss + config.beta * kl
    if config.entropy_coef:
        loss = loss - config.entropy_coef * entropies.sum()
    return PolicyLoss(loss, float(kl.detach()), clipped)


def make_critic(hidden_size: int) -> "torch.nn.Module":
    """The value of what comes next, from the policy's last hidden state: one hidden layer, 0 at first.

    It shares the policy's trunk and reads it only: the value loss does not reach the policy. A trunk of its
    own would double memory and time, which a 7B model does not allow; what fine-tuning put into the hidden
    state says enough about how an episode stands.
    """
    from torch import nn

    critic = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, 1))
    nn.init.zeros_(critic[2].weight)
    nn.init.zeros_(critic[2].bias)
    return critic


def estimate_advantages(
    played: Played, values: "torch.Tensor", config: PpoSettings
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Advantages (GAE) and returns of all tokens that are learned from, episode after episode.

    Returns, which the critic is fitted to, are what was really still to come, whatever lambda the advantages
    have (Yuan et al. 2025, "decoupled GAE"): a critic that is told its own forecasts learns slowly what
    early tokens lead to.

    Args:
        values: (tokens,) of the critic.
    """
    import torch

    rewards = [sampled_rewards(*pair) for pair in zip(played.rollouts, played.rewards, strict=True)]
    ends = np.cumsum([len(episode) for episode in rewards])
    parts = np.split(values.double().cpu().numpy(), ends[:-1])
    advantages = [gae(*pair, config.gamma, config.lam) for pair in zip(rewards, parts, strict=True)]
    returns = [returns_to_go(episode, config.gamma) for episode in rewards]

    def joined(episodes):
        return torch.tensor(np.concatenate(episodes)).float().to(values.device)

    return joined(advantages), joined(returns)


def fit_critic(
    accelerator: Any,
    critic: Any,
    optimizer: Any,
    features: "torch.Tensor",
    returns: "torch.Tensor",
    config: PpoSettings,
    seed: int,
) -> float:
    """Fit the critic to the returns (squared error), ``value_epochs`` passes of four updates each.

    Args:
        features: (tokens, hidden size), the hidden states that the values were read from.

    Returns:
        The share of the returns' variance that the critic explained before.
    """
    import torch

    with torch.no_grad():
        missed = returns - critic(features)[:, 0]
        explained = 1 - float(missed.var() / returns.var().clamp(min=1e-8))
    chance = torch.Generator().manual_seed(seed)
    for _ in range(config.value_epochs):
        order = torch.randperm(len(returns), generator=chance).to(returns.device)
        for part in order.tensor_split(4):
            optimizer.zero_grad()
            loss = (critic(features[part])[:, 0] - returns[part]).square().mean() / 2
            accelerator.backward(loss)
            optimizer.step()
    return explained
