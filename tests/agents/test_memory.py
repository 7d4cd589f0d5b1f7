"""Memory strategies: which behaviours, in which order, with which fields, and from which texts."""

import numpy as np
import pytest

from pwagents.agents.memory import FIELDS_OF, Memory, behavior_text
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.web.episode import BeliefState


class CountingEmbedder:
    """Embeds a text as its letters' counts, and notes every call."""

    def __init__(self):
        self.calls = []

    def encode(self, texts, show_progress=False):
        self.calls.append(list(texts))
        counts = np.array(
            [[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], np.float32
        )
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def benchmark():
    return make_world(WorldConfig(n_users=10, n_products=160, history=(12, 30)), seed=0).benchmark


@pytest.fixture
def state(benchmark):
    task = benchmark.tasks["test"][0]
    return BeliefState(task.user_id, task.instruction, "", None, benchmark.history(task, "test"))


def ids(entries):
    return [entry["parent_asin"] for entry in entries]


def test_none_remembers_nothing(benchmark, state):
    assert Memory("none", benchmark.products).recall(state, "search_product_by_query") == []


def test_last_is_latest_first_and_cut(benchmark, state):
    entries = Memory("last", benchmark.products, length=3).recall(state, "search_product_by_query")
    assert ids(entries) == [b.parent_asin for b in state.history[:-4:-1]]


def test_random_is_a_seeded_sample(benchmark, state):
    def sample(seed):
        memory = Memory("random", benchmark.products, length=5, seed=seed)
        return [e["timestamp"] for e in memory.recall(state, "search_product_by_query")]

    assert sample(0) == sample(0) != sample(1)
    assert len(set(sample(0))) == 5 and set(sample(0)) <= {b.timestamp for b in state.history}


def test_relevant_is_by_cosine_ties_to_the_later(benchmark, state):
    embedder = CountingEmbedder()
    entries = Memory("relevant", benchmark.products, embedder, length=4).recall(
        state, "search_product_by_query"
    )
    texts = [behavior_text(b, benchmark.products[b.parent_asin]) for b in state.history]
    vectors = embedder.encode([state.instruction, *texts])
    best = sorted(range(len(texts)), key=lambda i: (-round(float(vectors[i + 1] @ vectors[0]), 6), -i))[:4]
    assert [e["timestamp"] for e in entries] == [state.history[i].timestamp for i in best]


@pytest.mark.parametrize("function", FIELDS_OF)
def test_task_specific_keeps_only_the_fields_of_the_function(benchmark, state, function):
    entries = Memory("task_specific", benchmark.products, CountingEmbedder()).recall(state, function)
    assert entries and all(tuple(entry) == FIELDS_OF[function] for entry in entries)


def test_task_specific_memory_for_recommendations_is_latest_first(benchmark, state):
    memory = Memory("task_specific", benchmark.products, CountingEmbedder())
    recalled = ids(memory.recall(state, "get_recommendations_by_history"))
    assert recalled == [b.parent_asin for b in reversed(state.history)]


def test_empty_history_embeds_nothing(benchmark, state):
    embedder = CountingEmbedder()
    empty = BeliefState("U", "anything", "", None, ())
    assert Memory("relevant", benchmark.products, embedder).recall(empty, "search_product_by_query") == []
    assert embedder.calls == []


def test_relevant_memory_without_embedder_is_refused(benchmark):
    with pytest.raises(ValueError, match="needs an embedder"):
        Memory("relevant", benchmark.products)
