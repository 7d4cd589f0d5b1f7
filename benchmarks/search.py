"""Product search: the Python BM25 engine against Pyserini's LuceneSearcher, same catalogue, same queries.

    python benchmarks/search.py <folder with meta.jsonl.gz and reviews.jsonl.gz>

Expect about two minutes on 2 cores, most of it Pyserini's index and import, and the Python engine to answer
at least five times as many queries a second.
"""

import gzip
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from pwagents.seeds import rng
from pwagents.web.pyserini_search import PyseriniEngine, start_java
from pwagents.web.search import Bm25Engine

TEXT_FIELDS = "title parent_asin average_rating rating_number price store features description details main_category".split()
ROUNDS = 5


def measure_search(meta_path: Path, reviews_path: Path, n_queries: int = 500) -> dict[str, dict[str, float]]:
    """Speed, index time and memory of both engines on raw Amazon Reviews 2023 files.

    Queries are review titles, drawn with a fixed seed. Each engine runs alone in a fresh process, so that
    memory is its own and Java never meets a fork. Speeds are those of the fastest of ROUNDS rounds.

    Returns:
        engine -> {"index_s", "load_s" (from the stored index), "queries_per_s", "p50_ms", "peak_mb"}, for
        LuceneSearcher also "batch_2_threads_per_s"; under "ratio": "queries_per_s" (Python over
        LuceneSearcher), "batch_2_threads_per_s" (Python, one thread, over LuceneSearcher's batch_search)
        and "overlap_at_10" of the two engines' results.
    """
    with gzip.open(meta_path, "rt", encoding="utf-8") as lines:
        documents = {row["parent_asin"]: _raw_text(row) for row in map(json.loads, lines)}
    with gzip.open(reviews_path, "rt", encoding="utf-8") as lines:
        titles = [json.loads(line)["title"] for line in lines]
    queries = (
        rng(0, "benchmark", "search").choice(titles, min(n_queries, len(titles)), replace=False).tolist()
    )
    python, ours = _in_fresh_process(_measure_python, documents, queries)
    lucene, theirs = _in_fresh_process(_measure_lucene, documents, queries)
    overlaps = [
        len({*a} & {*b}) / max(len(a), len(b), 1) if a or b else 1.0
        for a, b in zip(ours, theirs, strict=True)
    ]
    ratio = {
        "queries_per_s": python["queries_per_s"] / lucene["queries_per_s"],
        "batch_2_threads_per_s": python["queries_per_s"] / lucene["batch_2_threads_per_s"],
        "overlap_at_10": statistics.mean(overlaps),
    }
    return {"Bm25Engine": python, "LuceneSearcher": lucene, "ratio": ratio}


def _raw_text(row: dict) -> str:
    return " ".join(str(row[field]) for field in TEXT_FIELDS if row.get(field) is not None)


def _in_fresh_process(function: Callable, *arguments):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def _measure_python(documents: Mapping[str, str], queries: Sequence[str]) -> tuple[dict, list[list[str]]]:
    with tempfile.TemporaryDirectory() as folder:
        (_, index_s), (engine, load_s) = (_timed(lambda: Bm25Engine(documents, folder)) for _ in range(2))
    times = _query_times(engine.search, queries)
    found = [[docid for docid, _ in hits] for hits in engine.search_batch(queries)]
    return {"index_s": index_s, "load_s": load_s, **times, "peak_mb": _peak_mb()}, found


def _measure_lucene(documents: Mapping[str, str], queries: Sequence[str]) -> tuple[dict, list[list[str]]]:
    start_java()
    os.environ.setdefault("OPENAI_API_KEY", "not used")  # pyserini.search.lucene wants one to be imported
    from pyserini.search.lucene import LuceneSearcher

    with tempfile.TemporaryDirectory() as folder:
        engine, index_s = _timed(lambda: PyseriniEngine(documents, folder))
        searcher, load_s = _timed(lambda: LuceneSearcher(str(engine.index_dir)))
        times = _query_times(searcher.search, queries)
        names = [str(i) for i in range(len(queries))]
        batches = [_timed(lambda: searcher.batch_search(queries, names, 10, 2))[1] for _ in range(ROUNDS)]
        times["batch_2_threads_per_s"] = len(queries) / min(batches)
        found = [[hit.docid for hit in searcher.search(query, 10)] for query in queries]
    return {"index_s": index_s, "load_s": load_s, **times, "peak_mb": _peak_mb()}, found


def _query_times(search: Callable, queries: Sequence[str]) -> dict[str, float]:
    rounds = [[_timed(lambda q=query: search(q, 10))[1] for query in queries] for _ in range(ROUNDS)]
    fastest = min(rounds, key=sum)
    return {"queries_per_s": len(queries) / sum(fastest), "p50_ms": 1000 * statistics.median(fastest)}


def _timed(function: Callable) -> tuple:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    folder = Path(next(islice(sys.argv, 1, None), "../shared/data/amazon_reviews_2023"))
    result = measure_search(folder / "meta.jsonl.gz", folder / "reviews.jsonl.gz")
    print(pd.DataFrame(result).round(3).to_string(na_rep=""))


if __name__ == "__main__":
    main()
