"""What profiles cost and are worth: making them, retrieving from them, beside PUMA's memory retrieval.

    .venv/bin/python benchmarks/profiles.py [folder with meta.jsonl.gz and reviews.jsonl.gz]

About eight minutes on 2 cores the first time, most of it embedding; two with a warm cache. The folder holds
raw Amazon Reviews 2023 files; without one, the embedded world alone is measured. Profiles are the offline
ones. Compare the ratios: they come from one run on one machine.
"""

import argparse
import pickle
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pandas as pd
from search import peak_mb

from pwagents.benchmark.analyses_02 import by_length, measure_retrieval, profile_quality
from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import World, WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import (
    ALPHA,
    History,
    adaptive_clusters,
    category_clusters,
    kmeans_clusters,
    profile_users,
)
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.types import UserProfiles
from pwagents.schema import Benchmark

MAX_TOKENS, BATCH = 48, 32  # of the embedder
BUCKETINGS = {
    "adaptive": adaptive_clusters,
    "finest, not merged": partial(adaptive_clusters, least=1),
    "category": category_clusters,
    "k-means": kmeans_clusters,
}


def measure_making(benchmark: Benchmark, histories: Mapping[str, History]) -> dict[str, float]:
    """Seconds to read the catalogue and to profile all users, embeddings cold and warm.

    Returns:
        "users", "behaviors", "products"; "catalogue_s"; "cold_s": with all items yet to embed; "warm_s": with
        their embeddings on disk; "peak_mb": memory of the process; "identical": both runs' profiles are the
        same to the byte.
    """
    start = time.perf_counter()
    profiler = OfflineProfiler(Catalogue(benchmark.products))
    measured = {
        "users": len(histories),
        "behaviors": sum(map(len, histories.values())),
        "products": len(benchmark.products),
        "catalogue_s": time.perf_counter() - start,
    }
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for temperature in ("cold_s", "warm_s"):
            embedder = Embedder(Path(folder), MAX_TOKENS, BATCH)
            start = time.perf_counter()
            runs.append(profile_users(histories, benchmark.products, embedder, profiler, seed=0))
            measured[temperature] = time.perf_counter() - start
    same = _content(runs[0]) == _content(runs[1])
    return measured | {"peak_mb": peak_mb(), "identical": same}


def measure_quality(world: World, histories: Mapping[str, History], embedder: Embedder) -> None:
    """Print how often the right interest is found, and what the lines are worth, by bucketing and length."""
    products, tasks = world.benchmark.products, world.benchmark.tasks["test"]
    profiler = OfflineProfiler(Catalogue(products))
    rows = {}
    for name, cluster in BUCKETINGS.items():
        profiles = profile_users(histories, products, embedder, profiler, seed=0, cluster=cluster)
        quality = profile_quality(world, profiles, histories, tasks, embedder)
        rows[name] = _summary(quality[quality["behaviors"] > ALPHA])
        if name == "adaptive":
            print(by_length(quality).round(3).to_string(index=False), "\n")
            for m in (2, 3):
                more = profile_quality(world, profiles, histories, tasks, embedder, m)
                rows[f"adaptive, top {m}"] = _summary(more[more["behaviors"] > ALPHA])
    alone = profile_users(histories, products, embedder, profiler, seed=0, alpha=10**9)
    quality = profile_quality(world, alone, histories, tasks, embedder)
    rows["global profile alone"] = _summary(quality[quality["behaviors"] > ALPHA])
    print(pd.DataFrame(rows).T.round(3).to_string(na_rep=""), "\n")


def _summary(quality: pd.DataFrame) -> dict[str, float]:
    sums = quality[["lines", "right", "preferences", "found"]].sum()
    return {
        **quality[["clusters", "nearest", "holds"]].mean().to_dict(),
        "precision": sums["right"] / sums["lines"],
        "recall": sums["found"] / sums["preferences"],
    }


def _content(profiles: Mapping[str, UserProfiles]) -> bytes:
    return b"".join(
        pickle.dumps((own.whole.model_dump_json(), [m.model_dump_json() for m in own.micro]))
        + b"".join(cluster.centre.tobytes() for cluster in own.clusters)
        for own in profiles.values()
    )


def _measure(benchmark: Benchmark, embedder: Embedder) -> dict[str, History]:
    """Print making and retrieval; the histories before each user's first test task."""
    tasks = benchmark.tasks["test"]
    histories = {task.user_id: benchmark.history(task, "test") for task in tasks}
    print(pd.Series(measure_making(benchmark, histories)).to_string(), "\n")
    profiler = OfflineProfiler(Catalogue(benchmark.products))
    profiles = profile_users(histories, benchmark.products, embedder, profiler, seed=0)
    for label, long in (("all users", False), (f"|H| > {ALPHA}", True)):
        chosen = [task for task in tasks if not long or len(histories[task.user_id]) > ALPHA]
        print(f"{label}, {len(chosen)} tasks")
        print(measure_retrieval(benchmark, profiles, chosen, embedder).round(2).to_string(index=False), "\n")
    return histories


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, help="folder of raw Amazon Reviews 2023 files")
    parser.add_argument(
        "--cache", type=Path, default=Path("outputs/benchmarks"), help="where caches are kept"
    )
    arguments = parser.parse_args()
    embedder = Embedder(arguments.cache, MAX_TOKENS, BATCH)
    world = make_world(WorldConfig(), seed=0)
    print("embedded world")
    histories = _measure(world.benchmark, embedder)
    measure_quality(world, histories, embedder)
    if arguments.data:
        print("real users")
        _measure(load_amazon(arguments.data), embedder)


if __name__ == "__main__":
    main()
