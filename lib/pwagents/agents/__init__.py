"""Agents: methods with a language model, and rule-based ones."""
