"""Memory strategies: which behaviours, in which order, with which fields, and from which texts."""

import numpy as np
import pytest

from pwagents.agents.memory import FIELDS_OF, Memory
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.web.environment import BeliefState


class LetterCounts:
    """Embeds a text as its letters' counts, and notes every text."""

    def __init__(self):
        self.texts = []

    def encode(self, texts):
        self.texts += texts
        counts = [[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts]
        return np.array(counts, float) / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def benchmark():
    return make_world(WorldConfig(n_users=10, n_products=160, history=(12, 30)), seed=0).benchmark


@pytest.fixture
def state(benchmark):
    task = benchmark.tasks["test"][0]
    return BeliefState(task.user_id, task.instruction, "", None, benchmark.history(task, "test"))


@pytest.fixture
def recall(benchmark, state):
    """``recall(strategy, ...)``: when each recalled behaviour was."""

    def run(strategy, embedder=None, function="search_product_by_query", **options):
        entries = Memory(strategy, benchmark.products, embedder, **options).recall(state, function)
        return [entry.get("timestamp", entry) for entry in entries]

    return run


def test_none_remembers_nothing_and_last_is_latest_first(recall, state):
    assert recall("none") == []
    assert recall("last", length=3) == [b.timestamp for b in state.history[:-4:-1]]


def test_random_is_a_seeded_sample(recall, state):
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
def test_task_specific_keeps_only_the_fields_of_the_function(recall, state, function):
    entries = recall("task_specific", LetterCounts(), function)
    assert entries and all(tuple(entry) == FIELDS_OF[function] for entry in entries)
    if function == "get_recommendations_by_history":
        latest_first = [b.parent_asin for b in reversed(state.history)]
        assert [entry["parent_asin"] for entry in entries] == latest_first


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="memory strategy is 'relevent'; expected one of none, random"):
        Memory("relevent", {})
    with pytest.raises(ValueError, match="needs an embedder"):
        Memory("relevant", {})
