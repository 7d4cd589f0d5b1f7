"""Any benchmark as files in PersonalWAB's layout, for other code that reads PersonalWAB.

Records hold what the published ones hold and what published code reads. Two things differ: prices are numbers
or null instead of texts, and each task has its ``task_id``.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pwagents.data.derived_profile import derived_profile
from pwagents.data.personalwab import DERIVED, FILES, SPLITS, WRITTEN
from pwagents.progress import progress
from pwagents.schema import Benchmark, Product, Review, Task


def write_personalwab(benchmark: Benchmark, folder: Path, *, parts: int = 2) -> None:
    """Write ``benchmark`` to ``folder``; :func:`load_personalwab` reads an equal one from there.

    Beside PersonalWAB's files stands ``benchmark.json`` with name, content hash, repairs and what strangers
    bought. Files are written aside and moved to their place; those of an earlier call are replaced. Users
    without a profile get a derived one (:mod:`pwagents.data.derived_profile`), since published code needs one
    of every user; it is marked as such, and read as none. What no source can hold (times outside the years
    1990 to 2030, parts of stars, tasks that contradict histories) can be written, but is refused when it is
    read.

    Args:
        parts: how many files histories and products are spread over.

    Raises:
        ValueError: ``parts`` is below 1.
        FileExistsError: the folder holds PersonalWAB's files that were not written by this function.
    """
    if parts < 1:
        raise ValueError(f"parts is {parts}; expected 1 or more")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    old = {path.name for pattern in FILES for path in folder.glob(pattern)}
    if old and not (folder / WRITTEN).exists():
        raise FileExistsError(
            f"{folder} holds PersonalWAB's files not written from here; take another folder"
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as aside:
        files = _files(benchmark, parts)
        for name, pieces in files.items():
            with open(Path(aside) / name, "w", encoding="ascii") as file:
                file.writelines(pieces)
        # benchmark.json goes first: were the process killed in between, its hash would not fit the files.
        for name in files:
            os.replace(Path(aside) / name, folder / name)
    for name in old - files.keys():
        (folder / name).unlink()


def _files(benchmark: Benchmark, parts: int) -> dict[str, Iterable[str]]:
    """Name -> pieces of text of each file, made while they are written."""
    written = {
        "name": benchmark.name,
        "content_hash": benchmark.content_hash,
        "repairs": dict(benchmark.repairs),
        "population": dict(benchmark.population),
    }
    files: dict[str, Iterable[str]] = {
        WRITTEN: [_json(written), "\n"],
        "user_profiles.json": _object(_profiles(benchmark)),
        "user_instructions.json": _instructions(benchmark),
    }
    for n, products in enumerate(_split(list(benchmark.products.values()), parts), 1):
        files[f"all_products_part_{n}.json"] = _object(_products(products))
    for n, users in enumerate(_split(list(benchmark.behaviors), parts), 1):
        files[f"user_history_part_{n}.json"] = _object(_histories(benchmark, users))
    return files


def _split(items: Sequence, parts: int) -> list[Sequence]:
    return [items[start:end] for start, end in pairwise(len(items) * n // parts for n in range(parts + 1))]


def _profiles(benchmark: Benchmark) -> Iterator[tuple[str, dict]]:
    for user in sorted(benchmark.behaviors.keys() | benchmark.profiles.keys()):
        profile = benchmark.profiles.get(user)
        told = profile or derived_profile(benchmark, user)
        mark = {} if profile else {DERIVED: True}
        yield user, {"user_profile": told.model_dump(by_alias=True)} | mark


def _products(products: Sequence[Product]) -> Iterator[tuple[str, dict]]:
    for product in progress(products, "writing products"):
        yield product.parent_asin, _product_info(product)


def _histories(benchmark: Benchmark, users: Sequence[str]) -> Iterator[tuple[str, list[dict]]]:
    for user in progress(users, "writing histories"):
        behaviors = benchmark.behaviors[user]
        yield user, [_purchase(benchmark, user, b.parent_asin, b.timestamp, b.review) for b in behaviors]


def _instructions(benchmark: Benchmark) -> Iterator[str]:
    opening = "{"
    for split in SPLITS:
        tasks = progress(benchmark.tasks.get(split, ()), f"writing {split} instructions")
        yield f'{opening}"{split}": ['
        yield from _listed(_json(_instruction(benchmark, task)) for task in tasks)
        yield "\n]"
        opening = ",\n"
    yield "}\n"


def _instruction(benchmark: Benchmark, task: Task) -> dict:
    return {
        "user_id": task.user_id,
        "task": task.instruction,
        "type": task.type,
        "timestamp": task.timestamp,
        "target": _purchase(benchmark, task.user_id, task.target, task.timestamp, task.review),
        "task_id": task.task_id,
    }


def _purchase(benchmark: Benchmark, user: str, asin: str, timestamp: int, review: Review) -> dict:
    about = {"parent_asin": asin, "user_id": user, "timestamp": timestamp}
    return {"product_info": _product_info(benchmark.products[asin]), "review": review.model_dump() | about}


def _product_info(product: Product) -> dict:
    info = product.model_dump()
    return {"main_category": info.pop("category")} | info


def _object(entries: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """A JSON object, one entry a line."""
    yield "{"
    yield from _listed(f"{_json(key)}: {_json(value)}" for key, value in entries)
    yield "\n}\n"


def _listed(pieces: Iterable[str]) -> Iterator[str]:
    for n, piece in enumerate(pieces):
        yield (",\n" if n else "\n") + piece


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
