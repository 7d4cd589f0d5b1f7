"""Sources of users, products and histories. Each gives the same typed :class:`pwagents.schema.Benchmark`."""

from dataclasses import replace

from pwagents.schema import Benchmark
from pwagents_old.data.settings import DataSettings
from pwagents_old.data.synthetic import Truth, make_population, make_world


def load_benchmark(data: DataSettings, seed: int) -> tuple[Benchmark, Truth | None]:
    """Load the benchmark of one source, and its latent truth where there is one (``synthetic`` alone).

    Raises:
        ValueError: files of the source are missing, or the world's size and difficulty cannot be met.
        DataError: the files of the source are not what they should be.
    """
    data.require_files()
    if data.source == "synthetic":
        world = make_world(data.world, seed)
        population = make_population(data.world, data.population, seed)
        return replace(world.benchmark, population=population), world.truth
    # A reader is imported where its source is wanted: DuckDB alone takes a while.
    if data.source == "amazon":
        from pwagents_old.data.amazon import load_amazon

        benchmark = load_amazon(
            data.folder,
            n_users=data.n_users,
            min_behaviors=data.history[0],
            categories=data.categories or None,
            max_products=data.n_products,
            population=data.population,
            seed=seed,
        )
    else:
        from pwagents_old.data.personalwab import load_personalwab

        benchmark = load_personalwab(data.folder, n_users=data.n_users, n_products=data.n_products, seed=seed)
    return benchmark, None
