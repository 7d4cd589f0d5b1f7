"""Memory strategies: which behaviours, in which order, with which fields, and from which texts."""

import numpy as np
import pytest

from pwagents.agents.memory import FIELDS_OF, Memory
from pwagents.shop.environment import BeliefState


@pytest.fixture
def state(benchmark):
    task = max(benchmark.tasks["test"], key=lambda task: len(benchmark.history(task, "test")))
    return BeliefState(task.user_id, task.instruction, "", None, benchmark.history(task, "test"))


@pytest.fixture
def recall(benchmark, state):
    """``recall(strategy, ...)``: when each recalled behaviour was."""

    def run(strategy, embedder=None, function="search_product_by_query", **options):
        entries = Memory(strategy, benchmark.products, embedder, **options).recall(state, function)
        return [entry.get("timestamp", entry) for entry in entries]

    return run


def test_none_remembers_nothing_last_is_latest_first_and_random_a_seeded_sample(recall, state):
    assert recall("none") == []
    assert recall("last", length=3) == [b.timestamp for b in state.history[:-4:-1]]
    sample = recall("random", length=5)
    assert sample == recall("random", length=5) != recall("random", length=5, seed=1)
    assert len(set(sample)) == 5 and set(sample) <= {b.timestamp for b in state.history}


def test_relevant_is_by_cosine_ties_to_the_later(recall, state):
    class ByHand:
        def encode(self, texts):
            cosines = [0.1, 0.9, 0.5, 0.9] + [0.0] * (len(texts) - 5)  # the first text is the instruction
            return np.array([[1.0, 0.0], *([c, (1 - c * c) ** 0.5] for c in cosines)])

    assert recall("relevant", ByHand(), length=4) == [state.history[i].timestamp for i in (3, 1, 2, 0)]


@pytest.mark.parametrize("function", FIELDS_OF)
def test_task_specific_keeps_only_the_fields_of_the_function(recall, state, embedder, function):
    entries = recall("task_specific", embedder, function)
    assert entries and all(tuple(entry) == FIELDS_OF[function] for entry in entries)
    if function == "get_recommendations_by_history":
        latest_first = iter([b.parent_asin for b in reversed(state.history)])
        assert all(entry["parent_asin"] in latest_first for entry in entries)
