"""Evaluate an agent of any kind in one call."""
