"""Scans of raw review files far larger than the memory they may take.

    .venv/bin/python benchmarks/raw_reviews.py [--gigabytes 0.2 2]

Makes a file of each size on the spot, in the raw form of Amazon Reviews 2023, in a temporary folder (so many
gigabytes and half as much again for the scan), and loads a benchmark of 1,000 users from it in a fresh
process. Expect a minute in all on 2 cores, 90 MB/s and a peak below 1.5 GB for the larger file.
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
from search import peak_mb

from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.progress import progress
from pwagents.schema import Benchmark

WORLD = WorldConfig(n_users=300, n_products=36_000)  # repeated, with fresh users, until a file is full
USERS = 1000  # sampled from the file
MEMORY_LIMIT = "1GB"  # of DuckDB; Python, the library and the benchmark come on top
COPY = "COPY0000"  # in the users' ids, where the number of the copy goes


def measure_raw_scan(gigabytes: float) -> dict[str, float]:
    """Load a benchmark from a raw file of so many gigabytes (1e9 bytes) that is made on the spot.

    Returns:
        "gb" and "reviews" of the file; "wall_s" and "cpu_s" (user and system) of ``load_amazon``, "mb_per_s"
        (review file by wall time; it is read twice), and "peak_mb": the most memory that the process held.
    """
    with tempfile.TemporaryDirectory() as folder:
        reviews = write_raw_files(Path(folder), gigabytes)
        size = (Path(folder) / "reviews.jsonl").stat().st_size
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh_process:
            measured = fresh_process.submit(_scan, Path(folder)).result()
    speed = {"mb_per_s": size / 1e6 / measured["wall_s"]}
    return {"gb": size / 1e9, "reviews": reviews} | measured | speed


def write_raw_files(folder: Path, gigabytes: float, config: WorldConfig = WORLD) -> int:
    """Write ``meta.jsonl`` and a ``reviews.jsonl`` of so many gigabytes; the number of reviews.

    The reviews are those of one embedded world, repeated; each copy has users of its own.
    """
    benchmark = make_world(config, seed=0).benchmark
    with open(folder / "meta.jsonl", "w", encoding="utf-8") as file:
        file.writelines(_meta_lines(benchmark))
    lines = "".join(_review_lines(benchmark)).encode()
    n_copies = max(1, round(gigabytes * 1e9 / len(lines)))
    with open(folder / "reviews.jsonl", "wb") as file:
        for copy in progress(range(n_copies), f"writing {gigabytes:g} GB"):
            file.write(lines.replace(COPY.encode(), f"{copy:0{len(COPY)}d}".encode()))
    return n_copies * lines.count(b"\n")


def _meta_lines(benchmark: Benchmark):
    for product in benchmark.products.values():
        fields = product.model_dump(mode="json") | {"main_category": product.category, "images": []}
        del fields["category"]
        yield json.dumps(fields) + "\n"


def _review_lines(benchmark: Benchmark):
    """The fields of the raw release, ids of its length, all users' reviews in turn."""
    for user, behaviors in benchmark.behaviors.items():
        for b in behaviors:
            record = {
                "rating": b.review.rating,
                "title": b.review.title,
                "text": b.review.text,
                "images": [],
                "asin": b.parent_asin,
                "parent_asin": b.parent_asin,
                "user_id": f"AE{COPY}{user:_>18}",
                "timestamp": b.timestamp,
                "helpful_vote": 0,
                "verified_purchase": True,
            }
            yield json.dumps(record) + "\n"


def _scan(folder: Path) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    load_amazon(folder, n_users=USERS, memory_limit=MEMORY_LIMIT)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall_s": wall, "cpu_s": cpu, "peak_mb": peak_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.2, 2.0], help="sizes of the file")
    rows = [measure_raw_scan(gigabytes) for gigabytes in parser.parse_args().gigabytes]
    print(pd.DataFrame(rows).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
