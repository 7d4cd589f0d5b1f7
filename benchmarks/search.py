"""Product search: the Python BM25 engine against Pyserini's LuceneSearcher, same catalogue, same queries.

    python benchmarks/search.py <folder with meta.jsonl.gz and reviews.jsonl.gz>

Expect about a minute on 2 cores, most of it Pyserini's index and import, and the Python engine to answer
at least five times as many queries a second.
"""

import gzip
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from pwagents.seeds import rng
from pwagents.web.pyserini_search import PyseriniEngine, start_java
from pwagents.web.search import Bm25Engine

TEXT_FIELDS = """
title parent_asin average_rating rating_number price store features description details main_category
"""
ROUNDS = 5


def measure_search(meta_path: Path, reviews_path: Path, n_queries: int = 500) -> dict[str, dict[str, float]]:
    """Speed, index time and memory of both engines on raw Amazon Reviews 2023 files.

    Queries are review titles, drawn with a fixed seed. Both engines run in one fresh process (so that Java
    never meets a fork of the caller) and take turns, so that a busy machine slows both; speeds are those of
    the fastest of ROUNDS rounds, one query at a time in one thread.

    Returns:
        engine -> {"index_s", "load_s" (from the stored index), "memory_mb" (how far
        the process's memory rose above what it held before, index building included),
        "queries_per_s", "p50_ms"}, for LuceneSearcher also "batch_2_threads_per_s"; and under "ratio":
        "queries_per_s" (Python over LuceneSearcher), "batch_2_threads_per_s" (Python in one thread over
        LuceneSearcher's batch_search) and "overlap_at_10" of the results.
    """
    with gzip.open(meta_path, "rt", encoding="utf-8") as lines:
        documents = {row["parent_asin"]: _raw_text(row) for row in map(json.loads, lines)}
    with gzip.open(reviews_path, "rt", encoding="utf-8") as lines:
        titles = [json.loads(line)["title"] for line in lines]
    queries = (
        rng(0, "benchmark", "search").choice(titles, min(n_queries, len(titles)), replace=False).tolist()
    )
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh_process:
        return fresh_process.submit(_measure, documents, queries).result()


def _raw_text(row: dict) -> str:
    return " ".join(str(row[field]) for field in TEXT_FIELDS.split() if row.get(field) is not None)


def _measure(documents: Mapping[str, str], queries: Sequence[str]) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        start = _forget_peak_mb()
        index_s = _timed(lambda: Bm25Engine(documents, folder))[1]
        python, load_s = _timed(lambda: Bm25Engine(documents, folder))
        ours = {"index_s": index_s, "load_s": load_s, "memory_mb": peak_mb() - start}

        start = _forget_peak_mb()
        LuceneSearcher = _import_lucene_searcher()
        engine, index_s = _timed(lambda: PyseriniEngine(documents, folder))
        lucene, load_s = _timed(lambda: LuceneSearcher(str(engine.index_dir)))
        theirs = {"index_s": index_s, "load_s": load_s, "memory_mb": peak_mb() - start}

        names = [str(i) for i in range(len(queries))]
        rounds = [
            (
                [_timed(lambda q=query: python.search(q, 10))[1] for query in queries],
                [_timed(lambda q=query: lucene.search(q, 10))[1] for query in queries],
                _timed(lambda: lucene.batch_search(queries, names, 10, 2))[1],
            )
            for _ in range(ROUNDS)
        ]
        ours |= _speed([times for times, _, _ in rounds])
        theirs |= _speed([times for _, times, _ in rounds])
        theirs["batch_2_threads_per_s"] = len(queries) / min(seconds for _, _, seconds in rounds)
        overlaps = [_overlap(python.search(query, 10), lucene.search(query, 10)) for query in queries]
    ratio = {
        "queries_per_s": ours["queries_per_s"] / theirs["queries_per_s"],
        "batch_2_threads_per_s": ours["queries_per_s"] / theirs["batch_2_threads_per_s"],
        "overlap_at_10": statistics.mean(overlaps),
    }
    return {"Bm25Engine": ours, "LuceneSearcher": theirs, "ratio": ratio}


def _import_lucene_searcher():
    start_java()
    os.environ.setdefault("OPENAI_API_KEY", "not used")  # pyserini.search.lucene wants one to be imported
    from pyserini.search.lucene import LuceneSearcher

    return LuceneSearcher


def _overlap(ours, theirs) -> float:
    ours, theirs = {docid for docid, _ in ours}, {hit.docid for hit in theirs}
    return len(ours & theirs) / max(len(ours), len(theirs)) if ours or theirs else 1.0


def _speed(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    fastest = min(rounds, key=sum)
    return {"queries_per_s": len(fastest) / sum(fastest), "p50_ms": 1000 * statistics.median(fastest)}


def _timed(function: Callable) -> tuple:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def peak_mb() -> float:
    """The most memory this process has held, MB. (getrusage would count the process that started it, too.)"""
    return _status_mb("VmHWM")


def _forget_peak_mb() -> float:
    """What the process holds now, MB; :func:`peak_mb` starts anew from there."""
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM
    return _status_mb("VmRSS")


def _status_mb(field: str) -> float:
    return int(re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text()).group(1)) / 1024


def main() -> None:
    folder = Path(sys.argv[1])
    result = measure_search(folder / "meta.jsonl.gz", folder / "reviews.jsonl.gz")
    print(pd.DataFrame(result).round(3).to_string(na_rep=""))


if __name__ == "__main__":
    main()
