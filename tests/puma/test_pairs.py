"""PUMA's preference pairs: how candidates are scored, and which two of them make a pair."""

import pytest

from pwagents.embedding import Embedder
from pwagents.puma.agent import call_of
from pwagents.puma.labels import begin_tasks
from pwagents.puma.memory import RECOMMEND, SEARCH
from pwagents.puma.pairs import carry_out, choose_pair, part
from pwagents.puma.settings import PreferenceSettings
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


def test_a_call_is_worth_the_result_accuracy_of_the_real_environment(benchmark, start, begun):
    for each in begun:
        if each.function == SEARCH:
            title = benchmark.products[each.task.target].title
            found = [carry_out(each, call_of(SEARCH, query), start) for query in (title, "qqq", "")]
            assert found == [1.0, 0.0, 0.0]  # a malformed call is worth nothing
        elif each.function == RECOMMEND:
            hit = each.task.target in sorted(benchmark.products)[:10]
            assert (carry_out(each, call_of(RECOMMEND, ["A"]), start) > 0) == hit
        else:
            own = carry_out(each, call_of(each.function, each.task.review.text), start)
            assert own == pytest.approx(1.0, abs=1e-4)
            assert carry_out(each, call_of(each.function, "Blue."), start) < 0.9


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


def test_all_settings_are_judged_by_the_same_held_out_pairs_that_differ(begun):
    texts = [{"a": 1.0, "b": 0.0}, {"a": 0.5, "b": 0.5}] * 4
    pairs = [choose_pair(each, scores) for each, scores in zip(begun[:8], texts, strict=True)]
    every, judges = part(pairs, PreferenceSettings(held_out=0.5))
    differing, same = part(pairs, PreferenceSettings(held_out=0.5, pairs="differing"))
    assert every == pairs[:4] and differing == pairs[:4:2] and judges == same == pairs[4::2]
    assert part(pairs, PreferenceSettings()) == (pairs, pairs[::2])  # none is held out
