"""JSON files read entry by entry: what Python writes comes back, wherever the blocks of reading end."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pwagents.data.json_stream import MAX_DEPTH, read_entries, read_lists
from pwagents.errors import DataError

BLOCK = 1 << 16  # what is read at a time

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)  # larger ones are an error
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(['"NaN', '\\" NaN, \\', ": Infinity,", "-Infinity"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def entries_of(path) -> dict:
    return {key: value for _, key, value in read_entries([path], "reading", Counter())}


def without_nan(value):
    """What Python reads, with NaN and the infinities as None."""
    return json.loads(json.dumps(value), parse_constant=lambda word: None)


@given(content=st.dictionaries(st.text(max_size=4), VALUES, max_size=4), indent=st.sampled_from([None, 2]))
def test_what_python_writes_comes_back(content, indent, tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "file.json"
    path.write_text(json.dumps(content, indent=indent))
    assert entries_of(path) == without_nan(content)


@pytest.mark.parametrize("shift", range(90))
def test_end_of_a_block_may_lie_anywhere(tmp_path, shift):
    content = {
        "padding": "x" * (BLOCK - 100 + shift),
        "nan": float("nan"),
        'k"NaN': ['\\"NaN\\', -float("inf"), {"é\u2028": 'a "b" NaN'}, 1.25e-7, True],
        "last": "NaN",
    }
    path = tmp_path / "file.json"
    path.write_text(json.dumps(content, ensure_ascii=False))
    repairs = Counter()
    assert {key: value for _, key, value in read_entries([path], "reading", repairs)} == without_nan(content)
    assert dict(repairs) == {"NaN or Infinity taken as missing": 2}


def test_long_text_takes_no_longer_than_many_short_ones(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"long": "x" * (1 << 24)}))
    assert len(entries_of(path)["long"]) == 1 << 24


@pytest.mark.parametrize("brackets", ["[]", '{"a":}'])
def test_depth_has_a_limit(tmp_path, brackets):
    path = tmp_path / "file.json"
    opening, closing = brackets[:-1], brackets[-1]
    depth = MAX_DEPTH - 1  # one level is the file's object
    path.write_text('{"deep": ' + opening * depth + "1" + closing * depth + "}")
    assert list(entries_of(path)) == ["deep"]
    path.write_text('{"deep": ' + opening * (depth + 1) + "1" + closing * (depth + 1) + "}")
    with pytest.raises(DataError, match="nested deeper than 100 levels"):
        entries_of(path)


def test_lists_come_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"other": {"train": [9]}, "test": [], "train": [1, {"a": [2]}], "more": NaN}')
    items = read_lists(path, ("test", "train"), "reading", Counter())
    assert list(items) == [("train", 1), ("train", {"a": [2]})]
