"""One door to all sources: sizes are checked, and what a source does not use is left alone."""

import pytest

from pwagents.data import load_benchmark
from pwagents.errors import DataError
from pwagents.schema import TASK_TYPES

SIZES = {
    "n_users": 2,
    "n_products": 200,
    "history": [5, 40],
    "interests": [2, 5],
    "drift": 0.5,
    "completeness": 0.2,
}
WRONG = {
    "no users": ({"n_users": 0}, "n_users is 0; expected a whole number, 1 or more"),
    "users as text": ({"n_users": "40"}, "n_users is '40'; expected a whole number"),
    "users by halves": ({"n_users": 1.5}, "n_users is 1.5; expected a whole number"),
    "users a boolean": ({"n_users": True}, "n_users is True; expected a whole number"),
    "fewer than no products": ({"n_products": -1}, "n_products is -1; expected a whole number, 1 or more"),
    "history as text": ({"history": "5,40"}, "history is '5,40'; expected two whole numbers [least, most]"),
    "history of two letters": ({"history": "59"}, "history is '59'; expected two whole numbers"),
    "history of one number": ({"history": [5]}, "history is [5]; expected two whole numbers"),
    "history a number": ({"history": 5}, "history is 5; expected two whole numbers"),
    "history of decimals": ({"history": [5.0, 40]}, "history is [5.0, 40]; expected two whole numbers"),
    "history too short": (
        {"history": [2, 40]},
        "history is [2, 40]; expected two whole numbers [least, most], 3",
    ),
    "history reversed": ({"history": [40, 5]}, "history is [40, 5]; expected two whole numbers"),
    "interests of three": ({"interests": [2, 5, 9]}, "interests is [2, 5, 9]; expected two whole numbers"),
    "no interests": ({"interests": [0, 2]}, "interests is [0, 2]; expected two whole numbers"),
    "interests absent": ({"interests": None}, "interests is None; expected two whole numbers"),
    "one category as text": ({"categories": "Books"}, "categories is 'Books'; expected a list of names"),
    "categories absent": ({"categories": None}, "categories is None; expected a list of names"),
    "categories by number": ({"categories": [3]}, "categories is [3]; expected a list of names"),
}


@pytest.mark.parametrize("source", ["synthetic", "amazon"])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_parameter_is_named(amazon_files, source, case):
    changes, message = WRONG[case]
    with pytest.raises(ValueError) as caught:
        load_benchmark(source, str(amazon_files.write()), 0, **SIZES | changes)
    assert message in str(caught.value)


def test_amazon_files(amazon_files):
    benchmark, truth = load_benchmark("amazon", str(amazon_files.write()), 0, **SIZES)
    assert truth is None
    assert len(benchmark.behaviors) == 2
    assert {task.type for task in benchmark.tasks["test"]} == set(TASK_TYPES)


def test_amazon_categories(amazon_files):
    for meta in amazon_files.metas[:5]:
        meta["main_category"] = "Grocery"
    folder = str(amazon_files.write())
    benchmark, _ = load_benchmark("amazon", folder, 0, **SIZES, categories=["Grocery and Gourmet Food"])
    assert {product.category for product in benchmark.products.values()} == {"Grocery and Gourmet Food"}
    assert {len(behaviors) for behaviors in benchmark.behaviors.values()} == {5}
    everything, _ = load_benchmark("amazon", folder, 0, **SIZES, categories=[])
    assert len(everything.products) == 12


def test_synthetic_world_has_its_truth_and_needs_no_files():
    benchmark, truth = load_benchmark("synthetic", "", 0, **SIZES, categories=["Books"])
    assert len(benchmark.behaviors) == 2
    assert set(truth.people) == set(benchmark.behaviors)


def test_amazon_needs_a_folder(tmp_path):
    with pytest.raises(ValueError, match="data_dir is empty"):
        load_benchmark("amazon", "", 0, **SIZES)
    with pytest.raises(DataError, match=r"nowhere, .*found no such folder"):
        load_benchmark("amazon", str(tmp_path / "nowhere"), 0, **SIZES)


def test_unknown_source():
    with pytest.raises(ValueError, match="source is 'ebay'; expected one of synthetic, amazon"):
        load_benchmark("ebay", "", 0, **SIZES)
