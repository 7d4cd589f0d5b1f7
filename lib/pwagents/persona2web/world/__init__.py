"""What the agents know and are asked: sub-domains, users, browsing histories, tasks."""
