"""Sources of users, products and histories. Each gives the same typed :class:`pwagents.schema.Benchmark`."""

from collections.abc import Sequence
from pathlib import Path

from pwagents.data.synthetic import Truth, WorldConfig, make_world
from pwagents.schema import Benchmark

SOURCES = ("synthetic", "amazon")


def load_benchmark(
    source: str,
    data_dir: str,
    seed: int,
    *,
    n_users: int,
    n_products: int,
    history: Sequence[int],
    interests: Sequence[int],
    drift: float,
    completeness: float,
) -> tuple[Benchmark, Truth | None]:
    """The benchmark of one source, and its latent truth where there is one (``synthetic`` alone).

    Args:
        source: "synthetic", the embedded world, or "amazon", raw Amazon Reviews 2023 files in ``data_dir``.
        data_dir: where the files of a source that has files are.
        n_users, n_products: the size. ``amazon`` takes at most so many users, and fills the catalogue up to
            ``n_products`` with others than what the users bought.
        history: least and most behaviours a user; ``amazon`` heeds the least alone.
        interests, drift, completeness: of the embedded world, see :class:`WorldConfig`.

    Raises:
        ValueError: an unknown source, or a configuration that cannot be met.
        DataError: the files of the source are not what they should be.
    """
    if source == "synthetic":
        config = WorldConfig(n_users, n_products, tuple(history), tuple(interests), drift, completeness)
        world = make_world(config, seed)
        return world.benchmark, world.truth
    if source == "amazon":
        from pwagents.data.amazon import load_amazon

        if not data_dir:
            raise ValueError(
                "source 'amazon' needs data_dir, the folder with reviews.jsonl.gz and meta.jsonl.gz"
            )
        benchmark = load_amazon(
            Path(data_dir), n_users=n_users, min_behaviors=history[0], max_products=n_products, seed=seed
        )
        return benchmark, None
    raise ValueError(f"source is {source!r}; expected one of {', '.join(SOURCES)}")
