"""Sources of users, products and histories: each gives the same typed :class:`pwagents.schema.Benchmark`."""

from dataclasses import replace

from pwagents.data.synthetic import Truth, make_population, make_world
from pwagents.schema import Benchmark
from pwagents.settings import DataSettings

_FILES = {
    "amazon": "reviews.jsonl.gz and meta.jsonl.gz, or the raw release's two files a category",
    "personalwab": "user_profiles.json, user_history_part_*.json, all_products_part_*.json and "
    "user_instructions.json",
}


def load_benchmark(data: DataSettings, seed: int) -> tuple[Benchmark, Truth | None]:
    """Return the benchmark of a source, and its latent truth (synthetic only), which agents must not see.

    Raises:
        ValueError: files of the source are missing, or the world's size and difficulty cannot be met.
        DataError: the files of the source are not what they should be.
    """
    require_files(data)
    if data.source == "synthetic":
        world = make_world(data, seed)
        return replace(world.benchmark, population=make_population(data, data.population, seed)), world.truth
    # A reader is imported if its source is used: DuckDB alone takes a while.
    if data.source == "amazon":
        from pwagents.data.amazon import load_amazon

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
        from pwagents.data.personalwab import load_personalwab

        benchmark = load_personalwab(data.folder, n_users=data.n_users, n_products=data.n_products, seed=seed)
    return benchmark, None


def require_files(data: DataSettings) -> None:
    """Check that the source's files are there; none is read as data.

    Raises:
        ValueError: one line that names ``data_dir`` and the files that were expected there.
    """
    if data.source == "synthetic":
        return
    if not data.data_dir:
        needed = f"source {data.source!r} needs the folder of its files: {_FILES[data.source]}"
        raise ValueError(f"data_dir is empty; {needed}")
    if data.source == "amazon":
        from pwagents.data.amazon import find_files
    else:
        from pwagents.data.personalwab import find_files
    find_files(data.folder)
