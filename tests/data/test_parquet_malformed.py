"""Parquet folders: what is no written benchmark is not replaced, and a broken one gives one clear error."""

import os
import re
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from pwagents.data import parquet as benchmark_parquet
from pwagents.data.parquet import read_parquet, write_parquet
from pwagents.errors import DataError
from pwagents.schema import Behavior, Benchmark, Product, Review, Task, UserProfile


def make_small():
    """Two users with three behaviours each, one of them with a profile; a third who has a profile alone."""
    review = Review(rating=4, title="Fine", text="Does what it should.")
    products = {
        asin: Product(parent_asin=asin, title=f"Product {asin}", category="Toys", details={"Colour": "red"})
        for asin in ("A", "B", "C")
    }
    behaviors = {
        user: tuple(
            Behavior(parent_asin=asin, timestamp=time, review=review) for time, asin in enumerate("ABC", 1)
        )
        for user in ("ann", "bob")
    }
    task = {"user_id": "ann", "timestamp": 3, "instruction": "Find it", "target": "C", "review": review}
    tasks = {"test": (Task(task_id="t1", type="search", **task), Task(task_id="t2", type="review", **task))}
    profile = UserProfile(**{name: f"some {name}" for name in UserProfile.model_fields})
    return Benchmark("small", products, behaviors, tasks, {"bob": profile, "eve": profile}, {"mended": 2})


@pytest.fixture
def small():
    return make_small()


@pytest.fixture
def folder(small, tmp_path):
    write_parquet(small, tmp_path / "small", licence="mit")
    return tmp_path / "small"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A benchmark and its folder, for a test that puts the folder in order again itself."""
    folder = tmp_path_factory.mktemp("written") / "small"
    write_parquet(make_small(), folder, licence="mit")
    return make_small(), folder


# What cannot be written


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"products": {"store": "a\ud800"}},
            r"products/full.parquet.*'A', field 'store': found half a surrogate pair",
        ),
        ({"products": {"features": ("a", "\udfff")}}, "field 'features': found half a surrogate pair"),
        ({"products": {"details": {"\ud800": "a"}}}, "field 'details': found half a surrogate pair"),
        (
            {"products": {"rating_number": 2**63}},
            "field 'rating_number': found 9223372036854775808; expected",
        ),
        ({"products": {"parent_asin": "Z"}}, "small, record product A, field 'parent_asin': found Z"),
        ({"name": "\ud800"}, r"benchmark.json, record -, field 'name, repairs': found half a surrogate"),
        ({"repairs": {"\ud800": 1}}, "benchmark.json.*found half a surrogate"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_left(small, tmp_path, changes, message):
    if "products" in changes:
        spoilt = small.products["A"].model_copy(update=changes["products"])
        changes = {"products": {**small.products, "A": spoilt}}
    with pytest.raises(DataError, match=message):
        write_parquet(replace(small, **changes), tmp_path / "new", licence="mit")
    assert not list(tmp_path.iterdir())


def test_an_unknown_split_is_refused(small, tmp_path):
    with pytest.raises(ValueError, match="split is 'dev'; expected one of train, test"):
        write_parquet(replace(small, tasks={"dev": ()}), tmp_path / "new", licence="mit")


# Where it is written


def test_an_empty_folder_and_missing_parents_are_no_hindrance(small, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "new" / "deep"):
        write_parquet(small, folder, licence="mit")
        assert read_parquet(folder) == small


def test_what_is_there_is_left_alone(small, folder, tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (folder, tmp_path / "file"):
        with pytest.raises(FileExistsError, match="exists already: choose another folder"):
            write_parquet(replace(small, name="other"), path, licence="mit")
    assert read_parquet(folder) == small and (tmp_path / "file").read_text() == "mine"


def test_a_failed_write_leaves_nothing(small, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(benchmark_parquet, "write_card", fail)
    with pytest.raises(OSError, match="disk full"):
        write_parquet(small, tmp_path / "small", licence="mit")
    assert not os.listdir(tmp_path)


# Broken folders


def change(folder, table, edit):
    """Edit the rows of a table (a list of dicts) and write them with the same columns."""
    (path,) = (folder / table).glob("*.parquet")
    found = parquet.read_table(path)
    rows = found.to_pylist()
    edit(rows)
    schema = pa.schema([field.with_nullable(True) for field in found.schema])
    parquet.write_table(pa.Table.from_pylist(rows, schema), path)


def set_value(i, **changes):
    return lambda rows: rows[i].update(changes)


@pytest.mark.parametrize(
    ("table", "edit", "message"),
    [
        ("products", set_value(1, title=None), r"row 1 \(from 0\), field 'title': found None"),
        ("products", set_value(1, details=None), "row 1 .*field 'details': found None"),
        (
            "products",
            set_value(1, details=[None]),
            "row 1 .*field 'details.*': found None; expected Input should",
        ),
        ("products", set_value(1, features=[None]), "row 1 .*field 'features.0': found None"),
        ("products", set_value(2, price=-1.0), "row 2 .*field 'price': found -1.0; expected .*greater than"),
        ("products", set_value(2, parent_asin="A"), "row 2 .*field 'parent_asin': found 'A' a second time"),
        (
            "products",
            set_value(2, parent_asin="Z"),
            "small, record user ann, behaviour 2, field 'parent_asin'",
        ),
        (
            "products",
            set_value(2, store="Acme"),
            "benchmark.json, record -, field 'content_hash': found [0-9a-f]",
        ),
        ("histories", set_value(1, timestamp=0), "row 1 .*field 'timestamp': found 0"),
        ("histories", set_value(1, timestamp=9), "small, record user ann, behaviour 2, field 'timestamp'"),
        ("histories", set_value(1, review_rating=9.0), "row 1 .*field 'review_rating': found 9.0"),
        ("histories", set_value(1, position=2), "row 1 .*field 'position': found 2; expected 1"),
        ("histories", set_value(1, user_id="zoe"), "row 1 .*field 'user_id': found 'zoe'"),
        ("histories", set_value(1, user_id="eve"), "row 1 .*field 'user_id': found 'eve'"),
        ("histories", lambda rows: rows.pop(), "row 1 .*field 'n_behaviors': found 3; expected 2"),
        ("users", set_value(1, user_id="ann"), "row 1 .*field 'user_id': found 'ann' a second time"),
        ("users", set_value(1, gender=None), "row 1 .*field 'gender': found None"),
        ("tasks", set_value(1, type="buy"), "row 1 .*field 'type': found 'buy'; expected .*'search'"),
        ("tasks", set_value(1, instruction=" "), "row 1 .*field 'instruction': found ' '"),
        ("tasks", lambda rows: rows.pop(), "field 'content_hash'"),
    ],
)
def test_wrong_values_are_named(folder, table, edit, message):
    change(folder, table, edit)
    with pytest.raises(DataError, match=message):
        read_parquet(folder)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda t: t.drop_columns("price"),
            "products/full.*field 'price': found columns of this name: none; expected double",
        ),
        (
            lambda t: t.append_column("colour", t["title"]),
            "field 'colour': found columns of this name: string; expected none",
        ),
        (
            lambda t: t.append_column("price", t["price"]),
            "field 'price': found columns of this name: double, double; expected double",
        ),
        (
            lambda t: t.set_column(3, "price", t["title"]),
            "field 'price': found columns of this name: string; expected double",
        ),
    ],
)
def test_wrong_columns_are_named(folder, edit, message):
    (path,) = (folder / "products").iterdir()
    parquet.write_table(edit(parquet.read_table(path)), path)
    with pytest.raises(DataError, match=message):
        read_parquet(folder)


def test_the_order_of_columns_does_not_matter(small, folder):
    (path,) = (folder / "products").iterdir()
    found = parquet.read_table(path)
    parquet.write_table(found.select(found.column_names[::-1]), path)
    assert read_parquet(folder) == small


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "products/full.parquet",
            None,
            r"full.parquet, record -, field '\(file\)': found .*No such",
        ),
        ("products/full.parquet", b"PAR1", "expected a whole Parquet file"),
        ("products/full.parquet", b"version https", "expected a whole Parquet file"),
        ("benchmark.json", None, "No such file.*expected a folder that write_parquet wrote"),
        ("benchmark.json", b"{", r"benchmark.json, record -, field '\(file\)': .*expected Invalid JSON"),
        ("benchmark.json", b'{"name": 3}', "field 'name': found 3; expected Input should be a valid string"),
        ("benchmark.json", b"{}", "field 'name': found {}; expected Field required"),
    ],
)
def test_missing_and_broken_files_are_named(folder, name, content, message):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_parquet(folder)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "none" / "benchmark.json"))):
        read_parquet(tmp_path / "none")


@given(st.data())
def test_damaged_bytes_never_pass_for_a_benchmark(written, data):
    benchmark, folder = written
    path = data.draw(st.sampled_from(sorted(folder.rglob("*.parquet"))))
    sound = path.read_bytes()
    place = data.draw(st.integers(0, len(sound) - 1))
    length = data.draw(st.integers(0, 4))
    path.write_bytes(sound[:place] + data.draw(st.binary(max_size=4)) + sound[place + length :])
    try:
        assert read_parquet(folder) == benchmark
    except DataError as error:
        assert str(folder) in str(error)
    finally:
        path.write_bytes(sound)
