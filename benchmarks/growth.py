"""How time and memory grow with products and with users, step by step; a 2 GB raw file.

    .venv/bin/python benchmarks/growth.py [--scale 10]

Fifteen minutes on 2 cores, 4 GB of memory and 5 GB of disk for a while; with ``--scale 10``, a tenth of every
size, about a minute. Expect every step to say "linear or less", the making of the synthetic world to take
most of the time, and 2 GB of raw reviews to be scanned in less memory than that.

Two ladders of synthetic worlds: products at 1,000 users, users at 36,000 products. Users have 5 to 10
behaviors, so that 100,000 of them fit a laptop. Two things stand in for what costs the same for each text or
learns nothing here: embeddings are random vectors behind the real cache, and the recommender is SASRec over
all products, untrained. Each size has a fresh process, so that its memory is its own. Time is CPU time,
because other programs share the machine; an exponent is log(ratio of costs) / log(ratio of sizes) from the
smallest size to the largest: 1 is growth in proportion.
"""

import argparse
import ctypes
import gc
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from pwagents import embedding
from pwagents.agents.memory import Memory, behavior_text
from pwagents.agents.offline import FunctionClassifier, RuleAgent
from pwagents.data.amazon import load_amazon
from pwagents.data.splits import sample_tasks
from pwagents.data.synthetic import make_world
from pwagents.embedding import DIMENSION, Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import profile_users
from pwagents.profiles.offline import OfflineProfiler
from pwagents.schema import FUNCTION_OF, Task
from pwagents.seeds import rng
from pwagents.settings import WorldSettings
from pwagents.shop.environment import BeliefState, Shop, run_episode
from pwagents.shop.sasrec import Recommender, RecommendersByTime, SasRec
from pwagents.shop.search import build_search_engine
from pwagents.store import episodes

LADDERS = {  # what grows -> sizes as (products, users)
    "products": [(3_000, 1_000), (36_000, 1_000), (360_000, 1_000)],
    "users": [(36_000, 1_000), (36_000, 10_000), (36_000, 100_000)],
}
HISTORY = (5, 10)  # behaviors a user
TASKS = 2_000  # test tasks of memory retrieval and the run, sampled
RAW_GIGABYTES = (0.2, 2.0)
# Exponents up to here pass as linear: n log n of a sort is 1.09 from 36,000 to 360,000, and data that outgrow
# the processor's cache on the way cost more apiece from there on.
LINEAR = 1.15
FLOORS = {"cpu_s": 0.05, "mb": 10.0}  # less is noise, and counts as so much


def random_vectors(texts: Sequence[str]) -> np.ndarray:
    """In MiniLM's place: a unit vector drawn from the text's hash, at the same small cost for each text."""
    vectors = np.stack([rng(0, text).normal(size=DIMENSION) for text in texts])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class Meter:
    """Notes what each step costs: CPU seconds, how far memory rose, and the most it has come to."""

    def __init__(self):
        self.rows = []

    def __call__(self, step: str, function: Callable):
        """What ``function`` returns."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is free goes back, or a step's memory would hide in it
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak starts anew
        held, cpu = peak_mb(), time.process_time()
        result = function()
        cpu = time.process_time() - cpu
        self.rows.append({"step": step, "cpu_s": cpu, "mb": peak_mb() - held, "peak_mb": peak_mb()})
        return result


def peak_mb() -> float:
    """The most memory this process has held, MB. (getrusage would count the process that started it, too.)"""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def measure_size(n_products: int, n_users: int, n_tasks: int) -> list[dict]:
    """What each step costs at one size, a row a step: a world, its profiles, and the plain agent's tasks."""
    meter = Meter()
    config = WorldSettings(n_users=n_users, n_products=n_products, history=HISTORY)
    benchmark = meter("make the world", lambda: make_world(config, seed=0).benchmark)
    engine = meter("search index", lambda: build_search_engine(benchmark.products))
    embedding._model = lambda max_tokens: random_vectors  # the real cache around cheap vectors
    embedder = Embedder(batch_size=64)
    catalogue = meter("catalogue of traits", lambda: Catalogue(benchmark.products))
    histories = {user: benchmark.train_period(user) for user in benchmark.behaviors}
    profiler = OfflineProfiler(catalogue)
    meter("profiles", lambda: profile_users(histories, benchmark.products, embedder, profiler, seed=0))
    classifier = meter("train the plain agent", lambda: FunctionClassifier(benchmark.tasks["train"]))
    tasks = sample_tasks(benchmark.tasks["test"], n_tasks, seed=0)
    memory = Memory("task_specific", benchmark.products, embedder)
    for task in tasks:  # once, as a cache would have them
        history = benchmark.history(task, "test")
        embedder.encode([behavior_text(b, benchmark.products[b.parent_asin]) for b in history])

    def recall() -> None:
        for task in tasks:
            state = BeliefState(task.user_id, task.instruction, "", None, benchmark.history(task, "test"))
            memory.recall(state, FUNCTION_OF[task.type])

    meter("memory retrieval", recall)
    index = {asin: i for i, asin in enumerate(benchmark.products, 1)}
    recommender = Recommender(SasRec(len(index), dropout=0.5), index)
    always = RecommendersByTime([0], [recommender])
    shop, agent = Shop(benchmark, engine, always, embedder, "compact"), RuleAgent(classifier, memory)

    def solve(task: Task):
        return run_episode(shop, task, agent)

    with tempfile.TemporaryDirectory() as folder:
        file, facts = Path(folder) / "runs.jsonl", {"code": []}
        meter("single-turn run", lambda: episodes(file, tasks, solve, facts, method="plain"))
    return [row | {"products": n_products, "users": n_users} for row in meter.rows]


def scan(folder: Path) -> dict[str, float]:
    """CPU and wall seconds, and the most memory, of loading 1,000 users from raw files."""
    wall, cpu = time.perf_counter(), time.process_time()
    load_amazon(folder, n_users=1000, memory_limit="1GB")
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "peak_mb": peak_mb()}


def write_raw_files(folder: Path, gigabytes: float) -> float:
    """Write ``meta.jsonl`` and a ``reviews.jsonl`` of so many gigabytes (1e9 bytes): the gigabytes written.

    The reviews are those of one synthetic world, repeated; each copy has users of its own.
    """
    benchmark = make_world(WorldSettings(n_users=300, n_products=36_000), seed=0).benchmark
    with open(folder / "meta.jsonl", "w", encoding="utf-8") as file:
        for product in benchmark.products.values():
            fields = product.model_dump(mode="json") | {"main_category": product.category, "images": []}
            del fields["category"]
            file.write(json.dumps(fields) + "\n")
    lines = []
    for user, behaviors in benchmark.behaviors.items():
        for b in behaviors:
            ids = {"asin": b.parent_asin, "parent_asin": b.parent_asin, "user_id": f"AECOPY0000{user:_>18}"}
            review = b.review.model_dump(mode="json") | {"images": [], "helpful_vote": 0}
            record = review | ids | {"timestamp": b.timestamp, "verified_purchase": True}
            lines.append(json.dumps(record) + "\n")
    text = "".join(lines).encode()
    with open(folder / "reviews.jsonl", "wb") as file:
        for copy in range(max(1, round(gigabytes * 1e9 / len(text)))):
            file.write(text.replace(b"COPY0000", b"%08d" % copy))
        return file.tell() / 1e9


def growth_table(measured: pd.DataFrame, ladder: str) -> pd.DataFrame:
    """One row a step: costs at each size, exponents from the smallest to the largest, verdict.

    Args:
        measured: one row a size and step, as from :func:`measure_size`.
    """
    table, exponents = {}, {}
    for cost, floor in FLOORS.items():
        by_size = measured.pivot(index="step", columns=ladder, values=cost).loc[measured["step"].unique()]
        table |= {f"{cost} at {n:,}": by_size[n] for n in by_size}
        sizes, held = list(by_size), by_size.clip(lower=floor)
        ratio = held[sizes[-1]] / held[sizes[0]]
        exponents[f"exponent of {cost}"] = np.log(ratio) / np.log(sizes[-1] / sizes[0])
    steepest = pd.DataFrame(exponents).max(axis=1)
    verdict = steepest.map(lambda e: "linear or less" if e <= LINEAR else "FASTER THAN LINEAR")
    return pd.DataFrame(table | exponents | {"growth": verdict})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=1, help="divides every size")
    scale = parser.parse_args().scale

    def in_fresh_process(function: Callable, *arguments):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return process.submit(function, *arguments).result()

    sizes = sorted({size for ladder in LADDERS.values() for size in ladder}, key=math.prod)
    rows = {s: in_fresh_process(measure_size, s[0] // scale, s[1] // scale, TASKS // scale) for s in sizes}
    for ladder, steps in LADDERS.items():
        measured = pd.DataFrame([row for size in steps for row in rows[size]])
        print(f"\nGrowth with {ladder}\n{growth_table(measured, ladder).round(2).to_string()}", flush=True)
    raw = []
    for gigabytes in RAW_GIGABYTES:
        with tempfile.TemporaryDirectory() as folder:
            written = write_raw_files(Path(folder), gigabytes / scale)
            raw.append({"GB": written} | in_fresh_process(scan, Path(folder)))
    print(
        f"\nRaw review files scanned, 1,000 users taken\n{pd.DataFrame(raw).round(2).to_string(index=False)}"
    )


if __name__ == "__main__":
    main()
