"""The small base model and PUMA's exercises: made once, the same every time, of nothing that is real."""

import json
import re

import pandas as pd
import pytest

from pwagents.lm.base import ALL_STEPS, LOG, Lesson, content_hash, small_base
from pwagents.lm.exercises import REVIEW, SEARCH, ExerciseText, ids_and_titles

SIZE = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 32}
LESSONS = (
    Lesson(limit=2, batch_size=4, learning_rate=4e-3, accuracy=ALL_STEPS, most_steps=26),
    Lesson(limit=None, batch_size=2, learning_rate=4e-4, accuracy=ALL_STEPS, most_steps=3),
)


@pytest.fixture
def text(benchmark):
    return ExerciseText(benchmark.products, 0)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(ExerciseText, "lessons", LESSONS)


def test_a_base_model_is_made_once_and_is_the_same_every_time(benchmark, tmp_path):
    def make(folder, seed=5, **options):
        text = ExerciseText(benchmark.products, seed)
        return small_base(tmp_path / folder, text, seed, size=SIZE, **options)

    first, again = make("one"), make("two")
    assert first.name == again.name == make("one", stored_only=True).name
    for name in ("model.safetensors", LOG, "tokenizer.json", "README.md"):
        assert (first / name).read_bytes() == (again / name).read_bytes()
    others = {make("one", seed=6).name, make("one", steps=2).name}
    others.add(small_base(tmp_path / "one", ExerciseText({}, 5), 5, 2, size=SIZE).name)
    assert len(others | {first.name}) == 4
    facts = json.loads((first / "made_from.json").read_text())
    assert facts["text"] == content_hash(ExerciseText(benchmark.products, 5))
    log = pd.read_csv(first / LOG)
    assert list(zip(log["lesson"], log["step"], strict=True)) == [(0, 25), (0, 26), (1, 3)]
    assert "library_name: transformers" in (first / "README.md").read_text()


def test_completions_are_copies_of_what_the_prompt_says(text):
    for n in range(200):
        prompt, completion = text.exercise(n)
        if f"Tool: {REVIEW}" not in prompt:
            assert {word.strip(",") for word in completion.split()} <= set(re.split(r"[\s,.|:()]+", prompt))
    prompt, completion = text.exercise(3, most_words=4)
    assert f"Tool: {SEARCH}" in prompt and "Memory: \n" in prompt
    assert set(completion.split()) <= set(prompt.split()) | {word.strip(".,?") for word in prompt.split()}


def test_what_is_learned_is_the_completion_and_the_end(text):
    tokenizer = text.tokenizer()
    for n in (0, 20, 40):
        example = text.example(tokenizer, n, LESSONS[1])
        learned = [token for token, written in zip(*example, strict=True) if written]
        assert learned.pop() == tokenizer.eos_token_id
        assert tokenizer.decode(learned) == text.exercise(n)[1]


def test_nothing_of_the_benchmark_is_read_and_no_two_texts_are_alike(text, benchmark):
    said = [" ".join(text.exercise(n)) for n in range(600)]
    assert len(set(said)) == len(said)
    whole = "\n".join(said)
    assert not any(real in whole for real in ids_and_titles(benchmark.products))
    assert not any(task.instruction in whole for split in benchmark.tasks.values() for task in split)


def test_the_text_follows_from_seed_and_products_alone(text, benchmark):
    again = ExerciseText(benchmark.products, 0)
    assert [again.exercise(n) for n in reversed(range(20))][::-1] == [text.exercise(n) for n in range(20)]
    assert content_hash(again) == content_hash(text) != content_hash(ExerciseText(benchmark.products, 1))
