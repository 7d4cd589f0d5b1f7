"""Sources of users, products and histories. Each gives the same typed :class:`pwagents.schema.Benchmark`."""

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path

from pwagents.data.synthetic import Truth, WorldConfig, make_world
from pwagents.project import project_path
from pwagents.schema import Benchmark

SOURCES = ("synthetic", "amazon", "personalwab")


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
    categories: Sequence[str] = (),
) -> tuple[Benchmark, Truth | None]:
    """The benchmark of one source, and its latent truth where there is one (``synthetic`` alone).

    Args:
        source: "synthetic", the embedded world; "amazon", raw Amazon Reviews 2023 files in ``data_dir``; or
            "personalwab", the files that PersonalWAB publishes, in ``data_dir``.
        data_dir: where the files of a source that has files are, seen from the project's root.
        n_users, n_products: the size. ``amazon`` and ``personalwab`` take at most so many users, and fill the
            catalogue up to ``n_products`` with others than what the users bought.
        history: least and most behaviours a user; ``amazon`` heeds the least alone, ``personalwab`` neither.
        interests, drift, completeness: of the embedded world alone, see :class:`WorldConfig`.
        categories: names of the categories to use, none for all (``amazon`` alone).

    Raises:
        ValueError: an unknown source, or a configuration that cannot be met.
        DataError: the files of the source are not what they should be.
    """
    _check_size("n_users", n_users)
    _check_size("n_products", n_products)
    _check_range("history", history, lowest=3)  # a past, a train and a test purchase
    _check_range("interests", interests, lowest=1)
    if not isinstance(categories, (list, tuple)) or not all(isinstance(name, str) for name in categories):
        raise ValueError(f"categories is {categories!r}; expected a list of names, [] for all")
    if source == "synthetic":
        config = WorldConfig(n_users, n_products, tuple(history), tuple(interests), drift, completeness)
        world = make_world(config, seed)
        return world.benchmark, world.truth
    if source not in SOURCES:
        raise ValueError(f"source is {source!r}; expected one of {', '.join(SOURCES)}")
    if not data_dir:
        raise ValueError(f"data_dir is empty; source {source!r} needs the folder of its files")
    folder = project_path(Path(data_dir).expanduser())
    if source == "amazon":
        from pwagents.data.amazon import load_amazon

        benchmark = load_amazon(
            folder,
            n_users=n_users,
            min_behaviors=history[0],
            categories=categories or None,
            max_products=n_products,
            seed=seed,
        )
    else:
        from pwagents.data.personalwab import load_personalwab

        benchmark = load_personalwab(folder, n_users=n_users, n_products=n_products, seed=seed)
    return benchmark, None


def _check_size(name: str, value) -> None:
    if not _is_whole(value) or value < 1:
        raise ValueError(f"{name} is {value!r}; expected a whole number, 1 or more")


def _check_range(name: str, value, lowest: int) -> None:
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_whole, value))
    if not is_pair or not lowest <= value[0] <= value[1]:
        raise ValueError(
            f"{name} is {value!r}; expected two whole numbers [least, most], {lowest} <= least <= most"
        )


def _is_whole(value) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
