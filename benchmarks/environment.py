"""What the ground floor costs: episodes, product search against Lucene, the recommender, memory.

    .venv/bin/python benchmarks/environment.py <folder with meta.jsonl.gz and reviews.jsonl.gz>

About eight minutes on 2 cores the first time, four with warm caches. The folder holds raw Amazon Reviews 2023
files; without one, search is left out. Compare the ratios: they come from one run on one machine.
"""

import argparse
import tempfile
import time
from pathlib import Path

import pandas as pd
from sasrec import measure_sasrec
from search import measure_search, peak_mb

from pwagents.agents.memory import Memory, embed_behaviors
from pwagents.agents.plain import FunctionClassifier, PlainAgent
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.evaluation.episodes import run_episodes
from pwagents.schema import Action
from pwagents.web.environment import WebEnvironment, run_episode
from pwagents.web.functions import Shop
from pwagents.web.recommender import Recommender
from pwagents.web.search import build_search_engine
from pwagents.web.settings import SasRecSettings

TASKS = 2000


def measure_environment(cache_dir: Path) -> dict[str, float]:
    """Speed of the environment on the embedded world of the laptop preset, caches warm.

    Returns:
        "episodes_per_s": reset, one search and its reward. "tasks_s": wall time of TASKS single-turn tasks
        by the plain agent with relevant memory, records stored and fsynced. "peak_mb": of the process.
    """
    benchmark = make_world(WorldConfig(), seed=0).benchmark
    tasks = benchmark.tasks["test"][:TASKS]
    bought = {user: [b.parent_asin for b in benchmark.train_period(user)] for user in benchmark.behaviors}
    recommender = Recommender.fit(bought, SasRecSettings(loss="cross_entropy", epochs=2), 0, cache_dir)
    engine = build_search_engine(benchmark.products, cache_dir=cache_dir)
    shop = Shop(benchmark, engine, recommender, Embedder(cache_dir), "compact")
    environment = WebEnvironment(shop)
    searches = [task for task in tasks if task.type == "search"]
    start = time.perf_counter()
    for task in searches:
        environment.reset(task)
        environment.step(Action(name="search_product_by_query", arguments={"query": task.instruction}))
    episodes_per_s = len(searches) / (time.perf_counter() - start)

    memory_embedder = Embedder(cache_dir, max_tokens=48)
    memory = Memory("relevant", benchmark.products, memory_embedder)
    agent = PlainAgent(FunctionClassifier(benchmark.tasks["train"]), memory)
    embed_behaviors(benchmark, memory_embedder, [task.instruction for task in tasks])

    def solve(task):
        return run_episode(WebEnvironment(shop), task, benchmark.history(task, "test"), agent)

    def seconds() -> float:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            run_episodes(tasks, solve, Path(folder, "runs.jsonl"), method="plain", model="none", params={})
        return time.perf_counter() - start

    seconds()  # fills the cache of review similarities
    return {"episodes_per_s": episodes_per_s, "tasks_s": seconds(), "peak_mb": peak_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, help="folder of raw Amazon Reviews 2023 files")
    parser.add_argument(
        "--cache", type=Path, default=Path("outputs/benchmarks"), help="where caches are kept"
    )
    arguments = parser.parse_args()
    print(f"environment, {TASKS} single-turn tasks")
    print(pd.Series(measure_environment(arguments.cache)).round(1).to_string(), "\n")
    if arguments.data:
        print("search, real catalogue")
        measured = measure_search(arguments.data / "meta.jsonl.gz", arguments.data / "reviews.jsonl.gz")
        print(pd.DataFrame(measured).round(3).to_string(na_rep=""), "\n")
    print("recommender, 1,000 users and 36,000 products")
    print(pd.json_normalize(measure_sasrec()).T.round(3).to_string(header=False))


if __name__ == "__main__":
    main()
