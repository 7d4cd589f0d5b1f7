"""The embedded data source: a seeded world with known truth, ready without any download."""

from pwagents_old.data.synthetic.world import Truth, World, WorldConfig, make_population, make_world

__all__ = ["Truth", "World", "WorldConfig", "make_population", "make_world"]
