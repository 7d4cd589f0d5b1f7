"""Settings of the data: what is refused, and the check that the source's files are there."""

from dataclasses import replace

import pytest

from pwagents.data import DataSettings

SIZES = {"n_users": 2, "n_products": 200, "history": [5, 40], "interests": [2, 5]}
SIZES |= {"drift": 0.5, "completeness": 0.2}
BROKEN = {  # what is broken -> name, value, what is said of it
    "source unknown": ("source", "ebay", "'synthetic', 'amazon' or 'personalwab'"),
    "no users": ("n_users", 0, "greater than 0"),
    "users as text": ("n_users", "40", "valid integer"),
    "users by halves": ("n_users", 1.5, "valid integer"),
    "users a boolean": ("n_users", True, "valid integer"),
    "fewer than no products": ("n_products", -1, "greater than 0"),
    "history as text": ("history", "5,40", "valid tuple"),
    "history of two letters": ("history", "59", "valid tuple"),
    "history of one number": ("history", [5], "Field required"),
    "history a number": ("history", 5, "valid tuple"),
    "history of decimals": ("history", [5.0, 40], "valid integer"),
    "history too short": ("history", [2, 40], "two whole numbers [least, most], 3 <= least <= most"),
    "history reversed": ("history", [40, 5], "two whole numbers [least, most], 3 <= least <= most"),
    "interests of three": ("interests", [2, 5, 9], "at most 2 items"),
    "no interests": ("interests", [0, 2], "two whole numbers [least, most], 1 <= least <= most"),
    "interests absent": ("interests", None, "valid tuple"),
    "drift beyond a share": ("drift", 1.5, "less than or equal to 1"),
    "completeness below a share": ("completeness", -1, "greater than or equal to 0"),
    "one category as text": ("categories", "Books", "valid tuple"),
    "categories absent": ("categories", None, "valid tuple"),
    "categories by number": ("categories", [3], "valid string"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_wrong_setting_is_refused_by_its_name(broken):
    name, value, said = BROKEN[broken]
    with pytest.raises(ValueError) as caught:
        DataSettings(**{"source": "synthetic"} | SIZES | {name: value})
    (error,) = caught.value.errors()
    assert error["loc"][0] == name and said in error["msg"]


def test_lists_of_yaml_become_tuples():
    data = DataSettings(source="amazon", **SIZES, categories=["Books"])
    assert (data.history, data.interests, data.categories) == ((5, 40), (2, 5), ("Books",))


def test_files_that_are_there_are_enough(amazon_files, personalwab_files):
    DataSettings(source="synthetic", **SIZES).require_files()
    DataSettings(source="amazon", data_dir=str(amazon_files.write()), **SIZES).require_files()
    DataSettings(source="personalwab", data_dir=str(personalwab_files.write()), **SIZES).require_files()


def test_the_raw_releases_one_file_a_category_is_enough(amazon_files):
    amazon_files.write("raw/All_Beauty.jsonl.gz", "raw/meta_All_Beauty.jsonl.gz")
    DataSettings(source="amazon", data_dir=str(amazon_files.folder), **SIZES).require_files()


@pytest.mark.parametrize(
    ("source", "files"), [("amazon", "meta.jsonl.gz"), ("personalwab", "user_profiles.json")]
)
def test_missing_files_are_named_in_one_line(source, files, tmp_path, project_root):
    nowhere = DataSettings(source=source, **SIZES)
    absent, empty = replace(nowhere, data_dir="no/such/folder"), replace(nowhere, data_dir=str(tmp_path))
    for data, said in ((nowhere, "data_dir is empty"), (absent, str(absent.folder)), (empty, str(tmp_path))):
        with pytest.raises(ValueError) as caught:
            data.require_files()
        assert said in str(caught.value) and "\n" not in str(caught.value)
        assert files in str(caught.value) or data is absent
    assert absent.folder == project_root / "no/such/folder"
