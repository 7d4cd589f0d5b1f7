"""Online reinforcement learning of a policy that plays whole episodes: GRPO and PPO in one loop."""
