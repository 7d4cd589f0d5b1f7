"""Broken Amazon files: one clear error that names file, record and field."""

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


def error_of(folder, **options) -> DataError:
    with pytest.raises(DataError) as caught:
        load_amazon(folder, **options)
    return caught.value


@pytest.mark.parametrize("case", REVIEW_ERRORS)
def test_broken_review_is_named(amazon_files, case):
    changes, field, message = REVIEW_ERRORS[case]
    amazon_files.change("reviews", 6, changes)
    error = error_of(amazon_files.write())
    assert error.file.endswith("reviews.jsonl.gz")
    assert (error.record, error.field) == ("7", field)
    assert message in str(error)


@pytest.mark.parametrize("case", META_ERRORS)
def test_broken_product_is_named(amazon_files, case):
    changes, field, message = META_ERRORS[case]
    amazon_files.change("metas", 3, changes)
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


MISSING_FILES = {
    "reviews.jsonl.gz": "no review file; expected other files that end in .jsonl or .jsonl.gz",
    "meta.jsonl.gz": "no metadata file; expected meta* files that end in .jsonl or .jsonl.gz",
}


@pytest.mark.parametrize("name", MISSING_FILES)
def test_missing_file(amazon_files, name):
    folder = amazon_files.write()
    (folder / name).unlink()
    error = error_of(folder)
    assert MISSING_FILES[name] in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("name", MISSING_FILES)
def test_link_to_nowhere(amazon_files, name):
    path = amazon_files.write() / name
    path.unlink()
    path.symlink_to("nowhere")
    error = error_of(path.parent)
    assert error.file == str(path)
    assert "No such file" in str(error)


def test_missing_folder(tmp_path):
    error = error_of(tmp_path / "nowhere")
    assert error.file == str(tmp_path / "nowhere")
    assert "no such folder" in str(error)


# Positions of twelve behaviours (10 is train, 11 is test) -> changes; then what has no task.
SETS_WITHOUT_TASKS = {
    "all ratings 3": (
        [(range(12), {"rating": 3})],
        "search in train, recommend in train, search in test, recommend in test;",
    ),
    "tasks only in train": (
        [([11], {"rating": 2, "text": ""})],
        "search in test, recommend in test, review in test;",
    ),
    "tasks only in test": (
        [([10], {"rating": 2, "text": ""})],
        "search in train, recommend in train, review in train;",
    ),
    "review texts only in test": ([(range(11), {"text": None})], "review in train;"),
    "review texts only in train": ([([11], {"text": None})], "review in test;"),
}


@pytest.mark.parametrize("case", SETS_WITHOUT_TASKS)
def test_split_without_a_type_of_task(amazon_files, case):
    changes, missing = SETS_WITHOUT_TASKS[case]
    for positions, values in changes:
        amazon_files.change_reviews(positions, **values)
    error = error_of(amazon_files.write())
    assert f"found no task for {missing} expected tasks of every type in train and test" in str(error)
    assert "take more users, categories or files" in str(error)
    assert "\n" not in str(error)


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


def test_nobody_with_enough_behaviours_says_what_to_lower(amazon_files):
    error = error_of(amazon_files.write(), min_behaviors=13)
    assert "at most 12 behaviours of one user; expected users with 13; lower min_behaviors" in str(error)


def test_nobody_with_three_times(amazon_files):
    for review in amazon_files.reviews:
        review["timestamp"] = 1_600_000_000_000 + (review["parent_asin"] > "B000000005")
    assert "users need three different times" in str(error_of(amazon_files.write()))


@pytest.mark.parametrize("memory_limit", ["1KB", "plenty"])
def test_memory_limit_that_cannot_do(amazon_files, memory_limit):
    assert "expected a memory_limit" in str(error_of(amazon_files.write(), memory_limit=memory_limit))


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
