"""PUMA's part of the base model's text: in the agent's form, always the same, and about nobody real."""

import json
import re
from dataclasses import replace

import pytest
from transformers import AutoTokenizer

from pwagents.errors import DataError
from pwagents.llm.chat import Request, parse_tool_calls
from pwagents.llm.local_model import LocalModel
from pwagents.orion.base import LESSONS, base_model
from pwagents.orion.base_text import BaseText
from pwagents.puma.agent import IDENTIFY_RULES, OFTEN, PARAMETER_RULES, RECOMMEND, SEARCH
from pwagents.puma.base import LESSONS as PUMA_LESSONS
from pwagents.puma.base import puma_base, read_puma_text
from pwagents.puma.base_text import PumaText

from .conftest import SIZE

NUMBERS = range(60)


@pytest.fixture(scope="module")
def taken(benchmark):
    titles = {product.title for product in benchmark.products.values()}
    return frozenset(benchmark.products) | titles


@pytest.fixture(scope="module")
def dialogues(taken):
    return [PumaText(taken, 0).dialogue(n) for n in NUMBERS]


def test_each_is_an_input_of_step_two_and_one_well_formed_call(dialogues):
    functions = set()
    for rules, _, turn in dialogues:
        text, (call,) = parse_tool_calls(turn["content"], "call")
        assert text == "" and rules["content"] == PARAMETER_RULES[call.name]
        assert all(json.loads(call.arguments).values())
        functions.add(call.name)
    assert functions == set(PARAMETER_RULES)


def test_the_same_number_is_the_same_dialogue(dialogues, taken):
    assert [PumaText(taken, 0).dialogue(n) for n in NUMBERS] == dialogues
    assert PumaText(taken, 1).dialogue(0) != dialogues[0]


def test_nothing_of_the_benchmark_occurs(dialogues, taken, benchmark):
    text = "\n".join(str(message["content"]) for dialogue in dialogues for message in dialogue)
    assert not [name for name in taken if name in text]
    instructions = {task.instruction for task in benchmark.all_tasks()}
    assert not [instruction for instruction in instructions if instruction in text]


def test_a_dialogue_comes_to_an_end_where_its_products_are_real_ones(taken):
    told = PumaText(frozenset(), 0).dialogue(5)[1]["content"]
    real = frozenset(re.findall(r"^(?:\d+\. )?(\w[^|\n(]+, \w[^|\n(]+?) \(", told, re.MULTILINE))
    assert real
    again = PumaText(real, 0).dialogue(5)[1]["content"]
    assert not [title for title in real if title in again]


def test_what_is_recommended_can_be_copied_from_what_is_told(dialogues):
    for _, asked, turn in dialogues:
        _, (call,) = parse_tool_calls(turn["content"], "call")
        if call.name == RECOMMEND:
            numbers = json.loads(call.arguments)["product_sequence"]
            assert numbers == re.findall(r"^(\d+)\. ", asked["content"], re.MULTILINE)


def test_queries_hold_nothing_but_what_stands_in_the_input_in_its_order(taken):
    """What differs in a capital letter alone is another token, which a small model cannot copy."""
    text = PumaText(taken, 0)
    for messages in [*map(text.dialogue, NUMBERS), *(text.exercise(n, 6) for n in NUMBERS)]:
        _, asked, turn = messages
        _, (call,) = parse_tool_calls(turn["content"], "call")
        if call.name == SEARCH:
            _, often, tail = asked["content"].rpartition(OFTEN)
            written = iter(re.findall(r"\w+", tail if often else asked["content"]))
            query = json.loads(call.arguments)["query"]
            assert all(word in written for word in re.findall(r"\w+", query))


def test_the_model_reads_each_fixed_text_as_one_token_and_the_rest_as_before(
    benchmark, updater, taken, tokenizer, tmp_path
):
    lesson = replace(LESSONS[0], most_steps=1)
    base = base_model(tmp_path, BaseText(updater, taken, 0), 0, [lesson], SIZE)
    lessons = [replace(lesson, most_steps=1) for lesson in PUMA_LESSONS]
    folder = read_puma_text(base, tmp_path / "models", benchmark.products, 0, lessons)
    read = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert all(len(read.encode(rules)) == 1 for rules in (IDENTIFY_RULES, *PARAMETER_RULES.values()))
    for function in PARAMETER_RULES:
        (token,) = read.encode(function)
        assert read.decode(token) == function
    request = "A red mug, thanks."
    assert read.encode(request) == tokenizer.encode(request)
    asked = Request(messages=({"role": "user", "content": request},), sampling={"max_tokens": 4})
    assert LocalModel(folder).reply(asked).usage.completion_tokens


def test_where_only_stored_models_may_be_used_none_is_trained(smoke, benchmark, tmp_path):
    stored = replace(smoke, output_dir=tmp_path, stored_runs_only=True)
    with pytest.raises(DataError, match="base"):
        puma_base(stored, benchmark, benchmark.products)
    assert not (tmp_path / "models").exists()
