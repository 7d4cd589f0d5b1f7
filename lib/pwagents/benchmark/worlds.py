"""Is it repurchase, is it this world? Results where nothing is bought twice, and in other worlds.

In the embedded world four targets of ten were bought by their user before, on real Amazon reviews hardly any.
What memory gains is therefore told apart by whether the target was bought before, and measured once more in a
world in which nothing is.
"""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from pwagents.benchmark.analyses_03 import frame_of, gains_of_memory
from pwagents.benchmark.settings import BenchmarkNotebook
from pwagents.benchmark.study import Study
from pwagents.data import load_benchmark
from pwagents.evaluation.statistics import summarise
from pwagents.notebook.run import Run
from pwagents.schema import TASK_TYPES, Benchmark

BEFORE, NEW = "bought before", "new"


def play_world(
    settings: BenchmarkNotebook, run: Run, *, seed: int | None = None, repurchase: float | None = None
) -> pd.DataFrame:
    """Play the plain agent, leak-free, in a world of another seed or with the dial of repurchase set.

    Everything is made anew there: shop, people, tasks, recommenders. Stored episodes are not played again.

    Returns:
        One row an episode, with ``target``: whether its product was bought before.
    """
    there = replace(
        settings,
        seed=settings.seed if seed is None else seed,
        data=replace(settings.data, repurchase=repurchase),
    )
    benchmark, _ = load_benchmark(there.data, there.seed)
    return tell_repurchases(frame_of(Study(benchmark, there, run).play_plain("leak_free")), benchmark)


def tell_repurchases(results: pd.DataFrame, benchmark: Benchmark) -> pd.DataFrame:
    """Say in ``target`` whether the user had bought the target before their first test task, or it is new."""
    bought = {
        task.task_id: any(b.parent_asin == task.target for b in benchmark.history(task, "test"))
        for task in benchmark.tasks["test"]
    }
    return results.assign(target=results["task_id"].map(bought).map({True: BEFORE, False: NEW}))


def results_by_repurchase(worlds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Average result accuracy by task type and by whether the target was bought before.

    Args:
        worlds: name -> episodes with ``target`` (:func:`tell_repurchases`).

    Returns:
        As of :func:`~pwagents.evaluation.statistics.summarise`, by ``world, type, target`` and ``method``.
    """
    rows = pd.concat([results.assign(world=world) for world, results in worlds.items()])
    everything = pd.concat([rows.assign(target="all"), rows])
    means = summarise(everything, ["world", "type", "target", "method"], ["result_official"])
    order = {name: i for i, name in enumerate((*worlds, *TASK_TYPES, "all", BEFORE, NEW))}
    by = ["world", "type", "target"]
    return means.sort_values(by, key=lambda names: names.map(order), kind="stable", ignore_index=True)


def gains_by_repurchase(worlds: Mapping[str, pd.DataFrame], without: str) -> pd.DataFrame:
    """Test what memory gains by task type and by whether the target was bought before.

    Args:
        worlds: name -> episodes of :func:`play_world`.
        without: the method without memory.

    Returns:
        ``world, target`` ("all", :data:`BEFORE`, :data:`NEW`), then the columns of
        :func:`~pwagents.benchmark.analyses_03.gains_of_memory`. Where all targets of a world are of one kind,
        only "all".
    """
    rows = []
    for world, results in worlds.items():
        for target in ("all", BEFORE, NEW):
            part = results if target == "all" else results[results["target"] == target]
            if target == "all" or 0 < len(part) < len(results):
                gains = gains_of_memory(part, without)
                rows.append(gains.assign(world=world, target=target))
    table = pd.concat(rows, ignore_index=True)
    return table[["world", "target", *table.columns.drop(["world", "target"])]]
