"""Broken Amazon files beyond the table of test_robustness.py: several records, whole sets, options."""

import copy
import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pwagents.data.amazon import load_amazon
from pwagents.errors import DataError


def error_of(folder, **options) -> DataError:
    with pytest.raises(DataError) as caught:
        load_amazon(folder, **options)
    return caught.value


def test_record_is_broken_wherever_it_stands(amazon_files):
    """A review that no user, product or rating would let in is checked as well."""
    amazon_files.reviews.append(amazon_files.review("LONER", 0, parent_asin="UNKNOWN", rating=9, timestamp=3))
    assert error_of(amazon_files.write()).record == "25"


@pytest.mark.parametrize("name", ["reviews.jsonl.gz", "meta.jsonl.gz"])
def test_link_to_nowhere(amazon_files, name):
    path = amazon_files.write() / name
    path.unlink()
    path.symlink_to("nowhere")
    error = error_of(path.parent)
    assert error.file == str(path)
    assert "No such file" in str(error)


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
@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["no bytes", "packed"])
def test_empty_file(amazon_files, name, content):
    (amazon_files.write() / name).write_bytes(content)
    assert str(amazon_files.folder) in str(error_of(amazon_files.folder))


def test_nobody_with_three_times(amazon_files):
    for review in amazon_files.reviews:
        review["timestamp"] = 1_600_000_000_000 + (review["parent_asin"] > "B000000005")
    assert "users need three different times" in str(error_of(amazon_files.write()))


@pytest.mark.parametrize("memory_limit", ["1KB", "plenty"])
def test_memory_limit_that_cannot_do(amazon_files, memory_limit):
    assert "expected a memory_limit" in str(error_of(amazon_files.write(), memory_limit=memory_limit))


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
