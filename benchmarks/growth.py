"""How time and memory grow with products and with users, and which step dominates; a 2 GB raw file.

    .venv/bin/python benchmarks/growth.py [--output-dir outputs/laptop] [--quick]

Twenty minutes on 2 cores, 4 GB of memory and 5 GB of disk for a while; ``--quick``, a tenth of every size,
about a minute. Expect every step to say "linear or less", the making of the embedded world to take most of
the time, and 2 GB of raw reviews to be scanned in less memory than that. Tables go
to ``<output-dir>/growth/tables``, figures to ``<output-dir>/growth/figures``.

Two ladders of embedded worlds: products at 1,000 users, users at 36,000 products. Users have 5 to 10
behaviours, so that 100,000 of them fit a laptop. Two things stand in for what costs the same for each text or
learns nothing here: embeddings are random vectors behind the real cache, and the recommender is SASRec over
all products, untrained. Each size has fresh processes, so that its memory is its own.
"""

import argparse
import ctypes
import gc
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path

import numpy as np
import pandas as pd
from growth_report import save_growth, save_raw_scans
from raw_reviews import measure_raw_scan
from search import peak_mb

from pwagents.agents.memory import Memory, behavior_text
from pwagents.agents.plain import FunctionClassifier, PlainAgent
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import DIMENSION, Embedder
from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.evaluation.episodes import run_episodes
from pwagents.portable import one_core
from pwagents.progress import progress
from pwagents.project import project_path
from pwagents.schema import FUNCTION_OF, Benchmark, Task
from pwagents.seeds import rng
from pwagents.web.environment import BeliefState, WebEnvironment, run_episode
from pwagents.web.functions import Shop
from pwagents.web.recommender import Recommender
from pwagents.web.sasrec import SasRec
from pwagents.web.search import build_search_engine
from pwagents.web.settings import SasRecSettings

LADDERS = {  # what grows -> sizes as (products, users)
    "products": [(3_000, 1_000), (36_000, 1_000), (360_000, 1_000)],
    "users": [(36_000, 1_000), (36_000, 10_000), (36_000, 100_000)],
}
HISTORY = (5, 10)  # behaviours a user
TASKS = 2_000  # test tasks of memory retrieval and the run, sampled
RAW_GIGABYTES = (0.2, 2.0)
HEAVY = ["pwagents.web.recommender", "sklearn.linear_model", "transformers.utils", "great_tables"]


class RandomVectors:
    """In MiniLM's place: a unit vector drawn from the text's hash, at the same small cost for each text."""

    def encode(self, texts: Sequence[str], **_) -> np.ndarray:
        vectors = np.stack([rng(0, text).normal(size=DIMENSION) for text in texts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class CheapEmbedder(Embedder):
    """The real cache around cheap vectors."""

    def _load_model(self) -> RandomVectors:
        return RandomVectors()


class Meter:
    """Notes what each step costs: CPU and wall seconds, how far memory rose, and the most it has come to."""

    def __init__(self):
        self.rows = []

    def __call__(self, step: str, function: Callable, rounds: int = 1):
        """What ``function`` returns; of several rounds the fastest counts, as other programs disturb it."""
        notes = []
        for _ in range(rounds):
            result = None  # that of the round before is given back first
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # what is free goes back, or a step's memory would hide in it
            Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak starts anew
            held, wall, cpu = peak_mb(), time.perf_counter(), time.process_time()
            result = function()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            notes.append({"cpu_s": cpu, "wall_s": wall, "mb": peak_mb() - held, "peak_mb": peak_mb()})
        self.rows.append({"step": step} | min(notes, key=itemgetter("cpu_s")))
        return result


def measure_size(n_products: int, n_users: int, n_tasks: int) -> pd.DataFrame:
    """What each step costs at one size, a row a step. Making and using the world get a fresh process each."""
    context = get_context("forkserver")
    context.set_forkserver_preload(HEAVY)  # imported once for all processes
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for part in (make, use):
            with ProcessPoolExecutor(1, mp_context=context) as fresh_process:
                arguments = (Path(folder), n_products, n_users, n_tasks)
                rows += fresh_process.submit(measure, part, *arguments).result()
    return pd.DataFrame(rows).assign(n_products=n_products, n_users=n_users)


def measure(part: Callable, folder: Path, n_products: int, n_users: int, n_tasks: int) -> list[dict]:
    """The costs of the steps of one part, :func:`make` or :func:`use`."""
    with one_core(), tempfile.TemporaryDirectory() as aside:
        for first in (make, part):  # imports and first calls are not counted
            first(Meter(), Path(aside), 100, 10, 10)
        part(meter := Meter(), folder, n_products, n_users, n_tasks)
    return meter.rows


def make(meter: Meter, folder: Path, n_products: int, n_users: int, n_tasks: int) -> Benchmark:
    """Make a world."""
    config = WorldConfig(n_users=n_users, n_products=n_products, history=HISTORY)
    return meter("make the world", lambda: make_world(config, seed=0)).benchmark


def use(meter: Meter, folder: Path, n_products: int, n_users: int, n_tasks: int) -> None:
    """Run the plain agent on ``n_tasks`` test tasks of the same world, whose making is not measured again."""
    benchmark = make(lambda _, function: function(), folder, n_products, n_users, n_tasks)
    engine = meter("search index", lambda: build_search_engine(benchmark.products), rounds=3)
    classifier = meter(
        "train the plain agent", lambda: FunctionClassifier(benchmark.tasks["train"]), rounds=3
    )
    tasks = sample_tasks(benchmark.tasks["test"], n_tasks, seed=0)
    embedder = CheapEmbedder(batch_size=64)
    _embed(benchmark, tasks, embedder)
    memory = Memory("task_specific", benchmark.products, embedder)
    meter("memory retrieval", lambda: _recall(benchmark, tasks, memory))
    shop = Shop(benchmark, engine, _untrained(benchmark), embedder, "compact")
    meter("single-turn run", lambda: _play(shop, tasks, PlainAgent(classifier, memory), folder))


def _embed(benchmark: Benchmark, tasks: Sequence[Task], embedder: Embedder) -> None:
    users = sorted({task.user_id for task in tasks})
    behaviors = [behavior for user in users for behavior in benchmark.behaviors[user]]
    embedder.encode([behavior_text(b, benchmark.products[b.parent_asin]) for b in behaviors])
    embedder.encode([task.instruction for task in tasks])


def _recall(benchmark: Benchmark, tasks: Sequence[Task], memory: Memory) -> None:
    for task in tasks:
        state = BeliefState(task.user_id, task.instruction, "", None, benchmark.history(task, "test"))
        memory.recall(state, FUNCTION_OF[task.type])


def _untrained(benchmark: Benchmark) -> Recommender:
    index = {asin: i for i, asin in enumerate(benchmark.products, 1)}
    return Recommender(SasRec(len(index), SasRecSettings()), index)


def _play(shop: Shop, tasks: Sequence[Task], agent: PlainAgent, folder: Path) -> None:
    def solve(task: Task):
        history = shop.benchmark.history(task, "test")
        return run_episode(WebEnvironment(shop), task, history, agent)

    options = {"method": "plain", "model": "none", "params": {}}
    run_episodes(tasks, solve, folder / "runs.jsonl", **options)


def run(output_dir: Path, scale: int = 1) -> None:
    """Measure everything at sizes ``scale`` times smaller than usual; print and save the results."""
    ladders = {
        ladder: [(products // scale, users // scale) for products, users in sizes]
        for ladder, sizes in LADDERS.items()
    }
    sizes = sorted({size for ladder in ladders.values() for size in ladder}, key=math.prod)
    measured = {size: measure_size(*size, TASKS // scale) for size in progress(sizes, "sizes")}
    for ladder, sizes in ladders.items():
        rows = pd.concat([measured[size] for size in sizes], ignore_index=True)
        print(save_growth(rows, ladder, output_dir))
    raw = pd.DataFrame([measure_raw_scan(gigabytes / scale) for gigabytes in RAW_GIGABYTES])
    print(save_raw_scans(raw, output_dir))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output-dir", type=Path, default=Path("outputs/laptop"), help="the preset's folder")
    parser.add_argument("--quick", action="store_true", help="a tenth of every size")
    arguments = parser.parse_args()
    run(project_path(arguments.output_dir) / "growth", scale=10 if arguments.quick else 1)


if __name__ == "__main__":
    main()
