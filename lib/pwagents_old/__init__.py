"""Personalized web agents: the thin library behind the notebooks."""

from pwagents_old import portable

portable.set_variables()
