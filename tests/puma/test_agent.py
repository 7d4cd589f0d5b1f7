"""PUMA's memory, prompts and agent: what each step is told under each protocol, and what it may write."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pwagents.puma import agent as module
from pwagents.puma.agent import PumaAgent, read_function, read_parameter
from pwagents.puma.labels import completion_of
from pwagents.puma.memory import RECOMMEND, REVIEW, SEARCH, Method, Recall, load_prompts, recurring_word
from pwagents.puma.train import Trained

from .conftest import CIRCUMSTANCES, DAY, product

PAPER, RECALL = Method(memory_tokens=10**6), Recall("", ("A", "B", "C"))


def test_each_function_is_told_its_own_fields_joined_by_a_bar(memory, begun):
    state = replace(begun["query"].state, history=begun["query"].state.history[:2])
    first, last = (f"Pan {asin} (category: Kitchen, " for asin in ("K01", "K02"))
    search = memory.recall(state, SEARCH, PAPER).text.split("|")
    assert sorted(search) == [f"{each}price: 9.5, store: Otter)\n" for each in (first, last)]
    assert memory.recall(state, RECOMMEND, PAPER).text == f"{last}id: K02)\n|{first}id: K01)\n"
    assert "4.0 stars: My words on K01.\n" in memory.recall(state, REVIEW, PAPER).text.split("|")
    assert memory.recall(state, SEARCH, PAPER.changed(memory="none")).text == ""
    assert memory.recall(replace(state, history=()), SEARCH, PAPER).text == ""


def test_the_closest_hundred_are_told_up_to_so_many_tokens_to_recommend_newest_first(memory, begun):
    state = begun["many"].state
    past = enumerate(state.history * 4, start=1)
    past = tuple(each.model_copy(update={"timestamp": day * DAY}) for day, each in past)
    long = replace(state, history=past)
    days = {b.timestamp: b.parent_asin for b in memory.retrieve(long)}
    whole = memory.recall(long, RECOMMEND, PAPER)
    assert len(days) == 100 < len(past)
    assert list(whole.ids) == [days[time] for time in sorted(days, reverse=True)]
    cut = memory.recall(long, RECOMMEND, PAPER.changed(memory_tokens=100))
    assert cut.text == whole.text[:100]  # a token is a byte; whole items alone can be named
    assert len(cut.ids) == cut.text.count("|") and cut.ids == whole.ids[: len(cut.ids)]


def test_the_switches_tell_an_interest_numbers_for_ids_and_a_word_that_recurs(memory, begun):
    state = replace(begun["query"].state, instruction="Another Rake for the Garden")
    interest = PAPER.changed(memory="interest")
    assert sorted(memory.recall(state, RECOMMEND, interest).ids) == ["G1", "G2", "G3", "G9"]
    assert memory.recall(state, SEARCH, interest).text.count("Rake") == 4
    assert memory.recall(state, REVIEW, interest) == memory.recall(state, REVIEW, PAPER)
    twice = replace(begun["many"].state, history=begun["many"].state.history[:3] * 2)
    recall = memory.recall(twice, RECOMMEND, PAPER.changed(ids="number"))
    assert recall.ids == ("K03", "K02", "K01")  # each once
    assert [item.split("id: ")[1] for item in recall.text.split("|")] == ["1)\n", "2)\n", "3)\n"]
    state, hinted, prompts = begun["query"].state, PAPER.changed(hint="recurring"), load_prompts()
    recall = memory.recall(state, SEARCH, hinted)
    assert f"{recall.text}\nOften: Otter" in prompts.parameter(state, SEARCH, recall)
    others = memory.recall(state, SEARCH, PAPER), memory.recall(state, RECOMMEND, hinted)
    assert {each.hint for each in others} == {""}
    for instruction, titles, word in CIRCUMSTANCES["recurring"]:
        bought = [product("K01").model_copy(update={"title": each, "store": None}) for each in titles]
        assert recurring_word(instruction, bought) == word


def test_a_parameter_is_bare_text_and_is_read_as_a_call():
    for ids, label, text in CIRCUMSTANCES["written"]:
        assert completion_of(label, RECALL, Method(ids=ids)) == text
    for function, ids, text, argument in CIRCUMSTANCES["read"]:
        action = read_parameter(function, text, RECALL, Method(ids=ids), "leak_free")
        assert action.name == function and [*action.arguments.values()] == [argument]
    # Published ids lose their order, the same way each time.
    once, again = (read_parameter(RECOMMEND, "A, B, C, D, E, F, A", RECALL, PAPER, "published") for _ in "12")
    (ids,) = once.arguments.values()
    assert sorted(ids) == list("ABCDEF") != ids and once == again


@pytest.fixture
def act(memory, monkeypatch):
    """Let an agent act whose models write what is given; returns its actions and what the models read."""

    def act(name, begun, protocol="leak_free"):
        read = {"first": [], "second": []}

        def complete(folder, texts, **_):
            read[folder.name] += texts
            return [[name if folder.name == "first" else "x"] for _ in texts]

        monkeypatch.setattr(module, "complete", complete)
        method = Method(memory_tokens=400)
        config = SimpleNamespace(study=SimpleNamespace(max_new_tokens=8, batch_size=8))
        study = SimpleNamespace(memory=memory, prompts=load_prompts(), settings=config)
        agent = PumaAgent(study, method, Trained(Path("first"), Path("second"), Path("second")), protocol)
        actions = agent.act([each.state for each in begun], [each.function for each in begun])
        return actions, *read.values()

    return act


def test_step_one_names_one_function_and_step_two_is_told_all(act, begun):
    (action,), (first,), (second,) = act(f"{SEARCH}\n", [begun["query"]])
    assert action.name == SEARCH and action.arguments == {"query": "x"}
    assert "Find a red pan" in first and "Pan K" not in first
    parts = ("### Instruction:Find a red pan", "Memory: Pan K", f"Tool: {SEARCH}")
    places = [second.index(part) for part in parts]
    assert places == sorted(places) and second.endswith("### Tool Parameter:\n")
    for name in ("no idea", f"{SEARCH} {REVIEW}"):  # a step lost
        (action, _), _, second = act(name, [begun["query"], begun["words"]])
        assert action.problem_kind == "unknown_function" and not second
    assert read_function("add _ product _ review") == REVIEW  # as small tokenizers write it


def test_what_step_two_is_told_goes_by_the_protocol(act, begun):
    """The memory's type is the task's as published, and the function's that step 1 named leak-free."""
    told = {}
    for protocol in ("published", "leak_free"):
        for name in ("query", "words"):
            told[protocol, name] = act(REVIEW, [begun[name]], protocol)[2][0]
    published = told["published", "query"]
    assert "price: 9.5" in published and REVIEW in published and "stars: My words" not in published
    assert "stars: My words" in told["leak_free", "query"]
    # As published, a review's product is left out where the model generates.
    assert "Pan K99" in told["leak_free", "words"] and "Pan K99" not in told["published", "words"]
