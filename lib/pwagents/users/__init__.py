"""Simulated users: who answers when an agent asks."""
