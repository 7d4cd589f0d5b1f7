"""Files spoiled at random, hundreds of times a source: one clear error, or a benchmark that is sound.

Never a traceback of anything else than DataError, and never a benchmark that holds what cannot be: a task
whose own answer is in sight, a task twice, times to come, parts of stars, prices beyond reason, a split
without tasks.
"""

import copy
import json
import random
from functools import partial
from pathlib import Path

import pytest

from pwagents.data.amazon import load_amazon
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
    assert len(benchmark.content_hash) == 16  # every text can be hashed
    behaviors = [b for own in benchmark.behaviors.values() for b in own]
    tasks = list(benchmark.all_tasks())
    assert all(each.review.rating in (1, 2, 3, 4, 5) for each in (*behaviors, *tasks))
    assert all(each.timestamp < IN_2030 for each in (*behaviors, *tasks))
    assert all((product.price or 0) <= HIGHEST_PRICE for product in benchmark.products.values())
    assert all(asin == product.parent_asin for asin, product in benchmark.products.items())
    assert all(benchmark.tasks[split] for split in ("train", "test"))
    listed = [(t.user_id, t.target, t.timestamp, t.type, t.instruction) for t in tasks]
    assert len(set(listed)) == len(listed)
    bought = [{(t.user_id, t.target, t.timestamp) for t in benchmark.tasks[s]} for s in ("train", "test")]
    assert not bought[0] & bought[1]
    for split, of_split in benchmark.tasks.items():
        for task in of_split:
            past = benchmark.history(task, split, "published")
            assert all((b.parent_asin, b.review) != (task.target, task.review) for b in past), task.task_id


def places(value, path=()):
    """The paths to all values of a JSON value, containers included."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*path, key)
        yield from places(part, (*path, key))


def spoil_value(records, chance: random.Random) -> str:
    """Change one value: to an odd one, to one of its kind, by a little, or away; or list it twice.

    What keeps its kind is mended, or comes further before it is refused.
    """
    *parents, last = chance.choice(list(places(records)))
    holder = records
    for key in parents:
        holder = holder[key]
    old, way = holder[last], chance.choice(("odd", "odd", "of its kind", "little", "away", "twice"))
    if way == "away":
        del holder[last]
    elif way == "twice" and isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), copy.deepcopy(old))
    elif way in ("little", "of its kind") and isinstance(old, int | float):
        near = (old - 1, old + 1, old + 0.5, old + DAY)
        holder[last] = chance.choice(near if way == "little" else (4.73, 0, 6, -1, 1e300, -1e300, 10**30))
    elif way == "of its kind" and isinstance(old, str):
        holder[last] = chance.choice(("9" * 400, "-5", "$1e300", "\x00", "&amp;", " "))
    else:
        holder[last] = chance.choice(ODD)
    return f"{way} {parents} {last}"


def spoil_bytes(path: Path, chance: random.Random) -> str:
    """Change, cut out or put in some bytes of a file."""
    old, place = path.read_bytes(), chance.randrange(path.stat().st_size)
    new = bytes(chance.randrange(256) for _ in range(chance.choice((0, 1, 1, 4))))
    path.write_bytes(old[:place] + new + old[place + chance.choice((0, 1, 30)) :])
    return f"bytes of {path.name} at {place}"


def is_refused(load, spoiled: object) -> bool:
    """Whether one line says what is wrong; else what is accepted must be sound."""
    try:
        benchmark = load()
    except DataError as error:
        assert "\n" not in str(error) and "; expected " in str(error), spoiled
        return True
    except Exception as error:
        raise AssertionError(f"{spoiled}: {type(error).__name__}: {error}") from error
    check_sound(benchmark)
    return False


SOURCES = {  # what is loaded, how often, how many values are spoiled each time, and the files' names
    "personalwab": (load_personalwab, 320, 1, ()),
    # each scan takes long
    "amazon": (partial(load_amazon, n_users=2, min_behaviors=3), 61, 5, ("reviews.jsonl", "meta.jsonl")),
}


@pytest.mark.parametrize("source", SOURCES)
def test_spoiled_files_are_refused_in_one_line_or_sound(source, request):
    load, n, n_values, names = SOURCES[source]
    files = request.getfixturevalue(f"{source}_files")
    original, refused, chance = copy.deepcopy(files.records), 0, random.Random(0)
    for _ in range(n):
        files.records = copy.deepcopy(original)
        in_bytes = chance.random() < 0.2
        spoiled = [spoil_value(files.records, chance) for _ in range(n_values - in_bytes)]
        try:
            folder = files.write(*names)
        except (AttributeError, KeyError, TypeError):
            continue  # a whole table is gone: nothing that could be written
        if in_bytes:
            spoiled.append(spoil_bytes(chance.choice(sorted(folder.glob("*.json*"))), chance))
        refused += is_refused(partial(load, folder), spoiled)
    assert n / 6 < refused < n


@pytest.mark.parametrize("depth", [300, 100_000])
def test_values_nested_without_end(amazon_files, personalwab_files, tmp_path, depth):
    spoiled = b'{"A": ' + b"[" * depth + b"]" * depth + b"}"
    personalwab_files.folder = tmp_path / "personalwab"
    file = "all_products_part_1.json"
    folder = personalwab_files.with_file(file, lambda old: old.replace(b'"Brown"', spoiled))
    is_refused(lambda: load_personalwab(folder), depth)
    amazon_files.metas[3]["details"] = "HERE"
    amazon_files.metas[3] = json.dumps(amazon_files.metas[3]).encode().replace(b'"HERE"', spoiled)
    is_refused(lambda: load_amazon(amazon_files.write(), n_users=2), depth)
