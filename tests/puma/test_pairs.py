"""PUMA's preference pairs: what is sampled, how it is scored, which tasks make a pair."""

import json
from collections import Counter

import pytest

from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Reply
from pwagents.puma.agent import RECOMMEND, SEARCH, TaskMemory, call_message
from pwagents.puma.labels import remember
from pwagents.puma.pairs import Candidate, make_pairs, sample_parameters, score_parameters
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
def items(benchmark, start):
    memory = TaskMemory(benchmark.products, Embedder(), 0, len)
    return remember(benchmark.tasks["train"][:40], start, memory)


@pytest.fixture(scope="module")
def search(items):
    return next(item for item in items if item.function == SEARCH)


class Says(ChatModel):
    """Answers by the number of the sample."""

    name = "says"

    def __init__(self, *texts):
        self.texts, self.requests = texts, []

    def reply(self, request):
        self.requests.append(request)
        return Reply(text=self.texts[request.sample])


def written(arguments, function=SEARCH):
    return call_message(function, arguments)["content"]


def test_samples_are_distinct_well_formed_calls_of_the_tasks_function(search):
    model = Says(
        written({"query": "mug"}),
        "a mug",
        written({"query": "cup"}),
        written({"query": "mug"}),
        written({"review": "Fine."}, "add_product_review"),
        "<tool_call>{",
    )
    (found,) = sample_parameters(
        model, [search], PreferenceSettings(candidates=6, temperature=1.5, seed=7), max_tokens=128
    )
    assert found == [{"query": "mug"}, {"query": "cup"}]
    assert [request.sample for request in model.requests] == list(range(6))
    assert {json.dumps(dict(request.sampling)) for request in model.requests} == {
        json.dumps({"temperature": 1.5, "max_tokens": 128, "seed": 7})
    }


def test_scores_are_the_result_accuracy_of_the_real_environment(benchmark, start, items):
    title = {item.task.task_id: benchmark.products[item.task.target].title for item in items}
    sampled = []
    for item in items:
        if item.function == SEARCH:
            sampled.append(
                [{"query": title[item.task.task_id]}, {"query": "qqq"}, {"words": "no such argument"}]
            )
        elif item.function == RECOMMEND:
            sampled.append([{"product_sequence": []}])
        else:
            sampled.append([{"review": item.task.review.text}, {"review": "Blue."}])
    scored = score_parameters(items, sampled, start, Embedder(batch_size=16))
    for item, many in zip(items, scored, strict=True):
        if item.function == SEARCH:
            assert [c.score for c in many] == [1.0, 0.0]  # the malformed one is left out
        elif item.function == RECOMMEND:
            first_ten = sorted(benchmark.products)[:10]
            hit = item.task.target in first_ten
            assert (many[0].score > 0) == hit
        else:
            assert many[0].score == pytest.approx(1.0, abs=1e-4) and many[1].score < 0.9


def test_the_best_and_the_worst_make_a_pair_and_equal_ones_are_counted(search):
    def scored(*scores):
        return [Candidate({"query": str(i)}, score) for i, score in enumerate(scores)]

    items = [search] * 4
    pairs, counts = make_pairs(items, [scored(0.2, 0.9, 0.1, 0.9, 0.1), scored(0.5, 0.5), scored(0.7), []])
    assert counts == Counter({("search", "pair"): 1, ("search", "equal"): 2, ("search", "no call"): 1})
    (pair,) = pairs
    assert (pair.best, pair.worst) == (Candidate({"query": "1"}, 0.9), Candidate({"query": "2"}, 0.1))


def test_a_pair_is_two_answers_to_the_same_input(search):
    (pair,), _ = make_pairs([search], [[Candidate({"query": "a"}, 1.0), Candidate({"query": "b"}, 0.0)]])
    best, worst = pair.conversation(pair.best), pair.conversation(pair.worst)
    assert best[:-1] == worst[:-1] == search.messages
    assert '"a"' in best[-1]["content"] and '"b"' in worst[-1]["content"]
