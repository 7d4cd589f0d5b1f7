"""PUMA's preference pairs: how candidates are scored, and which two of them make a pair."""

import pytest

from pwagents.embedding import Embedder
from pwagents.puma.labels import begin_tasks
from pwagents.puma.memory import RECOMMEND, SEARCH, Recall
from pwagents.puma.pairs import choose_pair, count_pairs, score_texts
from pwagents.puma.settings import Method
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine


@pytest.fixture(scope="module")
def start(benchmark):
    class Shelf:
        def recommend(self, product_sequence, k=10):
            return sorted(benchmark.products)[:k]

    shop = Shop(benchmark, build_search_engine(benchmark.products), Shelf(), Embedder(batch_size=16))

    def begin(task):
        environment = WebEnvironment(shop)
        environment.reset(task, benchmark.history(task, "train"))
        return environment

    return begin


@pytest.fixture(scope="module")
def begun(benchmark, start):
    return begin_tasks(benchmark.tasks["train"][:40], start)


def test_scores_are_the_result_accuracy_of_the_real_environment(benchmark, start, begun):
    texts = []
    for each in begun:
        title = benchmark.products[each.task.target].title
        others = {SEARCH: [title, "qqq", title, ""], RECOMMEND: ["no id"]}
        texts.append(others.get(each.function, [each.task.review.text, "Blue."]))
    recalls = [Recall("")] * len(begun)
    scored = score_texts(begun, recalls, texts, Method(), "leak_free", start, Embedder(batch_size=16))
    for each, scores in zip(begun, scored, strict=True):
        if each.function == SEARCH:
            assert list(scores.values()) == [
                1.0,
                0.0,
                0.0,
            ]  # equal texts once, a malformed one is worth nothing
        elif each.function == RECOMMEND:
            assert (scores["no id"] > 0) == (each.task.target in sorted(benchmark.products)[:10])
        else:
            assert scores[each.task.review.text] == pytest.approx(1.0, abs=1e-4) and scores["Blue."] < 0.9


@pytest.mark.parametrize(
    ("scores", "chosen", "rejected", "outcome"),
    [
        ({"a": 0.2, "b": 0.9, "c": 0.1, "d": 0.9, "e": 0.1}, "b", "e", "differs"),
        ({"a": 0.5, "b": 0.5, "c": 0.5}, "a", "c", "tie"),
        ({"a": 0.7}, "a", "a", "one text"),
    ],
)
def test_every_task_pairs_the_first_of_the_best_with_the_last_of_the_worst(
    begun, scores, chosen, rejected, outcome
):
    pair = choose_pair(begun[0], scores)
    assert (pair.chosen, pair.rejected, pair.outcome) == (chosen, rejected, outcome)
    assert (pair.best, pair.worst) == (max(scores.values()), min(scores.values()))
    assert count_pairs([pair, pair]) == {(begun[0].task.type, outcome): 2}
