"""Personalized web agents: what has not moved to the new package yet."""

from pathlib import Path

from pwagents import code  # before numpy and torch: the package fixes how numbers are computed

code.remember(Path(__file__).parent)
