"""Instructions for real products ask for the right thing and never give it away."""

import re
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.data.instructions import write_instruction
from pwagents.schema import TASK_TYPES, Product, Review
from pwagents.seeds import rng

CHARGER = Product(
    parent_asin="B08J6LZQZ6",
    title="Anker (2 Pack) Foldable USB-C Charger, 20W for iPhone 12",
    category="Electronics",
    price=17.99,
    store="Anker",
)
TEXT = "Charges fast and feels sturdy in my hand. The price is right and it travels well."
PRAISE = Review(rating=4, text=TEXT)
WORDS = st.sampled_from(
    ["I'm", "looking", "for", "a", "review", "the", "help", "find", "shop", "Anker", "20W", "B08J6LZQZ6"]
)
TEXTS = st.text(max_size=60) | st.lists(WORDS, max_size=12).map(" ".join)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def shared_run(text: str, source: str) -> int:
    """The most consecutive words that two texts share."""
    return SequenceMatcher(None, words(text), words(source), autojunk=False).find_longest_match().size


def instructions(task_type, product=CHARGER, review=PRAISE, history=(), n=60) -> list[str]:
    return [write_instruction(task_type, product, review, history, rng(seed)) for seed in range(n)]


@given(
    task_type=st.sampled_from(TASK_TYPES),
    title=TEXTS.filter(str.strip),
    category=st.sampled_from(["Electronics", "Digital Music", "Other", "Arts, Crafts & Sewing"])
    | TEXTS.filter(str.strip),
    store=st.none() | TEXTS,
    price=st.none() | st.floats(0, 5000),
    features=st.lists(TEXTS, max_size=2),
    rating=st.floats(1, 5),
    text=TEXTS,
    seed=st.integers(0, 50),
)
def test_nothing_is_given_away(task_type, title, category, store, price, features, rating, text, seed):
    product = Product(
        parent_asin="B08J6LZQZ6", title=title, category=category, price=price, store=store, features=features
    )
    review = Review(rating=rating, text=text)
    instruction = write_instruction(task_type, product, review, (), rng(seed))
    assert instruction.strip()
    assert len(instruction.split()) <= 40
    assert "b08j6lzqz6" not in instruction.lower()
    n_title, n_text = len(words(title)), len(words(text))
    assert shared_run(instruction, title) < (min(3, n_title) or 1)
    if task_type == "review":
        assert shared_run(instruction, text) < (min(4, n_text) or 1)


@pytest.mark.parametrize(
    ("rating", "expected"),
    [(1, "one[ -]star"), (2, "two[ -]star"), (3.5, "three[ -]and[ -]a[ -]half[ -]star"), (5, "five[ -]star")],
)
def test_review_names_kind_stars_and_a_cue(rating, expected):
    texts = instructions("review", review=PRAISE.model_copy(update={"rating": rating}))
    assert all(re.search(expected, text) and "charger" in text for text in texts)
    assert all(re.search("fast|sturdy|price", text) for text in texts)
