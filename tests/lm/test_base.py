"""The small base model and PUMA's exercises: made once, the same every time, of nothing that is real."""

import json
import math
import re

import pandas as pd
import pytest

from pwagents.lm.base import ALL_STEPS, CHECK_EVERY, LOG, Lesson, content_hash, pretrain, small_base
from pwagents.lm.exercises import REVIEW, SEARCH, ExerciseText, ids_and_titles
from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.lm.tokens import Example

from . import conftest as tiny

SIZE = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 32}
LESSONS = (
    Lesson(limit=2, batch_size=4, learning_rate=4e-3, accuracy=ALL_STEPS, most_steps=26),
    Lesson(limit=None, batch_size=2, learning_rate=4e-4, accuracy=ALL_STEPS, most_steps=3),
)


@pytest.fixture
def text(benchmark):
    return ExerciseText(benchmark.products, 0)


def test_a_base_model_is_made_once_and_is_the_same_every_time(benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr(ExerciseText, "lessons", LESSONS)

    def make(folder, seed=5, products=benchmark.products, **options):
        return small_base(tmp_path / folder, ExerciseText(products, seed), seed, size=SIZE, **options)

    first, again = make("one"), make("two")
    assert first.name == again.name == make("one", stored_only=True).name
    for name in ("model.safetensors", LOG, "tokenizer.json", "README.md"):
        assert (first / name).read_bytes() == (again / name).read_bytes()
    others = {make("one", seed=6).name, make("one", steps=2).name, make("one", products={}, steps=2).name}
    assert len(others | {first.name}) == 4
    facts = json.loads((first / "made_from.json").read_text())
    assert facts["text"] == content_hash(ExerciseText(benchmark.products, 5))
    log = pd.read_csv(first / LOG)
    assert list(zip(log["lesson"], log["step"], strict=True)) == [(0, 25), (0, 26), (1, 3)]
    assert "library_name: transformers" in (first / "README.md").read_text()


def test_completions_are_copies_of_what_the_prompt_says_and_are_learned_to_their_end(text):
    tokenizer = text.tokenizer()
    for n in range(200):
        prompt, completion = text.exercise(n)
        if f"Tool: {REVIEW}" not in prompt:
            assert {word.strip(",") for word in completion.split()} <= set(re.split(r"[\s,.|:()]+", prompt))
        example = text.example(tokenizer, n, LESSONS[1])
        learned = [token for token, is_learned in zip(*example, strict=True) if is_learned]
        assert learned.pop() == tokenizer.eos_token_id and tokenizer.decode(learned) == completion
    prompt, completion = text.exercise(3, most_words=4)
    assert f"Tool: {SEARCH}" in prompt and "Memory: \n" in prompt
    assert {*completion.split()} <= {*prompt.split()} | {word.strip(".,?") for word in prompt.split()}


def test_nothing_of_the_benchmark_is_read_no_two_texts_are_alike_and_the_seed_decides(text, benchmark):
    texts = [" ".join(text.exercise(n)) for n in range(600)]
    assert len(set(texts)) == len(texts)
    real = {*ids_and_titles(benchmark.products)}
    real |= {task.instruction for split in benchmark.tasks.values() for task in split}
    assert not any(each in "\n".join(texts) for each in real)
    again = ExerciseText(benchmark.products, 0)
    assert [" ".join(again.exercise(n)) for n in reversed(range(20))][::-1] == texts[:20]
    assert content_hash(again) == content_hash(text) != content_hash(ExerciseText(benchmark.products, 1))


class Echo:
    """The user says a word, the assistant says it again between marks; longer texts are of two words."""

    def example(self, tokenizer, n, lesson):
        words = [tiny.WORDS[i % 4] for i in range(n, n + (1 if lesson.limit is not None else 2))]
        ids = [tokenizer.convert_tokens_to_ids([word, "<<", word, ">>"]) for word in words]
        return Example([token for word in ids for token in word], [0, 1, 1, 1] * len(words))

    def copied(self, tokenizer, example):
        return [i == 2 for i in range(len(example.mask))]


def learn(*lessons):
    tokenizer = make_tokenizer(tiny.WORDS, fixed=["<<", ">>"])
    return tokenizer, pretrain(make_small_model(tokenizer, 0, tiny.SIZE), tokenizer, Echo(), lessons)


def test_a_lesson_ends_once_its_accuracy_is_reached_or_after_its_last_step():
    easy = Lesson(limit=0, batch_size=2, learning_rate=1e-3, accuracy=0.0, most_steps=60)
    hard = Lesson(None, batch_size=2, learning_rate=1e-3, accuracy=ALL_STEPS, most_steps=CHECK_EVERY + 3)
    _, log = learn(easy, hard)
    steps = [(0, CHECK_EVERY), (1, CHECK_EVERY), (1, CHECK_EVERY + 3)]
    assert list(zip(log["lesson"], log["step"], strict=True)) == steps


def test_copying_is_learned():
    tokenizer, log = learn(Lesson(limit=0, batch_size=8, learning_rate=1e-2, accuracy=1.0, most_steps=200))
    assert log["query_accuracy"].iloc[-1] == 1.0
    assert log["loss"].iloc[-1] < 0.1 * math.log(len(tokenizer)), "as unsure as at first: the logarithm"
