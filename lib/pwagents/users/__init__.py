"""User simulators: who answers when an agent asks."""
