"""Completions of plain texts: no template, no end token, each prompt by itself."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pwagents.llm.folder import read_model, read_tokenizer
from pwagents.lm.complete import complete

from .conftest import texts

PROMPTS = [row["prompt"] for row in texts(7)]
MOST = {"max_new_tokens": 6, "batch_size": 3}


def test_a_greedy_completion_is_the_most_likely_text_up_to_the_end_whatever_stands_beside_it(models):
    tokenizer, model = read_tokenizer(models / "sft"), read_model(models / "sft", torch.float32)
    expected = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        begin = len(ids)
        while len(ids) < begin + 6 and tokenizer.eos_token_id not in ids:
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        expected.append([tokenizer.decode(ids[begin:], skip_special_tokens=True)])
    assert complete(models / "sft", PROMPTS, **MOST) == expected
    assert complete(models / "sft", PROMPTS, **MOST | {"batch_size": 1}) == expected
    assert any(text for (text,) in expected)


def test_sampled_beams_follow_from_the_seed_and_a_killed_run_goes_on_after_what_it_stored(
    models, tmp_path, monkeypatch
):
    store, options = tmp_path / "texts.jsonl", {**MOST, "temperature": 1.5, "beams": 4, "returned": 3}
    unbroken = complete(models / "sft", PROMPTS, **options, seed=1, store=store)
    assert [len(texts) for texts in unbroken] == [3] * len(PROMPTS)
    torch.manual_seed(99)  # chance elsewhere changes nothing
    assert complete(models / "sft", PROMPTS, **options, seed=1) == unbroken
    assert complete(models / "sft", PROMPTS, **options, seed=2) != unbroken
    lines = store.read_bytes().splitlines(keepends=True)
    store.write_bytes(lines[0] + lines[1][:20])
    assert complete(models / "sft", PROMPTS, **options, seed=1, store=store) == unbroken
    assert store.read_bytes() == b"".join(lines)
    monkeypatch.setattr("pwagents.lm.complete.read_model", lambda *_: pytest.fail("a model is loaded"))
    assert complete(models / "sft", PROMPTS, **options, seed=1, store=store) == unbroken


def test_vllm_writes_independent_samples_of_a_whole_model_where_it_is_there(tmp_path, monkeypatch):
    asked = []

    class LLM:
        def __init__(self, model):
            assert model == str(tmp_path)

        def generate(self, prompts, sampling, use_tqdm):
            asked.append((len(prompts), sampling.temperature, sampling.seed))
            texts = [[f"{prompt}{i}" for i in range(sampling.n)] for prompt in prompts]
            return [SimpleNamespace(outputs=[SimpleNamespace(text=t) for t in each]) for each in texts]

    vllm = ModuleType("vllm")
    vllm.LLM, vllm.SamplingParams, vllm.__spec__ = LLM, SimpleNamespace, ModuleSpec("vllm", None)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    prompts = [f"prompt {i} " for i in range(300)]
    written = complete(tmp_path, prompts, **MOST, temperature=1.5, beams=10, returned=10)
    assert written == [[f"{prompt}{i}" for i in range(10)] for prompt in prompts]
    (first, temperature, seed), (second, _, other) = asked
    assert (first, second, temperature) == (256, 44, 1.5) and seed != other
