"""PUMA's memory, prompts and agent: what each step is told under each protocol, and what it may write."""

from dataclasses import replace
from pathlib import Path

import pytest

from pwagents.puma import agent as module
from pwagents.puma.agent import PumaAgent, completion_of, read_function, read_parameter
from pwagents.puma.memory import RECOMMEND, REVIEW, SEARCH, Recall, recurring_word
from pwagents.puma.prompts import load_prompts
from pwagents.puma.settings import Method

from .by_hand import DAY, product

PAPER, ASINS, NUMBERS = Method(memory_tokens=10**6), Method(), Method(ids="number")
RECALL = Recall("", ("A", "B", "C"))


def test_each_function_is_told_its_own_fields_joined_by_a_bar(memory, begun):
    state = replace(begun["query"].state, history=begun["query"].state.history[:2])
    first, last = (f"Pan {asin} (category: Kitchen, " for asin in ("K01", "K02"))
    search = memory.recall(state, SEARCH, PAPER).text.split("|")
    assert sorted(search) == [f"{each}price: 9.5, store: Otter)\n" for each in (first, last)]
    assert memory.recall(state, RECOMMEND, PAPER).text == f"{last}id: K02)\n|{first}id: K01)\n"
    assert "4.0 stars: My words on K01.\n" in memory.recall(state, REVIEW, PAPER).text.split("|")
    assert memory.recall(state, SEARCH, replace(PAPER, memory="none")).text == ""
    assert memory.recall(replace(state, history=()), SEARCH, PAPER).text == ""


def test_the_closest_hundred_are_told_up_to_so_many_tokens_to_recommend_newest_first(memory, begun):
    state = begun["many"].state
    past = enumerate(state.history * 4, start=1)
    past = tuple(each.model_copy(update={"timestamp": day * DAY}) for day, each in past)
    long = replace(state, history=past)
    days = {b.timestamp: b.parent_asin for b in memory.retrieve(long)}
    whole = memory.recall(long, RECOMMEND, PAPER)
    assert len(days) == 100 < len(past) and list(whole.ids) == [
        days[time] for time in sorted(days, reverse=True)
    ]
    cut = memory.recall(long, RECOMMEND, replace(PAPER, memory_tokens=100))
    assert cut.text == whole.text[:100]  # a token is a byte; whole items alone can be named
    assert len(cut.ids) == cut.text.count("|") and cut.ids == whole.ids[: len(cut.ids)]


def test_the_switches_tell_an_interest_numbers_for_ids_and_a_word_that_recurs(memory, begun):
    state = replace(begun["query"].state, instruction="Another Rake for the Garden")
    interest = replace(PAPER, memory="interest")
    assert sorted(memory.recall(state, RECOMMEND, interest).ids) == ["G1", "G2", "G3", "G9"]
    assert memory.recall(state, SEARCH, interest).text.count("Rake") == 4
    assert memory.recall(state, REVIEW, interest) == memory.recall(state, REVIEW, PAPER)
    twice = replace(begun["many"].state, history=begun["many"].state.history[:3] * 2)
    recall = memory.recall(twice, RECOMMEND, replace(PAPER, ids="number"))
    assert recall.ids == ("K03", "K02", "K01")  # each once
    assert [item.split("id: ")[1] for item in recall.text.split("|")] == ["1)\n", "2)\n", "3)\n"]
    state, hinted, prompts = begun["query"].state, replace(PAPER, hint="recurring"), load_prompts()
    recall = memory.recall(state, SEARCH, hinted)
    assert recall.hint == "Otter" and f"{recall.text}\nOften: Otter" in prompts.parameter(
        state, SEARCH, recall
    )
    others = memory.recall(state, SEARCH, PAPER), memory.recall(state, RECOMMEND, hinted)
    assert {each.hint for each in others} == {""}
    assert "Memory: \n" in prompts.parameter(state, SEARCH, Recall(""))


@pytest.mark.parametrize(
    ("instruction", "titles", "word"),
    [
        ("A mug!", "Oak mug, Oak bowl, Oak mug, Red bowl", "Oak"),
        ("Oak, please", "Oak mug, Oak bowl, Oak mug, Red bowl", "mug"),  # met before the bowl, as frequent
        ("A mug!", "Oak mug", ""),
        ("A mug!", "", ""),
        (
            "something new",
            "Case for iPhone with Stand, Charger for Samsung with Cable, Cable for Car",
            "Cable",
        ),
    ],
)
def test_a_word_recurs_as_it_is_written_and_what_the_instruction_says_is_known(instruction, titles, word):
    named = [{"title": title, "store": None} for title in titles.split(", ") if title]
    assert recurring_word(instruction, [product("K01").model_copy(update=each) for each in named]) == word


def ids(text, method=ASINS, protocol="leak_free"):
    return read_parameter(RECOMMEND, text, RECALL, method, protocol).arguments["product_sequence"]


def test_a_parameter_is_bare_text_and_is_read_as_a_call():
    assert completion_of("red mug", RECALL, ASINS) == "red mug"
    assert completion_of(("A", "Z", "A"), RECALL, ASINS) == "A, Z, A"
    assert completion_of(("C", "Z", "A", "C"), RECALL, NUMBERS) == "3, 1"  # who is not remembered has none
    assert completion_of(("Z",), RECALL, NUMBERS) == ""
    assert read_parameter(SEARCH, " red mug\n", RECALL, ASINS, "leak_free").arguments == {"query": "red mug"}
    assert read_parameter(REVIEW, "Fine.", RECALL, ASINS, "leak_free").arguments == {"review": "Fine."}
    assert ids("B, A,B") == ["B", "A", "B"] and ids("2, 1, 9, B", NUMBERS) == ["B", "A", "9", "B"]
    # Published ids lose their order, the same way each time.
    written = ", ".join("ABCDEFGHA")
    published = ids(written, protocol="published")
    assert sorted(published) == list("ABCDEFGH") != published == ids(written, protocol="published")


def test_exactly_one_function_must_be_named():
    assert read_function(f"{SEARCH}\n") == SEARCH and read_function("add _ product _ review") == REVIEW
    assert read_function(f"{SEARCH} {REVIEW}") == read_function("nothing") == ""


@pytest.fixture
def act(memory, monkeypatch):
    """Let an agent act whose models write what is given; returns its actions and what the models read."""

    def act(name, parameter, begun, protocol="leak_free"):
        read = {}

        def complete(folder, texts, **_):
            read.setdefault(folder.name, []).extend(texts)
            return [[name if folder.name == "first" else parameter] for _ in texts]

        monkeypatch.setattr(module, "complete", complete)
        method = Method(memory_tokens=400)
        agent = PumaAgent(Path("first"), Path("second"), memory, load_prompts(), method, protocol)
        actions = agent.act([each.state for each in begun], [each.function for each in begun])
        return actions, read["first"], read.get("second", [])

    return act


def test_step_one_reads_the_instruction_and_step_two_all(act, begun):
    (action,), (first,), (second,) = act(SEARCH, "a red pan", [begun["query"]])
    assert action.name == SEARCH and action.arguments == {"query": "a red pan"}
    assert "Find a red pan" in first and "Pan K" not in first
    assert "Find a red pan" in second and "Pan K" in second and SEARCH in second
    actions, _, second = act("no idea", "", [begun["query"], begun["words"]])  # which is a step lost
    assert [action.problem_kind for action in actions] == ["unknown_function"] * 2 and not second


def test_what_step_two_is_told_goes_by_the_protocol(act, begun):
    """The memory's type is the task's as published, and the function's that step 1 named leak-free."""
    told = {}
    for protocol in ("published", "leak_free"):
        for name in ("query", "words"):
            told[protocol, name] = act(REVIEW, "x", [begun[name]], protocol)[2][0]
    published = told["published", "query"]
    assert "price: 9.5" in published and REVIEW in published and "stars: My words" not in published
    assert "stars: My words" in told["leak_free", "query"]
    # As published, a review's product is left out where the model generates.
    assert "Pan K99" in told["leak_free", "words"] and "Pan K99" not in told["published", "words"]
