"""Files spoiled at random, hundreds of times a source: one clear error, or a benchmark that is sound.

Never a traceback of anything else than DataError, and never a benchmark that holds what cannot be: a task
whose own answer is in sight, a task twice, times to come, parts of stars, prices beyond reason, a split
without tasks.
"""

import copy
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from pwagents.data.amazon import load_amazon
from pwagents.data.parquet import read_parquet, write_parquet
from pwagents.data.personalwab import load_personalwab
from pwagents.errors import DataError

from .conftest import DAY, FIRST

IN_2030, HIGHEST_PRICE = 1_893_456_000_000, 1e6
ODD = (
    *(None, "", " ", "x", "B0", -1, 0, 3, 4.73, 6, 1e300, -1e300, 10**12, 10**30, float("nan"), True),
    *([], {}, ["a"], {"a": 1}, [[[1]]], "\ud800", "\x00", "\u200b", "9" * 5000, "1,299.00", "from 9.99"),
    *(4_080_000_000_000, FIRST // 1000, FIRST + 1, FIRST * 1000, "2021-01-01", FIRST + 5 * DAY + 1),
)


def check_sound(benchmark) -> None:
    """What a benchmark that was accepted must hold."""
    reviews = [b.review for own in benchmark.behaviors.values() for b in own]
    reviews += [task.review for task in benchmark.all_tasks()]
    times = [b.timestamp for own in benchmark.behaviors.values() for b in own]
    times += [task.timestamp for task in benchmark.all_tasks()]
    assert all(review.rating in (1, 2, 3, 4, 5) for review in reviews)
    assert all(time < IN_2030 for time in times)
    assert all((product.price or 0) <= HIGHEST_PRICE for product in benchmark.products.values())
    assert all(benchmark.tasks[split] for split in ("train", "test"))
    listed = [(t.user_id, t.target, t.timestamp, t.type, t.instruction) for t in benchmark.all_tasks()]
    assert len(set(listed)) == len(listed)
    bought = {
        split: {(t.user_id, t.target, t.timestamp) for t in tasks} for split, tasks in benchmark.tasks.items()
    }
    assert not bought["train"] & bought["test"]
    for split, tasks in benchmark.tasks.items():
        for task in tasks:
            past = benchmark.history(task, split, "as_published")
            assert all((b.parent_asin, b.review) != (task.target, task.review) for b in past), task.task_id


def places(value, path=()):
    """The paths to all values of a JSON value, containers included."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*path, key)
        yield from places(part, (*path, key))


def spoil_value(records, chance: random.Random) -> str:
    """Change one value of some records: to an odd one, by a little, or away; or list it twice."""
    *parents, last = chance.choice(list(places(records)))
    holder = records
    for key in parents:
        holder = holder[key]
    old, way = holder[last], chance.choice(("odd", "odd", "odd", "little", "away", "twice"))
    if way == "away":
        del holder[last]
    elif way == "twice" and isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), copy.deepcopy(old))
    elif way == "little" and isinstance(old, int | float):
        holder[last] = old + chance.choice((-1, 1, 0.5))
    else:
        holder[last] = chance.choice(ODD)
    return f"{way} {parents} {last}"


def spoil_bytes(path: Path, chance: random.Random) -> str:
    """Change, cut out or put in some bytes of a file."""
    old, place = path.read_bytes(), chance.randrange(path.stat().st_size)
    new = bytes(chance.randrange(256) for _ in range(chance.choice((0, 1, 1, 4))))
    path.write_bytes(old[:place] + new + old[place + chance.choice((0, 1, 30)) :])
    return f"bytes of {path.name} at {place}"


def accept_or_refuse(load, spoiled: object):
    """The benchmark, or None where one line says what is wrong."""
    try:
        return load()
    except DataError as error:
        assert "\n" not in str(error) and "; expected " in str(error), spoiled
    except Exception as error:
        raise AssertionError(f"{spoiled}: {type(error).__name__}: {error}") from error
    return None


def test_personalwab(personalwab_files):
    original, refused, chance = copy.deepcopy(personalwab_files.records), 0, random.Random(0)
    n = 320
    for _ in range(n):
        personalwab_files.records = copy.deepcopy(original)
        in_bytes = chance.random() < 0.2
        spoiled = "" if in_bytes else spoil_value(personalwab_files.records, chance)
        try:
            folder = personalwab_files.write()
        except (AttributeError, KeyError, TypeError):
            continue  # a whole table is gone: nothing that could be written
        if in_bytes:
            spoiled = spoil_bytes(chance.choice(sorted(folder.glob("*.json"))), chance)
        made = accept_or_refuse(lambda: load_personalwab(personalwab_files.folder), spoiled)
        refused += made is None
        if made is not None:
            check_sound(made)
    assert n / 5 < refused < n


def test_amazon(amazon_files):
    """Five spoiled values a file, since each scan takes long."""
    original, refused, chance = copy.deepcopy(amazon_files.records), 0, random.Random(0)
    for _ in range(61):
        records = copy.deepcopy(original)
        amazon_files.metas, amazon_files.reviews = records["metas"], records["reviews"]
        mild = (
            chance.random() < 0.5
        )  # values that are mended, so that they are not hidden by one that is refused
        spoiled = [spoil_record(records, chance) if mild else spoil_value(records, chance) for _ in range(5)]
        amazon_files.write("reviews.jsonl", "meta.jsonl")
        if chance.random() < 0.2:
            spoiled.append(
                spoil_bytes(amazon_files.folder / chance.choice(("reviews.jsonl", "meta.jsonl")), chance)
            )
        made = accept_or_refuse(lambda: load_amazon(amazon_files.folder, n_users=2, min_behaviors=3), spoiled)
        refused += made is None
        if made is not None:
            check_sound(made)
    assert 15 < refused < 55


def spoil_record(records: dict, chance: random.Random) -> str:
    """A value of the right kind that cannot be, or a record twice."""
    review, meta = chance.choice(records["reviews"]), chance.choice(records["metas"])
    way = chance.choice(("rating", "price", "stars", "time", "twice", "number"))
    if way == "rating":
        review["rating"] = chance.choice((4.73, 0, 6, -1e300, 1.0000001))
    elif way == "price":
        meta["price"] = chance.choice((1e300, "9" * 400, -5, "$1e300", 1e7))
    elif way == "stars":
        meta["average_rating"] = chance.choice((7, -1, 1e300))
    elif way == "number":
        meta["rating_number"] = chance.choice((1e300, -1, 2.5, 10**30))
    elif way == "time":
        review["timestamp"] += chance.choice((-1, 1, DAY))
    else:
        records["reviews"].append(dict(review))
    return way


@pytest.fixture
def written(personalwab_files, tmp_path):
    benchmark, folder = load_personalwab(personalwab_files.write()), tmp_path / "parquet"
    bought = tuple((FIRST + i, asin) for i, asin in enumerate(sorted(benchmark.products)))
    benchmark = replace(benchmark, population={"P1": bought, "P2": bought[1:]})
    write_parquet(benchmark, folder, licence="other")
    return benchmark, folder


def test_parquet(written):
    """What is not as it was written is refused."""
    benchmark, folder = written
    files = [folder / "benchmark.json", *sorted(folder.rglob("*.parquet"))]
    sound, refused, chance = {file: file.read_bytes() for file in files}, 0, random.Random(0)
    n = 300
    for _ in range(n):
        file = chance.choice(files)
        in_bytes = file.suffix == ".json" or chance.random() < 0.3
        spoiled = spoil_bytes(file, chance) if in_bytes else spoil_cell(file, chance)
        made = accept_or_refuse(lambda: read_parquet(folder), spoiled)
        refused += made is None
        assert made is None or made.content_hash == benchmark.content_hash, spoiled
        file.write_bytes(sound[file])
    assert refused > n / 2


def spoil_cell(file: Path, chance: random.Random) -> str:
    """Another value of its type in a cell, a row twice, or a row away."""
    table = parquet.read_table(file)
    rows, column = table.to_pylist(), chance.choice(table.schema)
    row = chance.randrange(len(rows))
    way = chance.choice(("value", "value", "twice", "away"))
    if way == "value":
        rows[row][column.name] = chance.choice(_CELLS.get(str(column.type), ([], None)))
    elif way == "twice":
        rows.insert(row, rows[row])
    else:
        del rows[row]
    parquet.write_table(pa.Table.from_pylist(rows, table.schema), file)
    return f"{file.name}, {way}, {column.name} of row {row}"


_CELLS = {
    "string": ("", " ", "x", None, "B000000001", "\x00"),
    "int64": (0, -1, None, 4_080_000_000_000, FIRST + 1, 2**62),
    "double": (4.73, 1e300, float("nan"), -1.0, None, 0.0),
}
