"""PUMA's memory: which purchases it tells, how it is cut, and what our switches change."""

from dataclasses import replace

import pytest

from pwagents.puma.memory import RECOMMEND, REVIEW, SEARCH, recurring_word
from pwagents.puma.settings import Method

from .purchases import DAY, make_benchmark, product
from .standins import begun_of, memory_of

PAPER = Method(memory_tokens=10**6)


@pytest.fixture(scope="module")
def by_hand():
    return make_benchmark()


@pytest.fixture(scope="module")
def memory(by_hand):
    return memory_of(by_hand.products)


@pytest.fixture(scope="module")
def state_of(by_hand):
    begun = [*begun_of(by_hand, "train"), *begun_of(by_hand, "test")]
    return {each.task.task_id: each.state for each in begun}


def test_each_function_is_told_its_own_fields_joined_by_a_bar(memory, state_of):
    state = replace(state_of["query"], history=state_of["query"].history[:2])
    first, last = (f"Pan {asin} (category: Kitchen, " for asin in ("K01", "K02"))
    search = memory.recall(state, SEARCH, PAPER).text
    assert sorted(search.split("|")) == [
        f"{first}price: 9.5, store: Otter)\n",
        f"{last}price: 9.5, store: Otter)\n",
    ]
    assert memory.recall(state, RECOMMEND, PAPER).text == f"{last}id: K02)\n|{first}id: K01)\n"
    assert "4.0 stars: My words on K01.\n" in memory.recall(state, REVIEW, PAPER).text.split("|")
    assert memory.recall(state, SEARCH, replace(PAPER, memory="none")).text == ""
    assert memory.recall(replace(state, history=()), SEARCH, PAPER).text == ""


def test_the_closest_hundred_are_told_and_a_recommendation_has_them_newest_first(memory, state_of):
    state = state_of["many"]
    past = [replace_day(b, day) for day, b in enumerate(state.history * 4, start=1)]
    long = replace(state, history=tuple(past))
    assert len(memory.retrieve(long)) == 100 < len(past)
    recall = memory.recall(long, RECOMMEND, PAPER)
    days = {b.timestamp: b.parent_asin for b in memory.retrieve(long)}
    assert list(recall.ids) == [days[time] for time in sorted(days, reverse=True)]


def replace_day(behavior, day):
    return behavior.model_copy(update={"timestamp": day * DAY})


def test_the_text_is_cut_at_tokens_and_whole_items_alone_can_be_named(memory, state_of):
    whole = memory.recall(state_of["many"], RECOMMEND, PAPER)
    cut = memory.recall(state_of["many"], RECOMMEND, replace(PAPER, memory_tokens=100))
    assert cut.text == whole.text[:100]
    items = cut.text.split("|")
    assert len(cut.ids) == len(items) - 1 and cut.ids == whole.ids[: len(cut.ids)]


def test_an_interest_is_the_section_of_the_closest_purchase(memory, state_of):
    state = replace(state_of["query"], instruction="Another Rake for the Garden")
    interest = memory.recall(state, RECOMMEND, replace(PAPER, memory="interest"))
    assert sorted(interest.ids) == ["G1", "G2", "G3", "G9"]
    assert memory.recall(state, SEARCH, replace(PAPER, memory="interest")).text.count("Rake") == 4
    reviews = [memory.recall(state, REVIEW, replace(PAPER, memory=way)) for way in ("paper", "interest")]
    assert reviews[0] == reviews[1]


def test_numbers_stand_for_ids_each_product_once(memory, state_of):
    state = replace(state_of["many"], history=state_of["many"].history[:3] * 2)
    recall = memory.recall(state, RECOMMEND, replace(PAPER, ids="number"))
    assert recall.ids == ("K03", "K02", "K01")
    assert [item.split("id: ")[1] for item in recall.text.split("|")] == ["1)\n", "2)\n", "3)\n"]


def test_the_hint_is_the_word_that_recurs_and_searches_alone_have_it(memory, state_of):
    hinted = replace(PAPER, hint="recurring")
    assert memory.recall(state_of["query"], SEARCH, hinted).hint == "Otter"
    assert memory.recall(state_of["query"], SEARCH, PAPER).hint == ""
    assert memory.recall(state_of["many"], RECOMMEND, hinted).hint == ""


def bought(*titles):
    named = [{"title": title, "store": None} for title in titles]
    return [product("K01", "Kitchen", "Pan").model_copy(update=each) for each in named]


def test_a_word_recurs_as_it_is_written_and_what_the_instruction_says_is_known():
    oak = bought("Oak mug", "Oak bowl", "Oak mug", "Red bowl")
    assert recurring_word("A mug!", oak) == "Oak"
    assert recurring_word("Oak, please", oak) == "mug"  # met before the bowl, which is as frequent
    assert recurring_word("A mug!", oak[:1]) == recurring_word("A mug!", []) == ""
    stops = bought("Case for iPhone with Stand", "Charger for Samsung with Cable", "Cable for Car")
    assert recurring_word("something new", stops) == "Cable"
