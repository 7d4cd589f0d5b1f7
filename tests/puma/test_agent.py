"""PUMA's agent: what each step is told under each protocol, and what is made of what it writes."""

from dataclasses import replace
from pathlib import Path

import pytest

from pwagents.puma import agent as module
from pwagents.puma.agent import PumaAgent, completion_of, read_function, read_parameter
from pwagents.puma.memory import RECOMMEND, REVIEW, SEARCH, Recall
from pwagents.puma.prompts import load_prompts
from pwagents.puma.settings import Method

from .purchases import make_benchmark
from .standins import begun_of, memory_of

ASINS, NUMBERS = Method(), Method(ids="number")
RECALL = Recall("", ("A", "B", "C"))


@pytest.fixture(scope="module")
def memory():
    return memory_of(make_benchmark().products)


@pytest.fixture(scope="module")
def begun():
    return {each.task.task_id: each for each in begun_of(make_benchmark(), "train")}


@pytest.fixture
def agent_of(memory, monkeypatch):
    """An agent whose models write what a function of the prompt says; ``prompts`` notes what they read."""
    prompts = []

    def make(name, parameter, protocol="leak_free", method=Method(memory_tokens=400)):  # noqa: B008
        def complete(folder, texts, **_):
            prompts.extend(texts)
            return [[name if folder == Path("first") else parameter] for _ in texts]

        monkeypatch.setattr(module, "complete", complete)
        return PumaAgent(Path("first"), Path("second"), memory, load_prompts(), method, protocol)

    return make, prompts


def test_a_parameter_is_bare_text_and_ids_are_joined_by_commas():
    assert completion_of("red mug", RECALL, ASINS) == "red mug"
    assert completion_of(("A", "Z", "A"), RECALL, ASINS) == "A, Z, A"
    assert completion_of(("C", "Z", "A", "C"), RECALL, NUMBERS) == "3, 1"  # who is not remembered has none
    assert completion_of(("Z",), RECALL, NUMBERS) == ""


def ids(text, method=ASINS, protocol="leak_free"):
    return read_parameter(RECOMMEND, text, RECALL, method, protocol).arguments["product_sequence"]


def test_what_is_written_is_read_as_a_call():
    assert read_parameter(SEARCH, " red mug\n", RECALL, ASINS, "leak_free").arguments == {"query": "red mug"}
    assert read_parameter(REVIEW, "Fine.", RECALL, ASINS, "leak_free").arguments == {"review": "Fine."}
    assert ids("B, A,B") == ["B", "A", "B"]
    assert ids("2, 1, 9, B", NUMBERS) == ["B", "A", "9", "B"]


def test_published_ids_lose_their_order_the_same_way_each_time():
    written = ", ".join("ABCDEFGH")
    published = ids(written, protocol="published")
    assert sorted(published) == list("ABCDEFGH") != published == ids(written, protocol="published")
    assert len(ids("A, A", protocol="published")) == 1


def test_exactly_one_function_must_be_named():
    assert read_function(f"{SEARCH}\n") == SEARCH
    assert read_function("add _ product _ review") == REVIEW
    assert read_function(f"{SEARCH} {REVIEW}") == read_function("nothing") == ""


def test_step_one_reads_the_instruction_and_step_two_all(agent_of, begun):
    make, prompts = agent_of
    state = begun["query"].state
    (action,) = make(SEARCH, "a red pan").act([state])
    assert action.name == SEARCH and action.arguments == {"query": "a red pan"}
    first, second = prompts
    assert state.instruction in first and "Pan K" not in first
    assert state.instruction in second and "Pan K" in second and SEARCH in second


def test_a_reply_that_names_no_function_is_a_step_lost(agent_of, begun):
    make, prompts = agent_of
    actions = make("no idea", "").act([begun["query"].state, begun["words"].state])
    assert [action.problem_kind for action in actions] == ["unknown_function"] * 2
    assert len(prompts) == 2  # of step 1 alone


def test_what_step_two_is_told_goes_by_the_protocol(agent_of, begun):
    """The memory's type is the task's as published, and the function's that step 1 named leak-free."""
    make, prompts = agent_of
    query, words = begun["query"], begun["words"]
    for protocol in ("published", "leak_free"):
        make(REVIEW, "x", protocol).act([query.state, words.state], [query.function, words.function])
    published, leak_free = prompts[2:4], prompts[6:8]
    search = next(text for text in published if query.state.instruction in text)
    assert "price: 9.5" in search and REVIEW in search and "stars: My words" not in search
    assert "stars: My words" in next(text for text in leak_free if query.state.instruction in text)
    (told,) = [
        words.state.instruction in text and "Pan K99" in text
        for text in leak_free
        if words.state.instruction in text
    ]
    (kept,) = [text for text in published if words.state.instruction in text]
    assert told and "Pan K99" not in kept  # as published, a product is left out where the model generates


def test_a_hint_stands_behind_the_memory_and_no_memory_is_empty(memory, begun):
    state, prompts = begun["query"].state, load_prompts()
    hinted = memory.recall(state, SEARCH, replace(ASINS, hint="recurring"))
    assert f"{hinted.text}\nOften: Otter" in prompts.parameter(state, SEARCH, hinted)
    assert "Memory: \n" in prompts.parameter(state, SEARCH, Recall(""))
