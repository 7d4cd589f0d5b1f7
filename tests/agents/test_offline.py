"""Agents without a language model: what they take from instruction, memory and answers, and no more."""

import pytest

from pwagents.agents.memory import Memory
from pwagents.agents.methods import METHODS, ParameterAgent
from pwagents.agents.offline import FunctionClassifier, OfflinePolicy, RuleAgent
from pwagents.schema import FUNCTION_OF, Action, Observation, Step
from pwagents.shop.environment import BeliefState

TALK = (*FUNCTION_OF.values(), "respond", "stop")
ENTRIES = [{"title": "Ridgeway red belt", "store": "Ridgeway"}, {"title": "Ridgeway red hat", "store": None}]


def test_classifier_finds_the_function_of_held_out_instructions(benchmark, classifier):
    tasks = benchmark.tasks["test"]
    right = [classifier(task.instruction) == FUNCTION_OF[task.type] for task in tasks]
    assert sum(right) / len(right) > 0.95
    reviews = [task for task in benchmark.tasks["train"] if task.type == "review"]
    assert FunctionClassifier(reviews)("Find me a red stool.") == FUNCTION_OF["review"]


@pytest.mark.parametrize("strategy", ["random", "task_specific"])
def test_recommendations_are_asked_for_oldest_first(benchmark, state_of, embedder, strategy):
    recommend = "get_recommendations_by_history"
    agent = RuleAgent(lambda instruction: recommend, Memory(strategy, benchmark.products, embedder))
    state = state_of(max(benchmark.tasks["test"], key=lambda t: len(benchmark.history(t, "test"))))
    sequence = agent(state).arguments["product_sequence"]
    rest = iter([b.parent_asin for b in state.history])
    assert len(sequence) == 10 and all(asin in rest for asin in sequence)  # a subsequence of the history


@pytest.fixture
def searcher():
    return OfflinePolicy(lambda instruction: "search_product_by_query")


def state(instruction="Need a mug.", *steps):
    return BeliefState("U", instruction, "", None, (), tuple(steps))


def test_it_asks_acts_shows_and_tries_again_as_long_as_it_learns(searcher):
    steps = []

    def acts(answer=""):
        action = searcher.act(state("Need a mug.", *steps), ENTRIES, TALK)
        steps.append(Step(action=action, observation=Observation(text=answer)))
        return action.arguments

    assert acts("Oh, I'd prefer Kestrel please, in navy!") == {"content": "Which brand would you like?"}
    assert acts("1. A walnut chair") == {"query": "Need a mug. kestrel navy red ridgeway"}
    assert acts("No, not that. Best in oak.") == {"content": "Is this what you had in mind?"}
    assert acts() == {"query": "Need a mug. kestrel navy oak red ridgeway"}
    assert acts("Yes, that is right, you can stop here.") == {"content": "Is this what you had in mind?"}
    assert searcher.act(state("Need a mug.", *steps), ENTRIES, TALK) == Action(name="stop")


@pytest.mark.parametrize("strategy", ["none", "last", "random", "relevant"])
def test_where_talking_is_not_allowed_it_is_the_plain_agent(
    benchmark, classifier, policy, embedder, state_of, strategy
):
    memory = Memory(strategy, benchmark.products, embedder)
    for at_first in map(state_of, benchmark.tasks["test"][:30]):
        action = policy.act(at_first, memory.recall(at_first, ""), tuple(FUNCTION_OF.values()))
        assert action == RuleAgent(classifier, memory)(at_first)
    only = policy.act(state(), [], ("add_product_review",))
    assert only == Action(name="add_product_review", arguments={"review": "Need a mug."})


@pytest.mark.parametrize("track", ["single_turn", "multi_turn"])
def test_neither_a_methods_name_nor_its_prompt_changes_what_it_does(
    setup_of, play, benchmark, policy, monkeypatch, track
):
    """Every method under another name, with other words everywhere, plays the same episodes."""
    methods = [method for method in METHODS.values() if track in method.rules]
    tasks = benchmark.tasks["test"][:6]

    def episodes(methods):
        agents = [method(setup_of(policy, track)) for method in methods]
        return [play(agent, task, track) for agent in agents for task in tasks]

    before = episodes(methods)
    other_words = "Other words."
    for method in {*methods, ParameterAgent}:
        monkeypatch.setattr(method, "rules", {track: other_words})
        monkeypatch.setattr(method, "advice", "Do something else.", raising=False)
        monkeypatch.setattr(method, "entry_form", other_words, raising=False)
    assert episodes([type("Renamed", (method,), {}) for method in methods]) == before
