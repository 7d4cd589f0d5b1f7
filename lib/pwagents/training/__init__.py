"""How agents learn: trajectories, SFT, DPO, GRPO and PPO, rewards and judges."""
