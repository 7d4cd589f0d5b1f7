"""One door to all sources; what a source does not use is left alone."""

import pytest

from pwagents.data import DataSettings, load_benchmark
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


def load(source, folder="", **changes):
    return load_benchmark(DataSettings(source=source, data_dir=str(folder), **SIZES | changes), 0)


def test_amazon_files(amazon_files):
    benchmark, truth = load("amazon", amazon_files.write())
    assert truth is None
    assert len(benchmark.behaviors) == 2
    assert {task.type for task in benchmark.tasks["test"]} == set(TASK_TYPES)


def test_amazon_categories(amazon_files):
    for meta in amazon_files.metas[:5]:
        meta["main_category"] = "Grocery"
    folder = amazon_files.write()
    benchmark, _ = load("amazon", folder, categories=["Grocery and Gourmet Food"])
    assert {product.category for product in benchmark.products.values()} == {"Grocery and Gourmet Food"}
    assert {len(behaviors) for behaviors in benchmark.behaviors.values()} == {5}
    everything, _ = load("amazon", folder)
    assert len(everything.products) == 12


def test_synthetic_world_has_its_truth_and_needs_no_files():
    benchmark, truth = load("synthetic", categories=["Books"])
    assert len(benchmark.behaviors) == 2
    assert set(truth.people) == set(benchmark.behaviors)


def test_the_population_are_those_who_are_no_users(amazon_files):
    folder = amazon_files.write()
    assert not load("amazon", folder, population=5)[0].population
    benchmark, _ = load("amazon", folder, n_users=1, population=5)
    everybody, _ = load("amazon", folder)
    (stranger,) = everybody.behaviors.keys() - benchmark.behaviors.keys()
    bought = tuple((b.timestamp, b.parent_asin) for b in everybody.behaviors[stranger])
    assert benchmark.population == {stranger: bought}
    assert not load("amazon", folder, n_users=1)[0].population
    few, _ = load("synthetic", population=3)
    assert len(few.population) == 3 and few.content_hash != load("synthetic")[0].content_hash


def test_personalwab_files(personalwab_files):
    folder = personalwab_files.write()
    benchmark, truth = load("personalwab", folder, categories=["x"])
    assert truth is None
    assert len(benchmark.behaviors) == len(benchmark.profiles) == 2
    assert {task.type for task in benchmark.tasks["test"]} == set(TASK_TYPES)
    one, _ = load("personalwab", folder, n_users=1)
    assert len(one.behaviors) == 1


@pytest.mark.parametrize("source", ["amazon", "personalwab"])
def test_source_with_files_needs_a_folder(source):
    with pytest.raises(
        ValueError, match=f"data_dir is empty; source '{source}' needs the folder of its files"
    ):
        load(source)


@pytest.mark.parametrize("source", ["amazon", "personalwab"])
def test_relative_folder_starts_at_the_project_root(source, project_root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        load(source, "no/such/folder")
    assert caught.value.file == str(project_root / "no/such/folder")
