"""The vocabulary: what a benchmark refuses, and what its hash tells apart."""

from dataclasses import replace

import pytest

from pwagents.errors import DataError
from pwagents.schema import Behavior, Benchmark, Product, Review, Task


def product(asin):
    return Product(parent_asin=asin, title=f"Product {asin}", category="Electronics")


def behavior(asin, time):
    return Behavior(parent_asin=asin, timestamp=time, review=Review(rating=5, text="good"))


def task(number, time, **changes):
    fields = {"user_id": "u", "type": "search", "instruction": "find it", "target": "a"} | changes
    return Task(task_id=f"t{number}", timestamp=time, review=Review(rating=5), **fields)


@pytest.fixture
def benchmark():
    return Benchmark(
        "made",
        {asin: product(asin) for asin in "abc"},
        {"u": tuple(behavior(asin, time) for asin, time in (("a", 1), ("b", 2), ("c", 3), ("a", 4)))},
        {"train": (task(1, 3),), "test": (task(2, 4),)},
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"behaviors": {"u": (behavior("x", 1),)}}, "behaviour 0, field 'parent_asin': found x"),
        ({"behaviors": {"u": (behavior("a", 2), behavior("b", 1))}}, "1, field 'timestamp': found 1"),
        ({"tasks": {"test": (task(1, 1, user_id="v"),)}}, "task t1, field 'user_id': found v"),
        ({"tasks": {"test": (task(1, 1, target="x"),)}}, "task t1, field 'target': found x"),
        ({"tasks": {"train": (task(1, 1),), "test": (task(1, 2),)}}, "task t1, field 'task_id'"),
    ],
)
def test_a_benchmark_that_does_not_fit_together_is_refused(benchmark, changes, message):
    with pytest.raises(DataError, match=message):
        replace(benchmark, **changes)


def test_history_by_split_and_protocol(benchmark):
    (train,), (test,) = benchmark.tasks["train"], benchmark.tasks["test"]
    assert [b.timestamp for b in benchmark.history(train, "train")] == [1, 2]
    assert [b.timestamp for b in benchmark.history(test, "test")] == [1, 2, 3]
    assert benchmark.train_period("u") == benchmark.history(test, "test")
    later = task(3, 5)
    two = replace(benchmark, tasks={"train": (), "test": (test, later)})
    assert [b.timestamp for b in two.history(later, "test")] == [1, 2, 3]
    assert [b.timestamp for b in two.history(later, "test", "published")] == [1, 2, 3, 4]


def test_hash_tells_splits_products_and_behaviours_apart(benchmark):
    (train,), (test,) = benchmark.tasks["train"], benchmark.tasks["test"]
    others = [
        replace(benchmark, tasks={"train": (), "test": (train, test)}),
        replace(benchmark, products={**benchmark.products, "d": product("d")}),
        replace(benchmark, behaviors={"u": benchmark.behaviors["u"], "v": ()}),
    ]
    assert len({benchmark.content_hash, *(other.content_hash for other in others)}) == 4
    assert replace(benchmark, repairs={"mended": 1}).content_hash == benchmark.content_hash
