"""Sources of users, products and histories: each gives the same typed :class:`pwagents.schema.Benchmark`."""

from dataclasses import replace

from pwagents.data.files import FINDERS
from pwagents.data.synthetic import Truth, make_population, make_world
from pwagents.schema import Benchmark, Protocol
from pwagents.settings import DataSettings


def load_benchmark(
    data: DataSettings, seed: int, protocol: Protocol = "leak_free"
) -> tuple[Benchmark, Truth | None]:
    """Return the benchmark of a source, and its latent truth (synthetic only), which agents must not see.

    Args:
        protocol: published leaves histories and tasks of PersonalWAB's files as they are.

    Raises:
        ValueError: files of the source are missing, or the world's size and difficulty cannot be met.
        DataError: the files of the source are not what they should be.
    """
    require_files(data)
    # A reader is imported if its source is used: DuckDB alone takes a while.
    if data.source == "amazon":
        from pwagents.data.amazon import load_amazon

        sizes = {"n_users": data.n_users, "min_behaviors": data.history[0], "max_products": data.n_products}
        chosen = {"categories": data.categories or None, "population": data.population, "seed": seed}
        return load_amazon(data.folder, **sizes, **chosen), None
    if data.source == "personalwab":
        from pwagents.data.personalwab import load_personalwab

        sizes = {"n_users": data.n_users, "n_products": data.n_products, "protocol": protocol}
        return load_personalwab(data.folder, **sizes, seed=seed), None
    world = make_world(data, seed)
    return replace(world.benchmark, population=make_population(data, data.population, seed)), world.truth


def require_files(data: DataSettings) -> None:
    """Check that the source's files are there; none is read as data.

    Raises:
        ValueError: one line that names ``data_dir`` and the files that were expected there.
    """
    if data.source == "synthetic":
        return
    find, needed = FINDERS[data.source]
    if not data.data_dir:
        raise ValueError(f"data_dir is empty; source {data.source!r} needs the folder of its files: {needed}")
    find(data.folder)
