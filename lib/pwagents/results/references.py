"""Reference answers that need no method, from chance to knowing the answer.

They are no bounds: an agent may do worse than chance, and better than a query by the target's title.
"Bought" means: by a stranger or in a user's train period, as recommenders know it, and before the first test
task of the task's own user.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import nsmallest

import numpy as np
import pandas as pd

from pwagents.data.synthetic import Truth
from pwagents.embedding import Embedder
from pwagents.profiles.clusters import adaptive_clusters, embed_items
from pwagents.results.statistics import sort_by_type
from pwagents.schema import Behavior, Benchmark, Task
from pwagents.seeds import rng
from pwagents.shop.environment import Shop
from pwagents.shop.score import rank_accuracy
from pwagents.shop.search import RESULTS, SearchEngine, content_query

COLUMNS = ["method", "task_id", "user_id", "type", "result_accuracy"]


def score_references(shop: Shop, tasks: Sequence[Task], seed: int) -> pd.DataFrame:
    """Score reference answers of all types of tasks, one row a task and method."""
    products = product_references(shop.benchmark, shop.search_engine, tasks, seed)
    reviews = review_references(shop.benchmark, shop.embedder, tasks, seed)
    return pd.concat([products, reviews], ignore_index=True)


def product_references(
    benchmark: Benchmark, engine: SearchEngine, tasks: Sequence[Task], seed: int
) -> pd.DataFrame:
    """Score reference rankings on search and recommend tasks, a row a task and method.

    The oracle's query is the target's title. In recommend tasks it is right if anybody bought the target
    before: a recommender that learns from purchases can know no other product.
    """
    rows, catalog = [], sorted(benchmark.products)
    first_bought = {asin: timestamp for timestamp, asin in reversed(_purchases(benchmark))}
    popular = popular_products(benchmark, {benchmark.first_task(task.user_id) for task in tasks})
    for task in (task for task in tasks if task.type != "review"):
        # "bounds" is part of the draw: another word would draw other products.
        generator = rng(seed, "bounds", task.task_id)
        picks = generator.choice(len(catalog), size=min(RESULTS, len(catalog)), replace=False)
        # Nobody knows more than what lies before the user's first test task.
        start = benchmark.first_task(task.user_id)
        rankings = {"random": [catalog[i] for i in picks], "popularity": popular[start]}
        if task.type == "search":
            queries = {
                "instruction alone": task.instruction,
                "content words alone": content_query(task.instruction),
                "oracle": benchmark.products[task.target].title,
            }
            for method, query in queries.items():
                rankings[method] = [asin for asin, _ in engine.search(query, RESULTS)]
        else:
            rankings["repeat"] = _latest(benchmark.history(task, "test"))
            rankings["oracle"] = [task.target] if first_bought.get(task.target, start) < start else []
        for method, ranking in rankings.items():
            rows.append((method, task.task_id, task.user_id, task.type, rank_accuracy(ranking, task.target)))
    return pd.DataFrame(rows, columns=COLUMNS)


def review_references(
    benchmark: Benchmark, embedder: Embedder, tasks: Sequence[Task], seed: int
) -> pd.DataFrame:
    """Score other real reviews in the place of the agent's, one row a task and method.

    Tasks without a text of the real review are left out, as they are for agents. A review by anybody, the
    user's latest and the product's first by another user come from train periods, and from the time before
    the first test task of the task's own user.
    """
    reviews = [(t, user, b) for t, user, b in _train_periods(benchmark) if b.review.text]
    by_product = defaultdict(list)
    for t, user, b in reviews:
        by_product[b.parent_asin].append((t, user, b.review.text))
    pairs = []  # method, task, the text in the place of the agent's review
    for task in (task for task in tasks if task.type == "review" and task.review.text.strip()):
        start = benchmark.first_task(task.user_id)
        own = [b.review.text for b in benchmark.history(task, "test") if b.review.text]
        others = [text for t, user, text in by_product[task.target] if t < start and user != task.user_id]
        texts = {"same user": own[-1:], "same product": others[:1], "oracle": [task.review.text]}
        if n_earlier := bisect_left(reviews, start, key=lambda review: review[0]):
            pick = reviews[rng(seed, "bounds", task.task_id).integers(n_earlier)]
            texts = {"random": [pick[2].review.text], **texts}
        pairs += [(method, task, text) for method, these in texts.items() for text in these]
    # All texts in one go; the similarities below then find them.
    embedder.encode(sorted({text for _, t, s in pairs for text in (s, t.review.text)}), show_progress=True)
    rows = []
    for method, task, text in pairs:
        likeness = max(embedder.cosine(text, task.review.text), 0.0)
        rows.append((method, task.task_id, task.user_id, task.type, likeness))
    return pd.DataFrame(rows, columns=COLUMNS)


def with_references(results: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Put results, one row an episode, between the references and the oracle."""
    named = references.assign(method="Reference: " + references["method"])
    named = named.rename(columns={"result_accuracy": "result_official"})
    is_oracle = references["method"] == "oracle"
    return sort_by_type(pd.concat([named[~is_oracle], results, named[is_oracle]], ignore_index=True))


def popular_products(benchmark: Benchmark, dates: set[int]) -> dict[int, list[str]]:
    """Return the ten products most bought before each date (milliseconds); ties by id."""
    purchases, counts = _purchases(benchmark), Counter[str]()
    popular, n_counted = {}, 0
    for date in sorted(dates):
        end = bisect_left(purchases, date, lo=n_counted, key=lambda purchase: purchase[0])
        if end > n_counted or not popular:  # else the ten are those of the date before
            counts.update(asin for _, asin in purchases[n_counted:end])
            best = nsmallest(RESULTS, counts, key=lambda asin: (-counts[asin], asin))
        popular[date], n_counted = best, end
    return popular


def recommend_by_input(
    shop: Shop, tasks: Sequence[Task], embedder: Embedder, truth: Truth | None
) -> pd.DataFrame:
    """Answer recommend tasks by rules, and by the recommender from parts of the past, a row each.

    The right interest, and in it the products of the target's type (all of the interest if there is none),
    are known in the synthetic world alone.

    Returns:
        :data:`COLUMNS`, ``hit`` (the target among the ten) and ``bought_before`` (the target is in the past).
    """
    benchmark, tasks = shop.benchmark, [task for task in tasks if task.type == "recommend"]
    popular = popular_products(benchmark, {benchmark.first_task(task.user_id) for task in tasks})
    histories = {task.user_id: benchmark.history(task, "test") for task in tasks}
    vectors = embed_items(histories.values(), benchmark.products, embedder)
    instructions = embedder.encode([task.instruction for task in tasks])
    rows = []
    for task, instruction in zip(tasks, instructions, strict=True):
        history = histories[task.user_id]
        # Cosines are rounded, so that the last bits of an embedding cannot decide a tie.
        cosines = np.round([vectors[b.parent_asin] @ instruction for b in history], 6)
        closest = sorted(range(len(history)), key=lambda i: (-cosines[i], -i))[:10]
        # The cluster whose center is nearest to the instruction (Orion, 4.1).
        clusters = adaptive_clusters(history, benchmark.products, vectors)
        nearest = max(clusters, key=lambda c: round(float(c.center @ instruction), 6), default=None)
        parts = {
            "whole history": history,
            "ten closest to the instruction": [history[i] for i in sorted(closest)],
            "nearest cluster": [history[i] for i in nearest.members] if nearest else [],
        }
        lists = {"rule: the most popular": popular[benchmark.first_task(task.user_id)]}
        lists["rule: own latest purchases"] = _latest(history)
        if truth:
            target, items = truth.items[task.target], truth.items
            interest = [b for b in history if items[b.parent_asin].domain.name == target.domain.name]
            same_type = [b for b in interest if items[b.parent_asin].type == target.type]
            parts |= {"right interest": interest, "right interest and type": same_type or interest}
            lists["rule: own latest of the right interest"] = _latest(interest)
        recommender = shop.recommender(task)
        lists |= {name: recommender.recommend([b.parent_asin for b in part]) for name, part in parts.items()}
        again = any(behavior.parent_asin == task.target for behavior in history)
        for method, ranking in lists.items():
            accuracy, hit = rank_accuracy(ranking, task.target), float(task.target in ranking)
            rows.append((method, task.task_id, task.user_id, task.type, accuracy, hit, again))
    return pd.DataFrame(rows, columns=[*COLUMNS, "hit", "bought_before"])


def _latest(behaviors: Sequence[Behavior]) -> list[str]:
    """Return the ten last products, latest first."""
    return list(dict.fromkeys(b.parent_asin for b in reversed(behaviors)))[:RESULTS]


def _train_periods(benchmark: Benchmark) -> list[tuple[int, str, Behavior]]:
    """Return (time, user, behavior) of all train periods, by time and user."""
    users = sorted(benchmark.behaviors)
    behaviors = [(b.timestamp, user, b) for user in users for b in benchmark.train_period(user)]
    return sorted(behaviors, key=lambda each: each[0])


def _purchases(benchmark: Benchmark) -> list[tuple[int, str]]:
    """Return (time, parent_asin) of all that recommenders learn from, sorted."""
    of_users = [(b.timestamp, b.parent_asin) for _, _, b in _train_periods(benchmark)]
    of_strangers = [purchase for past in benchmark.population.values() for purchase in past]
    return sorted(of_users + of_strangers)
