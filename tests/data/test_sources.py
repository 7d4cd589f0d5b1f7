"""One door to all sources: dirty values are mended and counted, missing files are told at once."""

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


METAS, PRODUCTS, REVIEW = "metas.3", "all_products.B000000003", "user_history.UANN.3.review"
MARKS = "Mill [[VIDEOID:1a2b]] [[ASIN:B A [2] mill]] [[asin: C D]]"
HTML = "Salt\u0000 &amp; <b>Pepper</b><br/>Mill <Side A>"
REPAIRS = [  # source, record, field, dirty value, what it becomes, the repair that is counted (empty: none)
    ("amazon", METAS, "price", "9.99 - 12.99", 9.99, "price that is a range"),
    ("amazon", METAS, "price", "1.299,00", 1299.0, ""),
    ("amazon", METAS, "price", ",99", 0.99, ""),
    ("amazon", METAS, "price", "1 299,00 EUR", 1299.0, "price that is a range or phrase"),
    ("amazon", METAS, "title", MARKS, "Mill", "mark of a video"),
    ("amazon", METAS, "title", HTML, "Salt & Pepper Mill <Side A>", "HTML removed"),
    ("amazon", METAS, "features", ["a", None, 3, ""], ("a", "3"), ""),
    ("amazon", METAS, "details", {"A": 1, "B": [1, "x"]}, {"A": "1", "B": "1, x"}, ""),
    ("amazon", METAS, "details", "{'A': 1}", {}, "details that are no JSON object"),
    ("amazon", METAS, "details", '{"A": "x\\ud800y"}', {"A": "x y"}, ""),
    ("amazon", METAS, "main_category", "Pet Supplies", "Pet Supplies", ""),
    ("personalwab", PRODUCTS, "price", "$1,299.00", 1299.0, ""),
    ("personalwab", PRODUCTS, "price", "from 9.99", 9.99, "price that is a range or phrase"),
    ("personalwab", PRODUCTS, "price", 1e300, None, "price that cannot be"),
    ("personalwab", PRODUCTS, "price", float("nan"), None, "NaN or Infinity taken as missing"),
    ("personalwab", PRODUCTS, "average_rating", 7, None, "average_rating that cannot be"),
    ("personalwab", PRODUCTS, "title", None, "Untitled", 'product without title called "Untitled"'),
    ("personalwab", PRODUCTS, "features", ["a", None, 3], ("a", "", "3"), ""),
    ("personalwab", REVIEW, "title", None, "", "review title that is null taken as empty"),
]


@pytest.mark.parametrize(("source", "record", "field", "dirty", "value", "repair"), REPAIRS)
def test_dirty_values_are_mended_and_counted(source, record, field, dirty, value, repair, request):
    files = request.getfixturevalue(f"{source}_files")
    benchmark, _ = load(source, files.with_value(f"{record}.{field}", dirty))
    made = benchmark.behaviors["UANN"][3].review if record is REVIEW else benchmark.products["B000000003"]
    assert getattr(made, "category" if field == "main_category" else field) == value
    assert [count for name, count in benchmark.repairs.items() if repair in name] == [1] * bool(repair)
    assert len(benchmark.repairs) == bool(repair)


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
