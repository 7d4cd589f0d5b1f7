"""Dirty values in sound Amazon files are mended, and what was mended is counted."""

import json

import pytest

from pwagents.data.amazon import load_amazon

# A dirty value of one product -> the field and value it becomes, and the repair that is counted (None: none).
PRODUCT_REPAIRS = {
    "price as text": ({"price": "15.6"}, "price", 15.6, None),
    "price in dollars": ({"price": "$1,299.00"}, "price", 1299.0, None),
    "price from": ({"price": "from 9.99"}, "price", 9.99, "price that is a range"),
    "price range": ({"price": "9.99 - 12.99"}, "price", 9.99, "price that is a range"),
    "price dash": ({"price": "\u2014"}, "price", None, "price that is text without a number"),
    "price NaN": ({"price": float("nan")}, "price", None, "price that cannot be"),
    "price infinite": ({"price": float("inf")}, "price", None, "price that cannot be"),
    "price negative": ({"price": -3}, "price", None, "price that cannot be"),
    "price negative text": ({"price": "-3.00"}, "price", None, "price that cannot be"),
    "price null": ({"price": None}, "price", None, None),
    "price absent": ({"price": ...}, "price", None, None),
    "stars too high": ({"average_rating": 7.5}, "average_rating", None, "average_rating that cannot be"),
    "number NaN": ({"rating_number": float("nan")}, "rating_number", None, "rating_number that cannot be"),
    "number decimal": ({"rating_number": 12.0}, "rating_number", 12, None),
    "title null": ({"title": None}, "title", "Untitled", "product without title"),
    "title blank": ({"title": " \t "}, "title", "Untitled", "product without title"),
    "title HTML": (
        {"title": "Salt &amp; <b>Pepper</b><br/>Mill <Side A>"},
        "title",
        "Salt & Pepper Mill <Side A>",
        "HTML removed from product title",
    ),
    "title control": ({"title": "Salt\u0000 \u0007Mill"}, "title", "Salt Mill", None),
    "features null": ({"features": None}, "features", (), None),
    "features text": ({"features": "Solid"}, "features", ("Solid",), None),
    "features odd": ({"features": ["a", None, 3, ""]}, "features", ("a", "3"), None),
    "details object": ({"details": {"A": 1, "B": [1, "x"]}}, "details", {"A": "1", "B": "1, x"}, None),
    "details nested": ({"details": '{"R": {"S": 3}}'}, "details", {"R": "S: 3"}, None),
    "details no JSON": ({"details": "{'A': 1}"}, "details", {}, "details that are no JSON object"),
    "details a JSON list": ({"details": "[1]"}, "details", {}, "details that are no JSON object"),
    "details blank": ({"details": ""}, "details", {}, None),
    "details surrogate": ({"details": '{"A": "x\\ud800y"}'}, "details", {"A": "x y"}, None),
    "details null": ({"details": None}, "details", {}, None),
    "store blank": ({"store": " "}, "store", None, None),
    "category null": ({"main_category": None}, "category", "Other", None),
    "category of a paper": ({"main_category": "Computers"}, "category", "Electronics", None),
    "category of its own": ({"main_category": "Pet Supplies"}, "category", "Pet Supplies", None),
}


@pytest.mark.parametrize("case", PRODUCT_REPAIRS)
def test_dirty_product_is_mended_and_counted(amazon_files, case):
    changes, field, value, repair = PRODUCT_REPAIRS[case]
    amazon_files.change("metas", 3, changes)
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert getattr(benchmark.products["B000000003"], field) == value
    assert [count for name, count in benchmark.repairs.items() if repair and repair in name] == [1] * bool(
        repair
    )
    assert len(benchmark.repairs) == bool(repair)


def repairs_of(amazon_files) -> dict:
    return dict(load_amazon(amazon_files.write(), n_users=2).repairs)


def test_product_listed_twice_counts_where_it_is_first(amazon_files):
    amazon_files.metas.insert(8, amazon_files.meta(3, title="Second", main_category="Books"))
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert benchmark.products["B000000003"].title != "Second"
    assert dict(benchmark.repairs) == {"product listed again dropped (the first is kept)": 1}


def test_details_keep_their_order_and_the_first_of_two_equal_keys_counts(amazon_files):
    amazon_files.metas[3]["details"] = "HERE"
    line = json.dumps(amazon_files.metas[3]).replace('"HERE"', '{"Z": 1, "A": 2, "Z": 3}')
    amazon_files.metas[3] = line.encode()
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert list(benchmark.products["B000000003"].details.items()) == [("Z", "1"), ("A", "2")]


def test_same_review_twice_is_one(amazon_files):
    amazon_files.reviews.append(amazon_files.review("UANN", 4, text="Again"))
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert len(benchmark.behaviors["UANN"]) == 12
    assert "Again" not in {b.review.text for b in benchmark.behaviors["UANN"]}
    assert list(benchmark.repairs.values()) == [1]


def test_same_product_at_another_time_is_another_behaviour(amazon_files):
    amazon_files.reviews.append(amazon_files.review("UANN", 4, timestamp=1_650_000_000_000))
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert len(benchmark.behaviors["UANN"]) == 13
    assert not benchmark.repairs


def test_review_of_unknown_product_is_dropped(amazon_files):
    amazon_files.reviews.append(amazon_files.review("UANN", 4, parent_asin="B0UNKNOWN"))
    assert repairs_of(amazon_files) == {"review of an unknown product dropped": 1}


@pytest.mark.parametrize("rating", [0, 6, -1.0, 4.73, float("nan")])
def test_rating_that_is_no_number_of_stars_is_dropped(amazon_files, rating):
    amazon_files.reviews.append(amazon_files.review("UANN", 4, rating=rating, timestamp=1_650_000_000_000))
    assert repairs_of(amazon_files) == {"review with a rating other than 1, 2, 3, 4 or 5 stars dropped": 1}


@pytest.mark.parametrize("text", ["", "  ", "<br />", None])
def test_review_without_text_is_kept_but_no_review_task_is_made(amazon_files, text):
    amazon_files.reviews[11]["text"] = text  # Ann's last, her test behaviour
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert len(benchmark.behaviors["UANN"]) == 12
    assert [t.type for t in benchmark.tasks["test"] if t.user_id == "UANN"] == ["search", "recommend"]
    assert benchmark.repairs["review without text kept (no review task made)"] == 1


def test_review_text_is_cleaned_of_html(amazon_files):
    amazon_files.reviews[11]["text"] = "Great.<br /><br />Don&#39;t  wait & buy"
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert benchmark.behaviors["UANN"][-1].review.text == "Great. Don't wait & buy"
    assert dict(benchmark.repairs) == {"HTML removed from review text": 1}


def test_fewer_users_than_asked_for_are_reported(amazon_files):
    benchmark = load_amazon(amazon_files.write(), n_users=50, min_behaviors=12)
    assert len(benchmark.behaviors) == 2
    assert dict(benchmark.repairs) == {"users missing of the 50 asked for: no more have 12 behaviours": 48}
