"""PUMA's part of the base model's text: in the agent's form, always the same, and about nobody real."""

import json
import re

import pytest

from pwagents.agents.puma import PARAMETER_RULES, RECOMMEND
from pwagents.llm.tool_text import parse_tool_calls
from pwagents.training.puma_text import puma_dialogue

NUMBERS = range(60)


@pytest.fixture(scope="module")
def taken(benchmark):
    titles = {product.title for product in benchmark.products.values()}
    return frozenset(benchmark.products) | titles


@pytest.fixture(scope="module")
def dialogues(taken):
    return [puma_dialogue(n, taken, seed=0) for n in NUMBERS]


def test_each_is_an_input_of_step_two_and_one_well_formed_call(dialogues):
    functions = set()
    for rules, _, turn in dialogues:
        text, (call,) = parse_tool_calls(turn["content"], "call")
        assert text == "" and rules["content"] == PARAMETER_RULES[call.name]
        assert all(json.loads(call.arguments).values())
        functions.add(call.name)
    assert functions == set(PARAMETER_RULES)


def test_the_same_number_is_the_same_dialogue(dialogues, taken):
    assert [puma_dialogue(n, taken, seed=0) for n in NUMBERS] == dialogues
    assert puma_dialogue(0, taken, seed=1) != dialogues[0]


def test_nothing_of_the_benchmark_occurs(dialogues, taken, benchmark):
    text = "\n".join(str(message["content"]) for dialogue in dialogues for message in dialogue)
    assert not [name for name in taken if name in text]
    instructions = {task.instruction for task in benchmark.all_tasks()}
    assert not [instruction for instruction in instructions if instruction in text]


def test_a_dialogue_comes_to_an_end_where_all_values_recur_and_are_those_of_a_real_product():
    n = 1818  # in it, all slots recur
    told = puma_dialogue(n, frozenset(), seed=0)[1]["content"]
    real = frozenset(re.findall(r"Larkspur [^|\n]+stackable", told))
    assert real
    again = puma_dialogue(n, real, seed=0)[1]["content"]
    assert not [title for title in real if title in again]


def test_what_is_recommended_can_be_copied_from_what_is_told(dialogues):
    for _, asked, turn in dialogues:
        _, (call,) = parse_tool_calls(turn["content"], "call")
        if call.name == RECOMMEND:
            ids = json.loads(call.arguments)["product_sequence"]
            places = [asked["content"].index(asin) for asin in ids]
            assert places == sorted(places)
