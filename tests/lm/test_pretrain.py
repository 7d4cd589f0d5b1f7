"""Pre-training in lessons: what ends one, and what its progress is measured on."""

import math

import pytest

from pwagents.lm.base import ALL_STEPS, CHECK_EVERY, Lesson, pretrain
from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.lm.tokens import Example

SIZE = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = ["lamp", "mat", "navy", "soft"]
BEGIN, END = "<<", ">>"


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(WORDS, fixed=[BEGIN, END])


class Echo:
    """The user says a word, the assistant says it again; longer texts are of two words."""

    def example(self, tokenizer, n, lesson):
        words = [WORDS[i % len(WORDS)] for i in range(n, n + (1 if lesson.limit is not None else 2))]
        said = [tokenizer.convert_tokens_to_ids([word, BEGIN, word, END]) for word in words]
        return Example([token for word in said for token in word], [0, 1, 1, 1] * len(words))

    def copied(self, tokenizer, example):
        return [i == 2 for i in range(len(example.mask))]


def learn(tokenizer, *lessons):
    model = make_small_model(tokenizer, 0, SIZE)
    return model, pretrain(model, tokenizer, Echo(), lessons)


def test_a_lesson_ends_once_its_accuracy_is_reached_or_after_its_last_step(tokenizer):
    easy = Lesson(limit=0, batch_size=2, learning_rate=1e-3, accuracy=0.0, most_steps=60)
    hard = Lesson(
        limit=None, batch_size=2, learning_rate=1e-3, accuracy=ALL_STEPS, most_steps=CHECK_EVERY + 3
    )
    _, log = learn(tokenizer, easy, hard)
    steps = [(0, CHECK_EVERY), (1, CHECK_EVERY), (1, CHECK_EVERY + 3)]
    assert list(zip(log["lesson"], log["step"], strict=True)) == steps


def test_copying_is_learned(tokenizer):
    _, log = learn(tokenizer, Lesson(limit=0, batch_size=8, learning_rate=1e-2, accuracy=1.0, most_steps=200))
    assert log["query_accuracy"].iloc[-1] == 1.0
    assert log["loss"].iloc[-1] < 0.1 * math.log(len(tokenizer)), "as unsure as at first: the logarithm"
