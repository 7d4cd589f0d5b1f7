"""One door to all sources: what a source does not use is left alone, and missing files are told at once."""

import pytest

from pwagents.data import load_benchmark, require_files
from pwagents.settings import DataSettings

from .conftest import SIZES


def load(source, folder="", **changes):
    return load_benchmark(DataSettings(source=source, data_dir=str(folder), **SIZES | changes), 0)


def test_amazon_files_of_some_categories(amazon_files):
    for meta in amazon_files.metas[:5]:
        meta["main_category"] = "Grocery"
    folder = amazon_files.write()
    benchmark, truth = load("amazon", folder, categories=["Grocery and Gourmet Food"])
    assert truth is None
    assert {product.category for product in benchmark.products.values()} == {"Grocery and Gourmet Food"}
    assert {len(behaviors) for behaviors in benchmark.behaviors.values()} == {5}


def test_the_population_are_those_who_are_no_users(amazon_files):
    folder = amazon_files.write()
    assert not load("amazon", folder, population=5)[0].population
    benchmark, _ = load("amazon", folder, n_users=1, population=5)
    everybody, _ = load("amazon", folder)
    (stranger,) = everybody.behaviors.keys() - benchmark.behaviors.keys()
    bought = tuple((b.timestamp, b.parent_asin) for b in everybody.behaviors[stranger])
    assert benchmark.population == {stranger: bought}
    few, _ = load("synthetic", population=3)
    assert len(few.population) == 3 and few.content_hash != load("synthetic")[0].content_hash


@pytest.mark.parametrize(
    ("source", "files"), [("amazon", "meta.jsonl.gz"), ("personalwab", "user_profiles.json")]
)
def test_missing_files_are_named_in_one_line(source, files, tmp_path, project_root):
    nowhere = DataSettings(source=source, **SIZES)
    absent, empty = nowhere.changed(data_dir="no/such/folder"), nowhere.changed(data_dir=str(tmp_path))
    for data, said in ((nowhere, "data_dir is empty"), (absent, str(absent.folder)), (empty, str(tmp_path))):
        with pytest.raises(ValueError) as caught:
            require_files(data)
        assert said in str(caught.value) and "\n" not in str(caught.value)
        assert files in str(caught.value) or data is absent
    assert absent.folder == project_root / "no/such/folder"
