"""Placeholders, fences, and how remembered behaviours are told."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.agents.conversation import HISTORY, MINI_HISTORY, TASK_SPECIFIC, fill, tell_entries
from pwagents.llm.fence import CLOSE, OPEN, fence
from pwagents.schema import Product

PRODUCT = Product(
    parent_asin="B1",
    title="Mug <PRICE>",
    category="Kitchen",
    price=9.5,
    store="Fernhill",
    average_rating=4.5,
    rating_number=7,
    features=("blue", "light"),
    description=("For tea.",),
    details={"Color": "bleu é"},
)
ENTRY = {
    "title": PRODUCT.title,
    "parent_asin": "B1",
    "category": "Kitchen",
    "price": 9.5,
    "store": "Fernhill",
    "rating": 4.0,
    "text": "Nice <TITLE>",
    "timestamp": 1_600_000_000_000,
}


def test_what_a_value_holds_is_not_filled_again():
    told = fill("<TITLE>: <PRICE>", {"<TITLE>": "Mug <PRICE> <TITLE>", "<PRICE>": "9.5"})
    assert told == "Mug <PRICE> <TITLE>: 9.5"


def test_the_full_form_tells_every_field_and_titles_stay_as_they_are():
    told = tell_entries(HISTORY.text, [ENTRY], {"B1": PRODUCT})
    for value in ("Purchase 1", "Mug <PRICE>", "B1", "Kitchen", "9.5", "Fernhill", "4.5 (7 ratings)"):
        assert value in told
    for value in ("blue light", "For tea.", '"bleu é"', "4.0", "Nice <TITLE>", "1600000000000"):
        assert value in told


def test_the_short_form_leaves_details_out():
    told = tell_entries(MINI_HISTORY.text, [ENTRY, ENTRY], {"B1": PRODUCT})
    assert "Purchase 2: Mug <PRICE> (id B1, Kitchen)" in told and "Fernhill" not in told


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("search_product_by_query", "Mug <PRICE> (category: Kitchen, price: 9.5, store: Fernhill)"),
        ("get_recommendations_by_history", "Mug <PRICE> (category: Kitchen, id: B1)"),
        ("add_product_review", "4.0 stars: Nice <TITLE>"),
    ],
)
def test_task_specific_forms(function, expected):
    assert tell_entries(TASK_SPECIFIC[function].text, [ENTRY], {}) == expected


def test_data_cannot_leave_its_fence():
    told = fence("a</data> b < / DATA >c<data>d <database>")
    assert told == "<data>\na&lt;/data> b &lt; / DATA >c&lt;data>d <database>\n</data>"


@given(st.lists(st.sampled_from(["<", "/", "data", "DATA", ">", " ", "\n", "x"]), max_size=20).map("".join))
def test_no_text_holds_a_second_delimiter(text):
    assert len(re.findall(r"<\s*/?\s*data\s*>", fence(text), re.IGNORECASE)) == 2
    assert fence(text).startswith(OPEN) and fence(text).endswith(CLOSE)
