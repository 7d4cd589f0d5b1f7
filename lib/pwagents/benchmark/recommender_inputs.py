"""What the recommender is worth by what it is given of a user's past, next to rules that learn nothing."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from pwagents.benchmark.references import popular_products
from pwagents.data.synthetic import Truth
from pwagents.embedding import Embedder
from pwagents.evaluation.metrics import rank_accuracy
from pwagents.evaluation.statistics import PairedTest, paired_test
from pwagents.profiles.global_micro import adaptive_clusters, embed_items
from pwagents.schema import Behavior, Benchmark, Task
from pwagents.web.functions import RESULTS, ProductRecommender

POPULAR, AGAIN = "rule: the most popular", "rule: own latest purchases"
AGAIN_RIGHT = "rule: own latest of the right interest"
WHOLE, CLOSEST, CLUSTER = "whole history", "ten closest to the instruction", "nearest cluster"
RIGHT, RIGHT_TYPE = "right interest", "right interest and type"
COMPARED = [(WHOLE, POPULAR), (WHOLE, AGAIN), (CLUSTER, WHOLE), (CLUSTER, AGAIN), (RIGHT, AGAIN_RIGHT)]
_CLOSEST = 10


def by_input(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    recommender_of: Callable[[Task], ProductRecommender],
    embedder: Embedder,
    truth: Truth | None,
) -> pd.DataFrame:
    """Recommend tasks answered from parts of the user's past, one row a task and method.

    The right interest, and in it the products of the target's type (all of the interest where there is none),
    are known in the embedded world alone.

    Args:
        recommender_of: task -> a recommender that knows no future of its user's.
        embedder: of products and instructions.
        truth: of the embedded world; None of other sources.

    Returns:
        ``method, task_id, user_id, type, result_accuracy, hit`` (the target among the ten) and
        ``bought_before`` (whether the target stands in the past).
    """
    asked = [task for task in tasks if task.type == "recommend"]
    popular = popular_products(benchmark, {benchmark.first_task(task.user_id) for task in asked})
    histories = {task.user_id: benchmark.history(task, "test") for task in asked}
    vectors = embed_items(histories.values(), benchmark.products, embedder)
    embedder.encode([task.instruction for task in asked])
    rows = []
    for task in asked:
        history = histories[task.user_id]
        instruction = embedder.encode([task.instruction])[0]
        parts = {WHOLE: history, CLOSEST: _closest(history, vectors, instruction)}
        parts[CLUSTER] = _nearest_cluster(history, benchmark, vectors, instruction)
        lists = {POPULAR: popular[benchmark.first_task(task.user_id)], AGAIN: _latest(history)}
        if truth:
            parts |= _right(task, history, truth)
            lists[AGAIN_RIGHT] = _latest(parts[RIGHT])
        recommender = recommender_of(task)
        lists |= {name: recommender.recommend([b.parent_asin for b in part]) for name, part in parts.items()}
        again = any(behavior.parent_asin == task.target for behavior in history)
        for method, ranking in lists.items():
            accuracy, hit = rank_accuracy(ranking, task.target), task.target in ranking
            rows.append((method, task.task_id, task.user_id, task.type, accuracy, float(hit), again))
    columns = ["method", "task_id", "user_id", "type", "result_accuracy", "hit", "bought_before"]
    return pd.DataFrame(rows, columns=columns)


def worth_of_inputs(answered: pd.DataFrame) -> pd.DataFrame:
    """One row a method of :func:`by_input`: result accuracy and HR@10, and HR@10 by whether the target was
    bought before."""
    kinds = answered["bought_before"].map({True: "HR@10, bought before", False: "HR@10, new"})
    by_kind = answered.pivot_table(index="method", columns=kinds, values="hit", sort=False)
    means = answered.groupby("method", sort=False)[["result_accuracy", "hit"]].mean()
    means.columns = ["result accuracy", "HR@10"]
    return means.join(by_kind.sort_index(axis=1))


def input_differences(answered: pd.DataFrame) -> pd.DataFrame:
    """Paired differences in HR@10 and result accuracy: the recommender minus the rules, input minus input."""
    rows = [
        {"metric": told, "comparison": f"{a} - {b}", **paired_test(answered, metric, a, b)._asdict()}
        for metric, told in (("hit", "HR@10"), ("result_accuracy", "result accuracy"))
        for a, b in COMPARED
        if {a, b} <= set(answered["method"])
    ]
    columns = ["metric", "comparison", *PairedTest._fields]
    return pd.DataFrame(rows, columns=columns).drop(columns="n_left_out")


def _latest(behaviors: Sequence[Behavior]) -> list[str]:
    """What was bought will be bought again: the ten last products, latest first."""
    return list(dict.fromkeys(b.parent_asin for b in reversed(behaviors)))[:RESULTS]


def _closest(history: Sequence[Behavior], vectors: dict, instruction: np.ndarray) -> list[Behavior]:
    """The ten behaviours whose products are closest to the instruction, oldest first."""
    cosines = np.round([vectors[b.parent_asin] @ instruction for b in history], 6)
    chosen = sorted(range(len(history)), key=lambda i: (-cosines[i], -i))[:_CLOSEST]
    return [history[i] for i in sorted(chosen)]


def _nearest_cluster(
    history: Sequence[Behavior], benchmark: Benchmark, vectors: dict, instruction: np.ndarray
) -> list[Behavior]:
    """The cluster whose centre is nearest to the instruction (Orion, section 4.1), oldest first; empty where
    too little was bought for any."""
    clusters = adaptive_clusters(history, benchmark.products, vectors)
    if not clusters:
        return []
    nearest = max(clusters, key=lambda cluster: round(float(cluster.centre @ instruction), 6))
    return [history[i] for i in nearest.members]


def _right(task: Task, history: Sequence[Behavior], truth: Truth) -> dict[str, list[Behavior]]:
    meant = truth.items[task.target]
    interest = [b for b in history if truth.items[b.parent_asin].domain.name == meant.domain.name]
    same_type = [b for b in interest if truth.items[b.parent_asin].type == meant.type]
    return {RIGHT: interest, RIGHT_TYPE: same_type or interest}
