"""Agents: what turns a belief state into an action."""
