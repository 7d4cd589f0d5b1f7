"""The content words of an instruction: what is wanted, without what it is wrapped into."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.web.analyzer import tokenize
from pwagents.web.content_words import content_words


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("Hello there, could you find me some mix from Oakhaven, as a gift pack?", "mix Oakhaven gift pack"),
        ("I'm looking for a USB-C cable. Thanks a lot!", "USB C cable lot"),
        ("find me something, please", "find me something, please"),  # nothing else is left
    ],
)
def test_what_is_wanted_is_left(instruction, words):
    assert content_words(instruction) == words


@given(st.text())
def test_words_are_the_instructions_own_in_its_order(instruction):
    words = iter(tokenize(instruction))
    assert all(word in words for word in tokenize(content_words(instruction)))
