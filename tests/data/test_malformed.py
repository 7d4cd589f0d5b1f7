"""What is wrong with the files of a source -> what the one line that says so must name.

A message names file, record and field, what was found and what was expected. Where a library reads the file,
the words are its own: these tests hold the names alone. Three dots take a field away.
"""

import gzip

import pytest

from pwagents.data import load_benchmark
from pwagents.errors import DataError
from pwagents.settings import DataSettings

from .conftest import SIZES

REVIEWS, METAS = "reviews.jsonl.gz", "meta.jsonl.gz"
PROFILES, TASKS = "user_profiles.json", "user_instructions.json"
PRODUCTS_1, PRODUCTS_2 = "all_products_part_1.json", "all_products_part_2.json"
HISTORY_1, HISTORY_2 = "user_history_part_1.json", "user_history_part_2.json"


def value(path: str, found):
    """Put a value at a path of the records."""
    return lambda files: files.with_value(path, found)


def content(pattern: str, edit):
    """Edit the bytes of files: by a function of the old ones, or all of them; None takes the files away."""
    new = (lambda _: edit) if isinstance(edit, bytes) else edit
    return lambda files: files.with_file(pattern, new)


def line(file: str, text: bytes):
    return lambda files: files.with_line(file, text)


# fmt: off
AMAZON = {  # what is broken -> how, and what the message must name
    "user empty": (value("reviews.6.user_id", ""), REVIEWS, "record 7", "user_id", '""', "id without spaces"),
    "rating text": (value("reviews.6.rating", "five"), REVIEWS, "line 7", "five"),
    "time text": (value("reviews.6.timestamp", "2021-01-01"), REVIEWS, "line 7", "2021-01-01"),
    "time in seconds": (value("reviews.6.timestamp", 16 * 10**8), REVIEWS, "record 7", "timestamp",
        "1600000000", "whole milliseconds since 1970"),
    "product missing": (value("metas.3.parent_asin", ...), METAS, "record 4", "parent_asin"),
    "price a list": (value("metas.3.price", [1]), "product B000000003", "price", "[1]", "a number"),
    "details a list": (value("metas.3.details", ["a"]), "product B000000003", "details", "an object"),
    "not JSON": (line(REVIEWS, b"rating,title"), REVIEWS, "line"),
    "not UTF-8": (line(REVIEWS, b'{"text": "\xff"}'), REVIEWS, "line", "UTF-8"),
    "no reviews": (content(REVIEWS, None), "no review file", "reviews.jsonl.gz"),
    "no products": (content(METAS, None), "no metadata file", "meta.jsonl.gz"),
    "plain text": (content(REVIEWS, gzip.decompress), REVIEWS, "gzip"),
    "a server's page": (content(METAS, b"\n<!DOCTYPE html><p>Too many requests"), METAS, "a web page (HTML)"),
    "zeros behind an archive": (content(REVIEWS, lambda old: old + bytes(512)), REVIEWS, "zeros behind"),
    "an archive in an archive": (content(REVIEWS, gzip.compress), REVIEWS, "a gzip archive within"),
    "a zip archive": (content(REVIEWS, b"PK\x03\x04"), REVIEWS, "a zip archive"),
    "UTF-16": (
        content(REVIEWS, lambda old: gzip.compress(gzip.decompress(old).decode().encode("utf-16"))),
        REVIEWS, "UTF-16"),
    "zeros of a full disk": (line(REVIEWS, b"\0" * 9), REVIEWS, "line"),
}
A_HISTORY, A_TASK, A_PRODUCT = "user_history.UANN.3", "instructions.test.1", "all_products.B000000003"
IN_HISTORY, IN_TASK = (HISTORY_1, "user UANN, history 3"), (TASKS, "test task 1")
IN_PRODUCT = (PRODUCTS_1, "product B000000003")
PERSONALWAB = {
    "rating missing": (value(f"{A_HISTORY}.review.rating", ...), *IN_HISTORY, "rating", "no such field"),
    "parts of stars": (value(f"{A_HISTORY}.review.rating", 4.73), *IN_HISTORY, "4.73", "a whole number of"),
    "time in seconds": (value(f"{A_HISTORY}.review.timestamp", 16 * 10**8), *IN_HISTORY, "timestamp",
        "1600000000", "whole milliseconds since 1970"),
    "time to come": (value(f"{A_HISTORY}.review.timestamp", 4_080_000_000_000), *IN_HISTORY, "1990 and 2030"),
    "unknown product": (value(f"{A_HISTORY}.product_info", {"parent_asin": "B0"}), *IN_HISTORY, "no such"),
    "id of another product": (value(f"{A_PRODUCT}.parent_asin", "B0"), *IN_PRODUCT, "parent_asin", "B0"),
    "type unknown": (value(f"{A_TASK}.type", "buy"), *IN_TASK, "type", '"buy"', "'review'"),
    "id of another task": (value(f"{A_TASK}.task_id", "UANN-1600432000000-B000000005-search"),
        "UANN-1600432000000-B000000005-search", "task_id", "unique ids"),
    "no test tasks": (value("instructions.test", []), TASKS, "test", "no task"),
    "a Git LFS pointer": (content(PROFILES, b"version https://git-lfs.x/spec/v1\n"), PROFILES, "Git LFS"),
    "no age": (value("user_profile.UANN.user_profile.Age", ...), PROFILES, "user UANN", "Age"),
    "no files": (content("*", None), f"no {PROFILES}, no user_history_part_*.json", f"no {TASKS}"),
    "products cut off": (content(PRODUCTS_1, lambda old: old[:-30]), PRODUCTS_1, "line", "a whole file"),
    "not UTF-8": (content(PRODUCTS_2, lambda old: old.replace(b"Number5", b"\xff")), PRODUCTS_2, "utf-8"),
    "half a surrogate pair": (value(f"{A_PRODUCT}.store", "\ud800"), PRODUCTS_1, "B000000003", "surrogate"),
}
# fmt: on


CASES = [("amazon", *each) for each in AMAZON.items()]
CASES += [("personalwab", *each) for each in PERSONALWAB.items()]


@pytest.mark.parametrize(("source", "broken", "case"), CASES)
def test_malformed_files_are_told_in_one_line(source, broken, case, request):
    spoil, *named = case
    folder = spoil(request.getfixturevalue(f"{source}_files"))
    with pytest.raises(DataError) as caught:
        load_benchmark(DataSettings(source=source, data_dir=str(folder), **SIZES), 0)
    message = str(caught.value)
    assert "\n" not in message and "; expected " in message
    assert [name for name in named if name not in message] == [], message


# What files cannot meet -> positions among each user's twelve behaviours, changes there, settings, message.
UNMET = {
    "tasks only in train": ([11], {"rating": 2, "text": ""}, {},
        ("search in test, recommend in test, review in", "take more users, categories or files")),
    "one time": (range(12), {"timestamp": 1_600_000_000_000}, {}, ("users need three different times",)),
    "no folder": ([], {}, {"data_dir": "/nowhere"}, ("/nowhere", "no metadata file")),
    "short histories": ([], {}, {"history": [13, 40]}, ("at most 12 behaviors", "lower min_behaviors")),
    "no such category": ([], {}, {"categories": ["Books"]}, ("no product of ['Books']", "Home and Kitchen")),
}  # fmt: skip


@pytest.mark.parametrize(("positions", "changes", "settings", "named"), UNMET.values(), ids=UNMET)
def test_what_files_cannot_meet_is_refused(amazon_files, positions, changes, settings, named):
    for i in positions:
        for of_user in (0, 12):
            amazon_files.reviews[of_user + i] |= changes
    data = {"source": "amazon", "data_dir": str(amazon_files.write())} | SIZES | settings
    with pytest.raises(DataError) as caught:
        load_benchmark(DataSettings(**data), 0)
    assert all(name in str(caught.value) for name in named)
