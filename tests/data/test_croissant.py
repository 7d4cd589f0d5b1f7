"""An exported benchmark's metadata: any reader of Croissant gets the rows back."""

import hashlib

import pandas as pd
import pytest

from pwagents_old.data.croissant import describe_tables

ROWS = [
    {"task_id": "a", "timestamp": 3, "pairs": [["color", "red"]], "review": {"rating": 4.5, "title": "Good"}},
    {
        "task_id": "b",
        "timestamp": 4,
        "pairs": [["size", "M"], ["fit", ""]],
        "review": {"rating": 1, "title": ""},
    },
]


def plain(value):
    """A record in the words of the table: without the names of record sets, and with texts as texts."""
    if isinstance(value, dict):
        return {name.rpartition("/")[2]: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def test_by_the_metadata_a_reader_gets_all_rows_and_the_files_hash(tmp_path):
    mlc = pytest.importorskip("mlcroissant", reason="an extra: pip install -e .[croissant]")
    file = tmp_path / "tasks_test.parquet"
    pd.DataFrame(ROWS).to_parquet(file)
    dataset = mlc.Dataset(describe_tables(tmp_path, "MIT"))
    assert [plain(row) for row in dataset.records("tasks_test")] == ROWS
    (described,) = dataset.metadata.distribution
    assert described.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert dataset.metadata.license == ["MIT"]
