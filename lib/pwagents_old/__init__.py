"""Personalized web agents: the thin library behind the notebooks."""

import pwagents  # noqa: F401  (before numpy and torch: it fixes how numbers are computed)
