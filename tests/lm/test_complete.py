"""Completions of plain texts: no template, no end token, each prompt by itself."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm.complete import complete
from pwagents.lm.exercises import function_prompt, parameter_prompt

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


def test_a_killed_run_goes_on_after_what_it_stored_and_ends_as_unbroken(tuned, tmp_path, monkeypatch):
    options = {**MOST, "temperature": 1.5, "beams": 2, "returned": 2, "store": tmp_path / "texts.jsonl"}
    unbroken = complete(tuned, PROMPTS, **options)
    lines = options["store"].read_bytes().splitlines(keepends=True)
    options["store"].write_bytes(lines[0] + lines[1][:20])
    assert complete(tuned, PROMPTS, **options) == unbroken
    assert options["store"].read_bytes() == b"".join(lines)
    monkeypatch.setattr("pwagents.lm.complete.read_model", lambda *_: pytest.fail("a model is loaded"))
    assert complete(tuned, PROMPTS, **options) == unbroken


def test_vllm_writes_independent_samples_of_a_whole_model_where_it_is_there(tmp_path, monkeypatch):
    asked = []

    class LLM:
        def __init__(self, model):
            self.model = model

        def generate(self, prompts, sampling, use_tqdm):
            asked.append((len(prompts), sampling.temperature, sampling.seed))
            texts = [[f"{prompt}{i}" for i in range(sampling.n)] for prompt in prompts]
            return [SimpleNamespace(outputs=[SimpleNamespace(text=t) for t in each]) for each in texts]

    vllm = ModuleType("vllm")
    vllm.LLM, vllm.SamplingParams, vllm.__spec__ = LLM, SimpleNamespace, ModuleSpec("vllm", None)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    prompts = [f"prompt {i} " for i in range(300)]
    options = {**MOST, "temperature": 1.5, "beams": 10, "returned": 10, "store": tmp_path / "texts.jsonl"}
    written = complete(tmp_path, prompts, **options)
    assert written == [[f"{prompt}{i}" for i in range(10)] for prompt in prompts]
    (first, temperature, seed), (second, _, other) = asked
    assert (first, second, temperature) == (256, 44, 1.5) and seed != other
