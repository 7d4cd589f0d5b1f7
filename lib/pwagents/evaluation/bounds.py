"""Floors and ceilings: how well nobody at all, and somebody who knows the answer, would do."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import pandas as pd

from pwagents.embedding import Embedder
from pwagents.schema import Benchmark, Task
from pwagents.seeds import rng
from pwagents.web.functions import RESULTS
from pwagents.web.reward import rank_accuracy
from pwagents.web.search import SearchEngine

COLUMNS = ["method", "task_id", "user_id", "type", "result_accuracy"]


def product_bounds(
    benchmark: Benchmark, engine: SearchEngine, tasks: Sequence[Task], seed: int
) -> pd.DataFrame:
    """Result accuracy of reference rankings on search and recommend tasks, one row a task and method.

    - random: ten products at random; - popularity: the ten most bought in the train period;
    - repeat: the user's own last ten products (recommend);
    - instruction alone: the instruction as the query (search);
    - oracle: the target's title as the query (search); for recommend, 1 when anybody bought the target in
      the train period: a recommender that learns from purchases can know no other product.
    """
    catalogue = sorted(benchmark.products)
    known = {b.parent_asin for user in benchmark.behaviors for b in benchmark.train_period(user)}
    popular = popular_products(benchmark)
    rows = []
    for task in tasks:
        if task.type == "review":
            continue
        generator = rng(seed, "bounds", task.task_id)
        picks = generator.choice(len(catalogue), size=min(RESULTS, len(catalogue)), replace=False)
        rankings = {"random": [catalogue[i] for i in picks], "popularity": popular}
        if task.type == "search":
            title = benchmark.products[task.target].title
            rankings["instruction alone"] = [a for a, _ in engine.search(task.instruction, RESULTS)]
            rankings["oracle"] = [a for a, _ in engine.search(title, RESULTS)]
        else:
            past = [b.parent_asin for b in benchmark.history(task, "test")]
            rankings["repeat"] = list(dict.fromkeys(reversed(past)))[:RESULTS]
            rankings["oracle"] = [task.target] if task.target in known else []
        for method, ranking in rankings.items():
            rows.append((method, task.task_id, task.user_id, task.type, rank_accuracy(ranking, task.target)))
    return pd.DataFrame(rows, columns=COLUMNS)


def popular_products(benchmark: Benchmark) -> list[str]:
    """The ten products bought most often in the train period; ties by id."""
    counts = Counter(b.parent_asin for user in benchmark.behaviors for b in benchmark.train_period(user))
    return sorted(counts, key=lambda asin: (-counts[asin], asin))[:RESULTS]


def review_bounds(benchmark: Benchmark, embedder: Embedder, tasks: Sequence[Task], seed: int) -> pd.DataFrame:
    """Result accuracy of other real reviews in the place of the agent's, one row a task and method.

    - random: a review by anybody, where there is one; - same user: the user's latest review before the task;
    - same product: another user's review of the product (only where there is one);
    - oracle: the real review, 1 by definition. All but the oracle come from the train period.
    """
    texts, by_product = [], defaultdict(list)
    for user in sorted(benchmark.behaviors):
        for b in benchmark.train_period(user):
            if b.review.text:
                texts.append(b.review.text)
                by_product[b.parent_asin].append((user, b.review.text))
    pairs = []
    for task in tasks:
        if task.type != "review":
            continue
        if texts:
            pairs.append(("random", task, texts[rng(seed, "bounds", task.task_id).integers(len(texts))]))
        own = [b.review.text for b in benchmark.history(task, "test") if b.review.text]
        if own:
            pairs.append(("same user", task, own[-1]))
        others = [text for user, text in by_product[task.target] if user != task.user_id]
        if others:
            pairs.append(("same product", task, others[0]))
        pairs.append(("oracle", task, task.review.text))
    embedder.encode(sorted({text for _, t, s in pairs for text in (s, t.review.text)}), show_progress=True)
    rows = [
        (method, task.task_id, task.user_id, task.type, embedder.similarity(text, task.review.text))
        for method, task, text in pairs
    ]
    return pd.DataFrame(rows, columns=COLUMNS)
