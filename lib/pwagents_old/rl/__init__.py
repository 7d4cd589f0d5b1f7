"""Online reinforcement learning of an agent that plays whole episodes.

GRPO by TRL, PPO by hand, and what both share: rollouts, advantages, scoring, logs.
"""
