"""The plain agent: the right function, and parameters from instruction and memory alone."""

import pytest

from pwagents.agents.memory import Memory
from pwagents.agents.plain import FunctionClassifier, PlainAgent, plain_arguments
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.embedding import Embedder
from pwagents.schema import FUNCTION_OF, Action, Observation, Step
from pwagents.web.environment import BeliefState


@pytest.fixture(scope="module")
def benchmark():
    return make_world(WorldConfig(n_users=30, n_products=240), seed=0).benchmark


@pytest.fixture(scope="module")
def classifier(benchmark):
    return FunctionClassifier(benchmark.tasks["train"])


def state_of(benchmark, task, session=()):
    product = benchmark.products[task.target] if task.type == "review" else None
    return BeliefState(task.user_id, task.instruction, "", product, benchmark.history(task, "test"), session)


def test_classifier_finds_the_function_of_held_out_instructions(benchmark, classifier):
    tasks = benchmark.tasks["test"]
    right = [classifier(task.instruction) == FUNCTION_OF[task.type] for task in tasks]
    assert sum(right) / len(right) > 0.95


def test_calls_are_well_formed_and_depend_on_memory(benchmark, classifier):
    without = PlainAgent(classifier, Memory("none", benchmark.products))
    latest = PlainAgent(classifier, Memory("last", benchmark.products))
    for task in benchmark.tasks["test"][:30]:
        state = state_of(benchmark, task)
        bare, informed = without(state), latest(state)
        assert bare.name == informed.name == classifier(task.instruction)
        if bare.name == "search_product_by_query":
            assert bare.arguments["query"] == task.instruction
            assert informed.arguments["query"].startswith(task.instruction)
        elif bare.name == "get_recommendations_by_history":
            assert bare.arguments["product_sequence"] == []
            assert informed.arguments["product_sequence"] == [b.parent_asin for b in state.history[-10:]]
        else:
            assert informed.arguments["review"] == state.history[-1].review.text


@pytest.mark.parametrize("strategy", ["random", "last", "task_specific"])
def test_recommendations_are_asked_for_oldest_first(benchmark, classifier, strategy):
    agent = PlainAgent(classifier, Memory(strategy, benchmark.products, Embedder()))
    agent.identify = lambda instruction: "get_recommendations_by_history"
    task = max(benchmark.tasks["test"], key=lambda t: len(benchmark.history(t, "test")))
    history = benchmark.history(task, "test")
    sequence = agent(state_of(benchmark, task)).arguments["product_sequence"]
    rest = iter([b.parent_asin for b in history])
    assert len(sequence) == 10 and all(asin in rest for asin in sequence)  # a subsequence of the history


def test_query_adds_the_words_that_recur_in_memory():
    entries = [
        {"title": "Kestrel navy bag", "store": "Kestrel"},
        {"title": "Kestrel navy belt", "store": "Kestrel"},
        {"title": "Ember green bag", "store": "Ember"},
    ]
    arguments = plain_arguments("search_product_by_query", "Need a new bag.", entries)
    assert arguments == {"query": "Need a new bag. kestrel navy"}


def test_stops_after_its_call(benchmark, classifier):
    step = Step(action=Action(name="search_product_by_query"), observation=Observation(text=""))
    agent = PlainAgent(classifier, Memory("none", benchmark.products))
    assert agent(state_of(benchmark, benchmark.tasks["test"][0], (step,))) == Action(name="stop")


def test_where_all_train_tasks_are_reviews_everything_is_one(benchmark):
    reviews = [task for task in benchmark.tasks["train"] if task.type == "review"]
    assert FunctionClassifier(reviews)("Find me a red stool.") == FUNCTION_OF["review"]
