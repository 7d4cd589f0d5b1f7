"""Dirty and broken Amazon files: one clear error that names the record, or a counted repair."""

import copy
import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pwagents.data.amazon import load_amazon
from pwagents.errors import DataError

REVIEW_ERRORS = {
    "user missing": ({"user_id": ...}, "user_id", "found no such field; expected text"),
    "user null": ({"user_id": None}, "user_id", "found null null; expected text"),
    "user empty": ({"user_id": ""}, "user_id", "expected an id without spaces"),
    "user a number": ({"user_id": 12}, "user_id", "found whole number 12; expected text"),
    "product missing": ({"parent_asin": ...}, "parent_asin", "found no such field"),
    "product with spaces": ({"parent_asin": " B0 "}, "parent_asin", "expected an id without spaces"),
    "rating missing": ({"rating": ...}, "rating", "found no such field"),
    "rating text": ({"rating": "five"}, "rating", 'found text "five"; expected whole number or decimal'),
    "rating boolean": ({"rating": True}, "rating", "found boolean true"),
    "text missing": ({"text": ...}, "text", "found no such field; expected text or null"),
    "text a list": ({"text": ["a"]}, "text", "found list"),
    "title an object": ({"title": {}}, "title", "found object"),
    "time text": ({"timestamp": "2021-01-01"}, "timestamp", "found text"),
    "time null": ({"timestamp": None}, "timestamp", "found null"),
    "time negative": ({"timestamp": -5}, "timestamp", "found -5; expected whole milliseconds since 1970"),
    "time in seconds": ({"timestamp": 1_600_000_000}, "timestamp", "which looks like seconds"),
    "time in microseconds": (
        {"timestamp": 1_600_000_000_000_000},
        "timestamp",
        "expected whole milliseconds",
    ),
    "time decimal": ({"timestamp": 1.6e12 + 0.5}, "timestamp", "found decimal number"),
    "time huge": ({"timestamp": 10**40}, "timestamp", "expected whole milliseconds"),
}
META_ERRORS = {
    "product missing": ({"parent_asin": ...}, "parent_asin", "found no such field"),
    "product null": ({"parent_asin": None}, "parent_asin", "found null"),
    "title missing": ({"title": ...}, "title", "found no such field; expected text or null"),
    "title a list": ({"title": ["a"]}, "title", "found list"),
    "category missing": ({"main_category": ...}, "main_category", "found no such field"),
    "price a list": (
        {"price": [1]},
        "price",
        "found list [1]; expected whole number or decimal number or text",
    ),
    "price boolean": ({"price": False}, "price", "found boolean"),
    "features a number": ({"features": 3}, "features", "found whole number 3; expected list or text or null"),
    "details a list": ({"details": []}, "details", "found list []; expected object or text or null"),
    "rating text": ({"average_rating": "4"}, "average_rating", "found text"),
    "store a list": ({"store": ["a"]}, "store", "found list"),
}
BROKEN_LINES = {
    "not JSON": (b"rating,title", "what is not JSON"),
    "half a record": (b'{"rating": 5.0,', "what is not JSON"),
    "two records": (b'{"a": 1} {"b": 2}', "what is not JSON"),
    "an array": (b"[1, 2]", "a JSON list; expected one JSON object a line"),
    "a number": (b"5", "a JSON whole number; expected one JSON object a line"),
    "invalid UTF-8": (
        b'{"text": "\xff\xfe"}',
        "bytes that are not text (invalid start byte); expected UTF-8",
    ),
    "half a surrogate pair": (b'{"text": "\\ud800"}', "expected UTF-8"),
    "too deep": (b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "what is not JSON"),
}


def changed(record: dict, changes: dict) -> dict:
    """``record`` with ``changes``, where ... takes a field away."""
    return {key: value for key, value in (record | changes).items() if value is not ...}


def error_of(folder, **options) -> DataError:
    with pytest.raises(DataError) as caught:
        load_amazon(folder, **options)
    return caught.value


@pytest.mark.parametrize("case", REVIEW_ERRORS)
def test_broken_review_is_named(amazon_files, case):
    changes, field, message = REVIEW_ERRORS[case]
    amazon_files.reviews[6] = changed(amazon_files.reviews[6], changes)
    error = error_of(amazon_files.write())
    assert error.file.endswith("reviews.jsonl.gz")
    assert (error.record, error.field) == ("7", field)
    assert message in str(error)


@pytest.mark.parametrize("case", META_ERRORS)
def test_broken_product_is_named(amazon_files, case):
    changes, field, message = META_ERRORS[case]
    amazon_files.metas[3] = changed(amazon_files.metas[3], changes)
    error = error_of(amazon_files.write())
    assert error.file.endswith("meta.jsonl.gz")
    assert (error.record, error.field) == ("4", field)
    assert message in str(error)


@pytest.mark.parametrize("records", ["reviews", "metas"])
@pytest.mark.parametrize("case", BROKEN_LINES)
def test_broken_line_is_named(amazon_files, case, records):
    line, message = BROKEN_LINES[case]
    getattr(amazon_files, records)[2:2] = [b"", line]  # an empty line before it counts as a line
    error = error_of(amazon_files.write())
    assert (error.record, error.field) == ("4", "(line)")
    assert message in str(error)


def test_record_is_broken_wherever_it_stands(amazon_files):
    """A review that no user, product or rating would let in is checked as well."""
    amazon_files.reviews.append(amazon_files.review("LONER", 0, parent_asin="UNKNOWN", rating=9, timestamp=3))
    assert error_of(amazon_files.write()).record == "25"


@pytest.mark.parametrize("keep", [0.3, 0.9])
@pytest.mark.parametrize("name", ["reviews", "meta"])
def test_truncated_gzip(amazon_files, name, keep):
    path = amazon_files.write() / f"{name}.jsonl.gz"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    error = error_of(path.parent)
    assert error.file == str(path)
    assert "unreadable data" in str(error)


def test_gz_that_is_plain_text(amazon_files):
    path = amazon_files.write() / "reviews.jsonl.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()))
    assert "Not a gzipped file" in str(error_of(path.parent))


@pytest.mark.parametrize("name", ["reviews.jsonl.gz", "meta.jsonl.gz"])
def test_missing_file(amazon_files, name):
    folder = amazon_files.write()
    (folder / name).unlink()
    error = error_of(folder)
    assert "no such file" in str(error)
    assert name.split(".")[0].removesuffix("s") in str(error)


def test_missing_folder(tmp_path):
    assert "no such file" in str(error_of(tmp_path / "nowhere"))


@pytest.mark.parametrize("name", ["reviews.jsonl.gz", "meta.jsonl.gz"])
@pytest.mark.parametrize("content", [b"", gzip.compress(b"")])
def test_empty_file(amazon_files, name, content):
    (amazon_files.write() / name).write_bytes(content)
    assert str(amazon_files.folder) in str(error_of(amazon_files.folder))


def test_byte_order_mark_is_an_error_with_its_line(amazon_files):
    amazon_files.reviews[0] = b"\xef\xbb\xbf" + json.dumps(amazon_files.reviews[0]).encode()
    error = error_of(amazon_files.write())
    assert error.record == "1"
    assert "not JSON" in str(error)


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
    amazon_files.metas[3] = changed(amazon_files.metas[3], changes)
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


@pytest.mark.parametrize("rating", [0, 6, -1.0, float("nan")])
def test_rating_outside_its_scale_is_dropped(amazon_files, rating):
    amazon_files.reviews.append(amazon_files.review("UANN", 4, rating=rating, timestamp=1_650_000_000_000))
    assert repairs_of(amazon_files) == {"review with a rating outside 1 to 5 dropped": 1}


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


def test_nobody_with_enough_behaviours_says_what_to_lower(amazon_files):
    error = error_of(amazon_files.write(), min_behaviors=13)
    assert "at most 12 behaviours of one user; expected users with 13; lower min_behaviors" in str(error)


def test_nobody_with_three_times(amazon_files):
    for review in amazon_files.reviews:
        review["timestamp"] = 1_600_000_000_000 + (review["parent_asin"] > "B000000005")
    assert "no user with behaviours at three times or more" in str(error_of(amazon_files.write()))


def test_category_that_is_not_there(amazon_files):
    error = error_of(amazon_files.write(), categories=["Books"])
    assert "no product of ['Books']; expected categories among ['Home and Kitchen']" in str(error)


def test_too_small_minimum_is_refused(amazon_files):
    with pytest.raises(ValueError, match="needs at least 3"):
        load_amazon(amazon_files.write(), min_behaviors=2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=st.sampled_from(["reviews", "metas"]),
    field=st.sampled_from(
        ["parent_asin", "title", "price", "details", "features", "text", "rating", "timestamp"]
    ),
    value=JSON,
)
def test_any_value_in_any_field_is_mended_or_named(amazon_files, table, field, value):
    files = copy.deepcopy(amazon_files)
    getattr(files, table)[5][field] = value
    try:
        benchmark = load_amazon(files.write(), n_users=2)
    except DataError as error:
        assert (error.record, error.field) == ("6", field)
    else:
        assert "UBOB" in benchmark.behaviors
