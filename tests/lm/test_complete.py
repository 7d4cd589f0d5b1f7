"""Completions of plain texts: no template, no end token, each prompt by itself."""

import pytest
import torch

from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm.complete import complete
from pwagents.lm.plain_text import function_prompt, parameter_prompt

from . import tiny

PROMPTS = [row["prompt"] for row in tiny.texts(7)]
MOST = {"max_new_tokens": 6, "batch_size": 3}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tiny.train_sft(tiny.save_base(folder / "base"), folder / "tuned")
    return folder / "tuned"


def test_a_greedy_completion_is_the_most_likely_text_up_to_the_end_whatever_stands_beside_it(tuned):
    tokenizer, model = read_tokenizer(tuned), read_model(tuned, torch.float32)
    expected = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        begin = len(ids)
        while len(ids) < begin + 6:
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == tokenizer.eos_token_id:
                break
        expected.append([tokenizer.decode(ids[begin:], skip_special_tokens=True)])
    assert complete(tuned, PROMPTS, **MOST) == expected
    assert complete(tuned, PROMPTS, **MOST | {"batch_size": 1}) == expected
    assert any(text for (text,) in expected)


def test_sampled_beams_are_as_many_as_asked_for_and_follow_from_the_seed(tuned):
    options = {"temperature": 1.5, "beams": 4, "returned": 3}
    first = complete(tuned, PROMPTS, **MOST, **options, seed=1)
    assert [len(texts) for texts in first] == [3] * len(PROMPTS)
    torch.manual_seed(99)  # chance elsewhere changes nothing
    assert complete(tuned, PROMPTS, **MOST, **options, seed=1) == first
    assert complete(tuned, PROMPTS, **MOST, **options, seed=2) != first


def test_prompts_have_the_published_form():
    prompt = parameter_prompt("find a mug", "Title:Mug|Title:Cup", "search_product_by_query")
    places = [
        prompt.index(part)
        for part in (
            "### Instruction:find a mug",
            "Memory: Title:Mug|Title:Cup",
            "Tool: search_product_by_query",
        )
    ]
    assert places == sorted(places) and prompt.endswith("### Tool Parameter:\n")
    assert function_prompt("find a mug").endswith("### Instruction: find a mug\n\n### Tool:\n")
