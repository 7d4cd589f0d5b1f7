"""Memory strategies: which behaviours, in which order, with which fields, and from which texts."""

import numpy as np
import pytest

from pwagents.agents.memory import FIELDS_OF, Memory
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import DIMENSION, Embedder
from pwagents.web.environment import BeliefState


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
    class ByHand:
        def encode(self, texts):
            cosines = [0.1, 0.9, 0.5, 0.9] + [0.0] * (len(texts) - 5)  # the first text is the instruction
            return np.array([[1.0, 0.0], *([c, (1 - c * c) ** 0.5] for c in cosines)])

    memory = Memory("relevant", benchmark.products, ByHand(), length=4)
    entries = memory.recall(state, "search_product_by_query")
    assert [e["timestamp"] for e in entries] == [state.history[i].timestamp for i in (3, 1, 2, 0)]


def test_each_behaviour_is_embedded_once_however_many_tasks_a_user_has(benchmark, monkeypatch):
    embedder, seen = Embedder(), []

    class Model:
        def encode(self, texts, **_):
            seen.extend(texts)
            return np.eye(len(texts), DIMENSION, dtype=np.float32)

    monkeypatch.setattr(embedder, "_load_model", Model)
    memory = Memory("relevant", benchmark.products, embedder)
    tasks = [t for t in benchmark.tasks["test"] if t.user_id == benchmark.tasks["test"][0].user_id]
    assert len(tasks) > 1
    for task in tasks:
        history = benchmark.history(task, "test")
        memory.recall(BeliefState(task.user_id, task.instruction, "", None, history), "add_product_review")
    assert len(seen) == len(set(seen))


def test_a_misspelt_strategy_is_refused(benchmark):
    with pytest.raises(ValueError, match="memory strategy is 'relevent'; expected one of none, random"):
        Memory("relevent", benchmark.products)


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
