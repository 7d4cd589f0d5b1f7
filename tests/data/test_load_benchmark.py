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


def test_personalwab_files(personalwab_files):
    benchmark, truth = load_benchmark(
        "personalwab", str(personalwab_files.write()), 0, **SIZES, categories=["x"]
    )
    assert truth is None
    assert len(benchmark.behaviors) == len(benchmark.profiles) == 2
    assert {task.type for task in benchmark.tasks["test"]} == set(TASK_TYPES)
    one, _ = load_benchmark("personalwab", str(personalwab_files.folder), 0, **SIZES | {"n_users": 1})
    assert len(one.behaviors) == 1


@pytest.mark.parametrize("source", ["amazon", "personalwab"])
def test_source_with_files_needs_a_folder(source):
    with pytest.raises(
        ValueError, match=f"data_dir is empty; source '{source}' needs the folder of its files"
    ):
        load_benchmark(source, "", 0, **SIZES)


@pytest.mark.parametrize("source", ["amazon", "personalwab"])
def test_relative_folder_starts_at_the_project_root(source, project_root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        load_benchmark(source, "no/such/folder", 0, **SIZES)
    assert caught.value.file == str(project_root / "no/such/folder")


def test_unknown_source():
    with pytest.raises(ValueError, match="source is 'ebay'; expected one of synthetic, amazon, personalwab"):
        load_benchmark("ebay", "", 0, **SIZES)
