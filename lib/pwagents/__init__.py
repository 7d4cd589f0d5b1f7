"""Personalized web agents: the thin library behind the notebooks."""
