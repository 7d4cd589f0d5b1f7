"""The offline policy: it knows the belief state, what the memory recalls and what is allowed, and no more."""

import pytest

from pwagents.agents.conversation import Prompt
from pwagents.agents.memory import Memory
from pwagents.agents.methods import METHODS, ParameterAgent
from pwagents.agents.plain import OfflinePolicy, PlainAgent
from pwagents.evaluation.metrics import attempts
from pwagents.schema import FUNCTION_OF, Action, Observation, Step
from pwagents.web.environment import BeliefState

TALK = (*FUNCTION_OF.values(), "respond", "stop")
ENTRIES = [{"title": "Ridgeway red belt", "store": "Ridgeway"}, {"title": "Ridgeway red hat", "store": None}]


@pytest.fixture
def searcher():
    return OfflinePolicy(lambda instruction: "search_product_by_query")


def state(instruction="Need a mug.", *steps):
    return BeliefState("U", instruction, "", None, (), tuple(steps))


def said(question, answer, error=""):
    action = Action(name="respond", arguments={"content": question})
    return Step(action=action, observation=Observation(text=answer), error=error)


def test_it_asks_acts_shows_and_tries_again_as_long_as_it_learns(searcher):
    steps = []

    def acts(answer=""):
        action = searcher.act(state("Need a mug.", *steps), ENTRIES, TALK)
        steps.append(Step(action=action, observation=Observation(text=answer)))
        return action.arguments

    assert acts("Oh, I'd prefer Kestrel please, in navy!") == {"content": "Which brand would you like?"}
    assert acts() == {"query": "Need a mug. kestrel navy red ridgeway"}
    assert acts("No, not that. Best in oak.") == {"content": "Is this what you had in mind?"}
    assert acts() == {"query": "Need a mug. kestrel navy oak red ridgeway"}
    assert acts("Yes, that is right, you can stop here.") == {"content": "Is this what you had in mind?"}
    assert searcher.act(state("Need a mug.", *steps), ENTRIES, TALK) == Action(name="stop")


def test_it_gives_up_after_three_tries(searcher):
    steps = []
    while len(steps) < 10:
        action = searcher.act(state("Need a mug.", *steps), ENTRIES, TALK)
        steps.append(
            Step(action=action, observation=Observation(text=f"No. Rather word{'abcdefghij'[len(steps)]}."))
        )
        if action.name == "stop":
            break
    assert [step.action.name[:7] for step in steps] == [
        "respond", "search_", "respond", "search_", "respond", "search_", "stop",
    ]  # fmt: skip


def test_what_the_user_speaks_of_comes_first_from_memory(policy):
    entries = [{"text": "A fine hat.", "rating": 5}, {"text": "The handle broke.", "rating": 1}]
    talked = said("What should I say?", "Do bring up the handle.")
    action = policy.act(state("Write a review", talked), entries, ("add_product_review", "respond", "stop"))
    assert action.arguments == {"review": "The handle broke."}


@pytest.mark.parametrize(
    ("instruction", "asks"),
    [
        ("Need a mug from Ridgeway.", "Which color would you like?"),
        ("A mug of any brand, the color does not matter", "Which material would you like?"),
        ("Brand, color and material do not matter", None),
    ],
)
def test_it_asks_only_for_what_the_instruction_leaves_open(searcher, instruction, asks):
    action = searcher.act(state(instruction), ENTRIES, TALK)
    assert action.arguments.get("content") == asks


@pytest.mark.parametrize("answer", ["Nobody answers.", "No idea, anything is fine.", "I don't care."])
def test_an_answer_that_says_nothing_adds_nothing(searcher, answer):
    action = searcher.act(state("Need a mug.", said("Which brand?", answer)), [], TALK)
    assert action.arguments == {"query": "Need a mug."}


def test_where_talking_is_not_allowed_it_is_the_plain_agent(
    benchmark, classifier, policy, embedder, state_of
):
    for strategy in ("none", "last", "random", "relevant"):
        memory = Memory(strategy, benchmark.products, embedder)
        plain = PlainAgent(classifier, memory)
        for task in benchmark.tasks["test"][:30]:
            at_first = state_of(task)
            action = policy.act(at_first, memory.recall(at_first, ""), tuple(FUNCTION_OF.values()))
            assert action == plain(at_first)


def test_of_one_allowed_function_it_takes_that(policy):
    action = policy.act(state(), [], ("add_product_review",))
    assert action == Action(name="add_product_review", arguments={"review": "Need a mug."})


@pytest.mark.parametrize("track", ["single_turn", "multi_turn"])
def test_neither_a_methods_name_nor_its_prompt_changes_what_it_does(
    setup_of, play, benchmark, policy, monkeypatch, track
):
    """Every method under another name, with other words everywhere, plays the same episodes."""
    methods = [method for method in METHODS.values() if track in method.rules]
    tasks = benchmark.tasks["test"][:6]

    def episodes(methods):
        agents = [method(setup_of(policy, track)) for method in methods]
        return [play(agent, task, track).trajectory for agent in agents for task in tasks]

    before = episodes(methods)
    other_words = Prompt("OTHER", "Other words.")
    for method in {*methods, ParameterAgent}:
        monkeypatch.setattr(method, "rules", {track: other_words})
        monkeypatch.setattr(method, "advice", "Do something else.", raising=False)
        monkeypatch.setattr(method, "entry_form", other_words, raising=False)
    assert episodes([type("Renamed", (method,), {}) for method in methods]) == before


def test_methods_differ_by_their_memory(setup_of, play, benchmark, policy):
    def queries(name):
        agent = METHODS[name](setup_of(policy))
        trajectories = [play(agent, task).trajectory for task in benchmark.tasks["test"][:12]]
        return [step.action.arguments for trajectory in trajectories for step in trajectory.steps]

    assert queries("No memory") == queries("Chain of thought") == queries("ChatShop")
    assert queries("No memory") != queries("Relevant memory") != queries("PUMA (prompted)")


def test_asking_pays(setup_of, play, benchmark, policy):
    """In a shop whose user tells the brand, talking finds more than the same method that may not."""
    tasks = [task for task in benchmark.tasks["test"] if task.type == "search"]

    def accuracy(track):
        agent = METHODS["No memory"](setup_of(policy, track))
        return sum(sum(attempts(play(agent, task, track).trajectory)) for task in tasks) / len(tasks)

    assert accuracy("multi_turn") > accuracy("single_turn") + 0.05
