"""Personalized web agents: the thin library behind the notebooks."""

from pwagents import portable

portable.set_variables()
