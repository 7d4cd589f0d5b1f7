"""What the ground floor costs: episodes, search against Lucene, recommender, memory.

    .venv/bin/python benchmarks/environment.py [folder with meta.jsonl.gz and reviews.jsonl.gz]

Without the folder, search is measured on the embedded world's products alone, and not against Lucene. Speeds are
ratios within one run: the machine's own speed cancels out.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import pandas as pd
from sasrec import measure_sasrec
from search import measure_search

from pwagents.agents.memory import Memory, embed_behaviors
from pwagents.agents.plain import FunctionClassifier, PlainAgent
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.evaluation.runner import run_episodes
from pwagents.schema import Action
from pwagents.web.environment import WebEnvironment
from pwagents.web.episode import run_episode
from pwagents.web.functions import Shop
from pwagents.web.recommender import Recommender
from pwagents.web.sasrec import SasRecConfig
from pwagents.web.search import build_search_engine

TASKS = 2000


def measure_environment(cache_dir: Path) -> dict[str, float]:
    """Episodes of reset, one search and its reward; then single-turn tasks by the plain agent, caches warm."""
    benchmark = make_world(WorldConfig(n_users=300, n_products=3000), seed=0).benchmark
    tasks = benchmark.tasks["test"][:TASKS]
    bought = {user: [b.parent_asin for b in benchmark.train_period(user)] for user in benchmark.behaviors}
    recommender = Recommender.fit(bought, SasRecConfig(loss="cross_entropy", epochs=2), 0, cache_dir)
    embedder = Embedder(cache_dir)
    shop = Shop(benchmark, build_search_engine(benchmark.products), recommender, embedder, "compact")

    environment = WebEnvironment(shop)
    searches = [task for task in tasks if task.type == "search"]
    start = time.perf_counter()
    for task in searches:
        environment.reset(task)
        environment.step(Action(name="search_product_by_query", arguments={"query": task.instruction}))
    episodes = len(searches) / (time.perf_counter() - start)

    memory_embedder = Embedder(cache_dir, max_tokens=48)
    memory = Memory("relevant", benchmark.products, memory_embedder)
    agent = PlainAgent(FunctionClassifier(benchmark.tasks["train"]), memory)
    embed_behaviors(benchmark, memory_embedder, [task.instruction for task in tasks])

    def solve(task):
        return run_episode(WebEnvironment(shop), task, benchmark.history(task, "test"), agent)

    def run(name: str) -> float:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            run_episodes(tasks, solve, Path(folder, "runs.jsonl"), method=name, model="none", params={})
        return time.perf_counter() - start

    run("fill the cache of review similarities")
    return {
        "episodes/s (reset, search, reward)": episodes,
        f"{len(tasks)} single-turn tasks, warm (s)": run("warm"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, help="folder of raw Amazon Reviews 2023 files")
    parser.add_argument("--cache", type=Path, default=Path("outputs/cache"))
    arguments = parser.parse_args()
    results = measure_environment(arguments.cache)
    results["peak memory so far (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if arguments.data:
        results |= measure_search(arguments.data / "meta.jsonl.gz", arguments.data / "reviews.jsonl.gz")
    results |= measure_sasrec()
    results["peak memory (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(pd.Series(results).map("{:,.3f}".format).to_string())


if __name__ == "__main__":
    main()
