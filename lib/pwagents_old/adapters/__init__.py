"""The shop for other people's trainers and evaluation harnesses: one core, and a thin adapter for each.

:mod:`core` is all there is to play: the tasks of a preset, typed tools, reset, step, reward, trajectory. Each
adapter says it in the words of one framework, in a module that imports nothing of the others.
"""
