"""Sources of users, products and histories: each gives the same typed :class:`pwagents.schema.Benchmark`."""

from dataclasses import replace

from pwagents.data.synthetic import Truth, make_population, make_world
from pwagents.schema import Benchmark
from pwagents.settings import DataSettings, WorldSettings


def load_benchmark(data: DataSettings, seed: int) -> tuple[Benchmark, Truth | None]:
    """Return the benchmark of a source, and its latent truth (synthetic only), which agents must not see."""
    if data.source != "synthetic":
        raise NotImplementedError(
            f"source {data.source!r} is read by pwagents_old.data until notebook 01 has moved"
        )
    config = WorldSettings(**{name: getattr(data, name) for name in WorldSettings.model_fields})
    world = make_world(config, seed)
    return replace(world.benchmark, population=make_population(config, data.population, seed)), world.truth
