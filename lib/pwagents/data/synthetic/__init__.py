"""The synthetic source: a seeded world with known truth, ready without any download."""

from pwagents.data.synthetic.world import Truth, World, make_population, make_world

__all__ = ["Truth", "World", "make_population", "make_world"]
