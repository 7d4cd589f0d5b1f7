"""PUMA's pseudo-labels: what they say, and that none of them, nor any input, tells the target."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pwagents.data.amazon import load_amazon
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Reply
from pwagents.puma.agent import RECOMMEND, SEARCH, TaskMemory
from pwagents.puma.labels import (
    Example,
    leak_free_labels,
    offline_queries,
    remember,
)
from pwagents.web.environment import BeliefState, WebEnvironment
from pwagents.web.functions import Shop


@pytest.fixture(scope="module", params=["synthetic", "amazon"])
def source(request, project_root):
    """A benchmark of each source; raw Amazon files are not part of the repository."""
    if request.param == "synthetic":
        return make_world(WorldConfig(n_users=14, n_products=150), seed=0).benchmark
    folder = Path(project_root).parent / "shared" / "data" / "amazon_reviews_2023"
    if not folder.is_dir():
        pytest.skip("no raw Amazon Reviews 2023 files here")
    return load_amazon(folder, n_users=10, min_behaviors=5, max_products=60)


class Hashed(Embedder):
    """Stands in for MiniLM, which tests of labels need not wait for: words in common, nothing else."""

    def encode(self, texts, show_progress=False):
        import numpy as np

        rows = np.zeros((len(texts), 384), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                row[sum(map(ord, word)) % 384] += 1
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)


@pytest.fixture(scope="module")
def items(source):
    """All train tasks of a source with their memory."""
    shop = Shop(source, search_engine=None, recommender=None, embedder=None)
    memory = TaskMemory(source.products, Hashed(), 256, lambda text: len(text.split()))

    def start(task):
        environment = WebEnvironment(shop)
        environment.reset(task, source.history(task, "train"))
        return environment

    return remember(source.tasks["train"], start, memory)


def told(example: Example) -> str:
    """All that is trained on, as one text."""
    return "\n".join(str(message) for message in example.conversation)


def bought_before(example: Example, source) -> bool:
    """Whether the target, or a product of its title, stands in the past."""
    target = source.products[example.item.task.target]
    past = [source.products[b.parent_asin] for b in example.item.state.history]
    return any(p.parent_asin == target.parent_asin or p.title == target.title for p in past)


def test_no_label_and_no_input_tells_the_target_unless_the_past_does(source, items):
    examples, counts = leak_free_labels(items, source.products, offline_queries)
    assert sum(counts.values()) == len(items) and examples
    again = [e for e in examples if e.item.task.type != "review" and bought_before(e, source)]
    assert len(again) == sum(n for (_, outcome), n in counts.items() if outcome == "labelled, bought before")
    for example in examples:
        task = example.item.task
        target = source.products[task.target]
        if task.type == "review":  # the product is given, the review is the answer
            given = "\n".join(str(message["content"]) for message in example.item.messages)
            assert task.review.text.strip() not in given
        elif example not in again:
            assert target.parent_asin not in told(example)
            assert target.title.lower() not in told(example).lower()


def test_what_may_be_learned_lies_before_the_users_first_train_task(source, items):
    for item in items:
        first = source.first_task(item.task.user_id, "train")
        assert all(entry["timestamp"] < first for entry in item.entries)


def test_labels_do_not_depend_on_the_target(source, items):
    """Another product in the place of the target: the same labels, for as far as they are given at all."""
    one, other = sorted(source.products)[:2]
    swapped = [
        replace(item, task=item.task.model_copy(update={"target": one if item.task.target != one else other}))
        for item in items
        if item.task.type != "review"
    ]
    before = {
        e.item.task.task_id: e.arguments for e in leak_free_labels(items, source.products, offline_queries)[0]
    }
    after = {
        e.item.task.task_id: e.arguments
        for e in leak_free_labels(swapped, source.products, offline_queries)[0]
    }
    both = before.keys() & after.keys()
    assert both and all(before[task] == after[task] for task in both)


def test_a_review_is_labelled_with_what_the_user_wrote(source, items):
    examples, _ = leak_free_labels(items, source.products, offline_queries)
    reviews = [e for e in examples if e.item.task.type == "review"]
    assert reviews
    assert all(e.arguments == {"review": e.item.task.review.text.strip()} for e in reviews)


def entry(asin, title, category="Mugs", store="Kestrel"):
    return {"parent_asin": asin, "title": title, "category": category, "price": 5.0, "store": store}


def state(instruction):
    return BeliefState("U1", instruction, instruction, None, ())


def test_a_query_is_the_word_that_recurs_in_the_memory_and_the_instruction():
    entries = [entry("A", "red oak mug"), entry("B", "red steel mug"), entry("C", "red oak cup")]
    entries.append(entry("D", "blue oak mug", store="Juniper"))
    asked = state("Could you find me a mug?")
    assert offline_queries([(asked, entries)]) == ["red Could you find me a mug?"]
    assert offline_queries([(asked, entries[:1])]) == ["Could you find me a mug?"]
    strange = [entry(f"E{i}", "pan", store="Otter") for i in range(6)]
    assert offline_queries([(asked, entries + strange)]) == ["pan Could you find me a mug?"]


def test_the_words_of_a_query_stand_in_the_input_as_they_are_written(source, items):
    examples, _ = leak_free_labels(items, source.products, offline_queries)
    for example in examples:
        if example.item.function == SEARCH and example.item.state.instruction != example.arguments["query"]:
            given = re.findall(r"\w+", example.item.messages[1]["content"])
            assert set(re.findall(r"\w+", example.arguments["query"])) <= set(given)


def test_recommendations_are_all_that_is_remembered_called_by_their_numbers(source, items):
    item = next(item for item in items if item.function == RECOMMEND)
    entries = tuple(entry(f"A{i}", "thing") for i in (7, 3, 5))
    (example,), _ = leak_free_labels([replace(item, entries=entries)], source.products, offline_queries)
    assert example.arguments == {"product_sequence": ["A7", "A3", "A5"]}
    assert '"product_sequence": ["1", "2", "3"]' in example.conversation[-1]["content"]
    assert "1. thing (Mugs)\n2. thing (Mugs)" in example.conversation[1]["content"]


def test_nothing_remembered_is_nothing_to_recommend(source, items):
    item = next(item for item in items if item.function == RECOMMEND)
    examples, counts = leak_free_labels([replace(item, entries=())], source.products, offline_queries)
    assert examples == [] and counts == Counter({("recommend", "nothing to say"): 1})


class Says(ChatModel):
    name = "says"

    def __init__(self, *replies):
        self.said, self.requests = list(replies), []

    def reply(self, request):
        self.requests.append(request)
        return Reply(text=self.said[len(self.requests) - 1])


def test_a_language_model_writes_queries_from_instruction_and_memory_alone():
    from pwagents.puma.labels import LlmQueryWriter

    model = Says('"red mug"\n', "")
    entries = [entry("A", "red oak mug")]
    queries = LlmQueryWriter(model)([(state("A mug!"), entries), (state("Find a lamp."), ())])
    assert queries == ["red mug", "Find a lamp."]  # nothing said: by the rule
    asked = model.requests[0].messages[1]["content"]
    assert "A mug!" in asked and "<data>\nred oak mug" in asked


def test_a_query_that_gives_the_target_away_is_no_label(source, items):
    searches = [item for item in items if item.function == SEARCH]

    def cheat(remembered):
        return [source.products[item.task.target].title for item in searches]

    examples, counts = leak_free_labels(searches, source.products, cheat)
    assert all(bought_before(example, source) for example in examples)
    assert counts["search", "target in the label"] > 0 == counts["search", "labelled"]
