"""References: what answers reach that need no method, from chance to knowing the answer.

They are no bounds: an agent may do worse than chance, and better than a query by the target's title.
"Bought" means: by a stranger or in a user's train period, as recommenders know it, and before the first test
task of the task's own user.

What a trained recommender adds to such rules, and by what it is given of the past, is measured likewise
(:func:`answer_by_input`).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from heapq import nsmallest

import numpy as np
import pandas as pd

from pwagents.data.synthetic import Truth
from pwagents.profiles.clusters import adaptive_clusters, embed_items
from pwagents.results.metrics import rank_accuracy
from pwagents.schema import Behavior, Benchmark, Task
from pwagents.seeds import rng
from pwagents.shop.search import SearchEngine, content_query
from pwagents.embedding import Embedder
from pwagents_old.evaluation.breakdowns import sort_by_type
from pwagents_old.evaluation.statistics import PairedTest, name_left_out, paired_test
from pwagents_old.web.functions import RESULTS, ProductRecommender
from pwagents_old.web.shops import Shops

COLUMNS = ["method", "task_id", "user_id", "type", "result_accuracy"]
# What recommend tasks are answered by: rules that learn nothing, and the recommender given parts of the past.
POPULAR, AGAIN = "rule: the most popular", "rule: own latest purchases"
AGAIN_RIGHT = "rule: own latest of the right interest"
WHOLE, CLOSEST, CLUSTER = "whole history", "ten closest to the instruction", "nearest cluster"
RIGHT, RIGHT_TYPE = "right interest", "right interest and type"
COMPARED = [(WHOLE, POPULAR), (WHOLE, AGAIN), (CLUSTER, WHOLE), (CLUSTER, AGAIN), (RIGHT, AGAIN_RIGHT)]


def product_references(
    benchmark: Benchmark, engine: SearchEngine, tasks: Sequence[Task], seed: int
) -> pd.DataFrame:
    """Score reference rankings on search and recommend tasks, one row a task and method.

    - random: ten products at random; - popularity: the ten most bought;
    - repeat: the user's own last ten products (recommend);
    - instruction alone: the instruction as the query (search);
    - content words alone: those of the instruction as the query (search);
    - oracle: the target's title as the query (search); for recommend, 1 when anybody bought the target
      before: a recommender that learns from purchases can know no other product.
    """
    catalogue = sorted(benchmark.products)
    first_bought = {asin: timestamp for timestamp, asin in reversed(_purchases(benchmark))}
    popular = popular_products(benchmark, {benchmark.first_task(task.user_id) for task in tasks})
    rows = []
    for task in (task for task in tasks if task.type != "review"):
        # "bounds" is part of the draw: another word would draw other products.
        generator = rng(seed, "bounds", task.task_id)
        picks = generator.choice(len(catalogue), size=min(RESULTS, len(catalogue)), replace=False)
        # Nobody knows more than what lies before the user's first test task.
        start = benchmark.first_task(task.user_id)
        rankings = {"random": [catalogue[i] for i in picks], "popularity": popular[start]}
        if task.type == "search":
            queries = {
                "instruction alone": task.instruction,
                "content words alone": content_query(task.instruction),
                "oracle": benchmark.products[task.target].title,
            }
            for method, query in queries.items():
                rankings[method] = [asin for asin, _ in engine.search(query, RESULTS)]
        else:
            past = [b.parent_asin for b in benchmark.history(task, "test")]
            rankings["repeat"] = list(dict.fromkeys(reversed(past)))[:RESULTS]
            rankings["oracle"] = [task.target] if first_bought.get(task.target, start) < start else []
        for method, ranking in rankings.items():
            rows.append((method, task.task_id, task.user_id, task.type, rank_accuracy(ranking, task.target)))
    return pd.DataFrame(rows, columns=COLUMNS)


def popular_products(benchmark: Benchmark, dates: set[int]) -> dict[int, list[str]]:
    """Find the ten products bought most often before each date (milliseconds); ties by id."""
    purchases = _purchases(benchmark)
    counts: Counter[str] = Counter()
    popular, n_counted = {}, 0
    for date in sorted(dates):
        end = bisect_left(purchases, date, lo=n_counted, key=lambda purchase: purchase[0])
        if end > n_counted or not popular:  # else the ten are those of the date before
            counts.update(asin for _, asin in purchases[n_counted:end])
            best = nsmallest(RESULTS, counts, key=lambda asin: (-counts[asin], asin))
        popular[date], n_counted = best, end
    return popular


def review_references(
    benchmark: Benchmark, embedder: Embedder, tasks: Sequence[Task], seed: int
) -> pd.DataFrame:
    """Score other real reviews in the place of the agent's, one row a task and method.

    Tasks without a text of the real review are left out, as they are for agents.

    - random: a review by anybody, where there is one; - same user: the user's latest review before the task;
    - same product: the first review of the product by another user (only where there is one);
    - oracle: the real review, 1 by definition. All but the oracle come from train periods, and from the time
      before the first test task of the task's own user.
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


def all_references(benchmark: Benchmark, shops: Shops, tasks: Sequence[Task], seed: int) -> pd.DataFrame:
    """Score what random, popular, repeated and perfect answers reach: one row a task and kind of answer."""
    products = product_references(benchmark, shops.engine, tasks, seed)
    return pd.concat([products, review_references(benchmark, shops.embedder, tasks, seed)], ignore_index=True)


def with_references(results: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Put results, one row an episode, below the references and above the one that knows the answer."""
    named = references.assign(method="Reference: " + references["method"])
    named = named.rename(columns={"result_accuracy": "result_official"})
    is_oracle = references["method"] == "oracle"
    return sort_by_type(pd.concat([named[~is_oracle], results, named[is_oracle]], ignore_index=True))


def _train_periods(benchmark: Benchmark) -> list[tuple[int, str, Behavior]]:
    """(time, user, behaviour) of all train periods, earliest first, at the same time by user."""
    users = sorted(benchmark.behaviors)
    behaviors = [(b.timestamp, user, b) for user in users for b in benchmark.train_period(user)]
    return sorted(behaviors, key=lambda each: each[0])


def _purchases(benchmark: Benchmark) -> list[tuple[int, str]]:
    """(time, parent_asin) of all that recommenders learn from, earliest first, at the same time by id."""
    of_users = [(b.timestamp, b.parent_asin) for _, _, b in _train_periods(benchmark)]
    of_strangers = [purchase for past in benchmark.population.values() for purchase in past]
    return sorted(of_users + of_strangers)


def answer_by_input(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    recommender_of: Callable[[Task], ProductRecommender],
    embedder: Embedder,
    truth: Truth | None,
) -> pd.DataFrame:
    """Answer recommend tasks from parts of the user's past, one row a task and method.

    The right interest, and in it the products of the target's type (all of the interest where there is none),
    are known in the embedded world alone.

    Args:
        recommender_of: task -> a recommender that knows no future of its user's.
        truth: of the embedded world; None of other sources.

    Returns:
        ``method, task_id, user_id, type, result_accuracy, hit`` (the target among the ten) and
        ``bought_before`` (whether the target stands in the past).
    """
    tasks = [task for task in tasks if task.type == "recommend"]
    popular = popular_products(benchmark, {benchmark.first_task(task.user_id) for task in tasks})
    histories = {task.user_id: benchmark.history(task, "test") for task in tasks}
    vectors = embed_items(histories.values(), benchmark.products, embedder)
    instructions = embedder.encode([task.instruction for task in tasks])

    def latest(behaviors: Sequence[Behavior]) -> list[str]:
        # What was bought will be bought again: the ten last products, latest first.
        return list(dict.fromkeys(b.parent_asin for b in reversed(behaviors)))[:10]

    rows = []
    for task, instruction in zip(tasks, instructions, strict=True):
        history = histories[task.user_id]
        # Cosines are rounded, so that the last bits of an embedding cannot decide a tie.
        cosines = np.round([vectors[b.parent_asin] @ instruction for b in history], 6)
        closest = sorted(range(len(history)), key=lambda i: (-cosines[i], -i))[:10]
        # The cluster whose centre is nearest to the instruction (Orion, 4.1); none of too short a history.
        clusters = adaptive_clusters(history, benchmark.products, vectors)
        nearest = max(clusters, key=lambda c: round(float(c.center @ instruction), 6), default=None)
        parts = {
            WHOLE: history,
            CLOSEST: [history[i] for i in sorted(closest)],
            CLUSTER: [history[i] for i in nearest.members] if nearest else [],
        }
        lists = {POPULAR: popular[benchmark.first_task(task.user_id)], AGAIN: latest(history)}
        if truth:
            target, items = truth.items[task.target], truth.items
            interest = [b for b in history if items[b.parent_asin].domain.name == target.domain.name]
            same_type = [b for b in interest if items[b.parent_asin].type == target.type]
            parts |= {RIGHT: interest, RIGHT_TYPE: same_type or interest}
            lists[AGAIN_RIGHT] = latest(interest)

        recommender = recommender_of(task)
        lists |= {name: recommender.recommend([b.parent_asin for b in part]) for name, part in parts.items()}
        again = any(behavior.parent_asin == task.target for behavior in history)
        for method, ranking in lists.items():
            accuracy, hit = rank_accuracy(ranking, task.target), task.target in ranking
            rows.append((method, task.task_id, task.user_id, task.type, accuracy, float(hit), again))
    columns = ["method", "task_id", "user_id", "type", "result_accuracy", "hit", "bought_before"]
    return pd.DataFrame(rows, columns=columns)


def worth_of_inputs(answers: pd.DataFrame) -> pd.DataFrame:
    """Average :func:`answer_by_input` by method; HR@10 also by whether the target was bought before."""
    kinds = answers["bought_before"].map({True: "HR@10, bought before", False: "HR@10, new"})
    by_kind = answers.pivot_table(index="method", columns=kinds, values="hit", sort=False)
    means = answers.groupby("method", sort=False)[["result_accuracy", "hit"]].mean()
    means.columns = ["result accuracy", "HR@10"]
    return means.join(by_kind.sort_index(axis=1))


def input_differences(answers: pd.DataFrame) -> pd.DataFrame:
    """Test differences in HR@10 and result accuracy: the recommender minus rules, input minus input."""
    rows = [
        {"metric": name, "comparison": f"{a} - {b}", **paired_test(answers, metric, a, b)._asdict()}
        for metric, name in (("hit", "HR@10"), ("result_accuracy", "result accuracy"))
        for a, b in COMPARED
        if {a, b} <= set(answers["method"])
    ]
    columns = ["metric", "comparison", *PairedTest._fields]
    return name_left_out(pd.DataFrame(rows, columns=columns))
