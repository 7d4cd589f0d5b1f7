"""What is wrong with the input -> the one line that says so: malformed parameters and files of every source.

A message names file, record and field, what was found and what was expected. Three dots take a field away.
"""

import gzip
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest

from pwagents.data import DataSettings, load_benchmark
from pwagents.data.personalwab import WRITTEN
from pwagents.errors import DataError

SIZES = {"n_users": 2, "n_products": 200, "history": [5, 40], "interests": [2, 5]}
SIZES |= {"drift": 0.5, "completeness": 0.2}
REVIEWS, METAS = "reviews.jsonl.gz", "meta.jsonl.gz"
PROFILES, TASKS = "user_profiles.json", "user_instructions.json"
PRODUCTS_1, PRODUCTS_2 = "all_products_part_1.json", "all_products_part_2.json"
HISTORY_1, HISTORY_2 = "user_history_part_1.json", "user_history_part_2.json"
ABSENT = "found no such field; expected this field in every record"


def cut(end: int):
    return lambda old: old[:end]


def become(new: bytes):
    return lambda old: new


def change(old_text: bytes, new_text: bytes):
    return lambda old: old.replace(old_text, new_text)


# fmt: off
WORLDS = {  # what is broken -> parameters, message
    "more interests than kinds": ({"interests": [2, 50]}, "interests goes to 50; the shop has"),
    "too few products": ({"n_products": 10}, "n_products is 10; the shop needs one of each type"),
    "too many products": ({"n_products": 10_000_000}, "at most"),
}
AMAZON_REVIEW = {  # what is broken -> field, value, what is said
    "user missing": ("user_id", ..., "found no such field; expected text"),
    "user null": ("user_id", None, "found null null; expected text"),
    "user empty": ("user_id", "", 'found ""; expected an id without spaces'),
    "user a number": ("user_id", 12, "found whole number 12; expected text"),
    "product missing": ("parent_asin", ..., "found no such field; expected text"),
    "product with spaces": ("parent_asin", " B0 ", 'found " B0 "; expected an id without spaces'),
    "rating missing": ("rating", ..., "found no such field; expected whole number or decimal number"),
    "rating text": ("rating", "five", 'found text "five"; expected whole number or decimal number'),
    "rating boolean": ("rating", True, "found boolean true; expected whole number or decimal number"),
    "text missing": ("text", ..., "found no such field; expected text or null"),
    "text a list": ("text", ["a"], 'found list ["a"]; expected text or null'),
    "title an object": ("title", {}, "found object {}; expected text or null"),
    "time text": ("timestamp", "2021-01-01", 'found text "2021-01-01"; expected whole number'),
    "time null": ("timestamp", None, "found null null; expected whole number"),
    "time negative": ("timestamp", -5, "found -5; expected whole milliseconds since 1970"),
    "time in seconds": ("timestamp", 16 * 10**8, "found 1600000000, which looks like seconds; expected"),
    "time in microseconds": ("timestamp", 16 * 10**14, "found 1600000000000000; expected whole milliseconds"),
    "time decimal": ("timestamp", 1.5, "found decimal number 1.5; expected whole number"),
    "time huge": ("timestamp", 10**40, f"found {10**40}; expected whole milliseconds since 1970"),
}
AMAZON_PRODUCT = {
    "product missing": ("parent_asin", ..., "found no such field; expected text"),
    "product null": ("parent_asin", None, "found null null; expected text"),
    "title missing": ("title", ..., "found no such field; expected text or null"),
    "title a list": ("title", ["a"], 'found list ["a"]; expected text or null'),
    "category missing": ("main_category", ..., "found no such field; expected text or null"),
    "price a list": ("price", [1], "found list [1]; expected whole number or decimal number or text or null"),
    "price boolean": ("price", False, "found boolean false; expected whole number or decimal number or text"),
    "features a number": ("features", 3, "found whole number 3; expected list or text or null"),
    "details a list": ("details", [], "found list []; expected object or text or null"),
    "rating text": ("average_rating", "4", 'found text "4"; expected whole number or decimal number or null'),
    "store a list": ("store", ["a"], 'found list ["a"]; expected text or null'),
}
AMAZON_LINE = {  # what is broken -> line, what is said
    "not JSON": (b"rating,title", "found what is not JSON"),
    "half a record": (b'{"rating": 5.0,', "found what is not JSON"),
    "two records": (b'{"a": 1} {"b": 2}', "found what is not JSON"),
    "an array": (b"[1, 2]", "found a JSON list; expected one JSON object a line"),
    "a number": (b"5", "found a JSON whole number; expected one JSON object a line"),
    "invalid UTF-8": (b'"\xff"', "found bytes that are not text (invalid start byte); expected UTF-8"),
    "half a surrogate pair": (b'{"a": "\\ud800"}', "found bytes that are not text (surrogates not allowed)"),
    "too deep": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "found what is not JSON"),
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}', "found what is not JSON (Unexpected UTF-8 BOM"),
}
AMAZON_FILE = {  # what is broken -> file, its new bytes made from the old (None: no file), message
    "no reviews": (REVIEWS, None, "found no review file; expected reviews.jsonl.gz or <category>"),
    "no products": (METAS, None, "found no metadata file; expected meta.jsonl.gz or meta_<cat"),
    "reviews cut off": (REVIEWS, cut(-99), "field '(file)': found unreadable data (Compressed file ended"),
    "products cut off": (METAS, cut(99), "meta.jsonl.gz, record 1, field '(file)': found unreadable data"),
    "plain text": (REVIEWS, gzip.decompress, "found unreadable data (Not a gzipped file (b'{\"'))"),
    "no review": (REVIEWS, become(gzip.compress(b"")), "found at most 0 behaviours of one user; expected"),
}
AMAZON_PARAMETERS = {
    "no folder": ({"data_dir": "/nowhere"}, "/nowhere, record -, field 'data_dir': found no such folder"),
    "histories too short": ({"history": [13, 40]}, "found at most 12 behaviours of one user; expected users"),
    "no such category": ({"categories": ["Books"]}, "found no product of ['Books']; expected categories"),
}
PERSONALWAB_BEHAVIOR = {  # what is broken -> field, value, what is said
    "review missing": ("review", ..., ABSENT),
    "review a list": ("review", [1], "found [1]; expected a JSON object"),
    "rating missing": ("review.rating", ..., ABSENT),
    "rating null": ("review.rating", None, "found null; expected a number"),
    "rating NaN": ("review.rating", float("nan"), "found null; expected a number"),
    "rating text": ("review.rating", "five", 'found "five"; expected a number'),
    "rating boolean": ("review.rating", True, "found true; expected a number"),
    "rating below 1": ("review.rating", 0, "found 0; expected greater than or equal to 1"),
    "rating above 5": ("review.rating", 6.5, "found 6.5; expected less than or equal to 5"),
    "text missing": ("review.text", ..., ABSENT),
    "text a list": ("review.text", ["a"], 'found ["a"]; expected text'),
    "title a number": ("review.title", 3, "found 3; expected text"),
    "time missing": ("review.timestamp", ..., ABSENT),
    "time null": ("review.timestamp", None, "found null; expected a whole number"),
    "time text": ("review.timestamp", "2021-01-01", 'found "2021-01-01"; expected a whole number'),
    "time decimal": ("review.timestamp", 1.6e12 + 0.5, "found 1600000000000.5; expected a whole number"),
    "time in seconds": ("review.timestamp", 16 * 10**8, "found 1600000000; expected whole milliseconds since "
        "1970, between the years 1990 and 2030 (it looks like seconds)"),
    "time negative": ("review.timestamp", -5, "found -5; expected whole milliseconds since 1970"),
    "product missing": ("product_info", ..., ABSENT),
    "product null": ("product_info", None, "found null; expected a JSON object"),
    "product without id": ("product_info.parent_asin", ..., ABSENT),
    "product's id blank": ("product_info.parent_asin", " ", 'found " "; expected a text that is not empty'),
}
PERSONALWAB_PRODUCT = {
    "id missing": ("parent_asin", ..., ABSENT),
    "id of another product": ("parent_asin", "B0", "found B0; expected B000000003, the key of the record"),
    "title missing": ("title", ..., ABSENT),
    "title a list": ("title", ["a"], 'found ["a"]; expected text'),
    "category missing": ("main_category", ..., ABSENT),
    "category a number": ("main_category", 7, "found 7; expected text"),
    "price missing": ("price", ..., ABSENT),
    "price a list": ("price", [1], "found [1]; expected a number"),
    "price boolean": ("price", False, "found false; expected a number"),
    "average rating text": ("average_rating", "4", 'found "4"; expected a number'),
    "rating number text": ("rating_number", "4", 'found "4"; expected a whole number'),
    "store a list": ("store", ["a"], 'found ["a"]; expected text'),
    "features a number": ("features", 3, "found 3; expected a list"),
    "details text": ("details", "{}", 'found "{}"; expected a JSON object'),
}
PERSONALWAB_TASK = {
    "user missing": ("user_id", ..., ABSENT),
    "user unknown": ("user_id", "UNEW", "found UNEW; expected a user with a history in one of the parts"),
    "type missing": ("type", ..., ABSENT),
    "type unknown": ("type", "buy", "found \"buy\"; expected 'search', 'recommend' or 'review'"),
    "instruction missing": ("task", ..., ABSENT),
    "instruction blank": ("task", " ", 'found " "; expected a text that is not empty'),
    "time in seconds": ("timestamp", 16 * 10**8, "found 1600000000; expected whole milliseconds since 1970"),
    "target missing": ("target", ..., ABSENT),
    "target's rating": ("target.review.rating", 9, "found 9; expected less than or equal to 5"),
    "id blank": ("task_id", "", 'found ""; expected a text that is not empty'),
}
PERSONALWAB_VALUE = {  # what is broken -> path, value, message
    "a number": ("histories.UANN.3", 5, "UANN, history 3, field '(record)': found 5; expected a JSON object"),
    "an object": ("histories.UANN", {}, "user UANN, field '(history)': found {}; expected a list of"),
    "unknown product": ("histories.UANN.3.product_info", {"parent_asin": "B0"},
        f"{HISTORY_1}, record user UANN, history 3, field 'product_info.title': {ABSENT}"),
    "product null": ("products.B000000003", None, "product B000000003, field '(record)': found null"),
    "task a list": ("instructions.test.1", [], "test task 1, field '(record)': found []; expected a JSON"),
    "unknown target": ("instructions.test.1.target.product_info", {"parent_asin": "B0"},
        f"{TASKS}, record test task 1, field 'target.product_info.title': {ABSENT}"),
    "id of another task": ("instructions.test.1.task_id", "UANN-1600432000000-B000000005-search",
        "test task 1, field 'task_id': found UANN-1600432000000-B000000005-search for a"),
    "no train": ("instructions.train", ..., f"{TASKS}, record -, field 'train': found no such field"),
    "test an object": ("instructions.test", {}, "field 'test': found what is not a list; expected a list"),
    "no age": ("profiles.UANN.user_profile.Age", ...,
        f"{PROFILES}, record user UANN, field 'user_profile.Age': {ABSENT}"),
    "two jobs": ("profiles.UANN.user_profile.Occupation", ["a", "b"],
        "user UANN, field 'user_profile.Occupation': found [\"a\", \"b\"]; expected text"),
    "profile a text": ("profiles.UANN", "Nurse", "field '(record)': found \"Nurse\"; expected a JSON object"),
    "profile elsewhere": ("profiles.UANN", {"profile": {}}, f"user UANN, field 'user_profile': {ABSENT}"),
}
PERSONALWAB_FILE = {  # what is broken -> files, their new bytes made from the old (None: no file), message
    "no profiles": (PROFILES, None, "field '(files)': found no user_profiles.json; expected PersonalWAB's "
        "files: run `make data`, or point data_dir at a folder that holds them"),
    "no instructions": (TASKS, None, "found no user_instructions.json; expected PersonalWAB's files"),
    "no products": ("all_products*", None, "found no all_products_part_*.json; expected PersonalWAB's files"),
    "no histories": ("user_history*", None, "found no user_history_part_*.json; expected PersonalWAB's"),
    "no files": ("*", None, "found no user_profiles.json, no user_history_part_*.json, no all_products_"),
    "no part 2": (HISTORY_2, None, "train task 3, field 'user_id': found UBOB; expected a user with a"),
    "no users": ("user_history*", become(b"{}"), "field '(history)': found no user; expected users with"),
    "products cut off": (PRODUCTS_1, cut(-30), f"{PRODUCTS_1}, record after B000000002, field '(file)': "
        "found what is not JSON (parse error: premature EOF); expected a whole file of JSON in UTF-8"),
    "history cut off": (HISTORY_2, cut(99), f"{HISTORY_2}, record (first), field '(file)': found what"),
    "tasks cut off": (TASKS, cut(-3000), f"{TASKS}, record after test 2, field '(file)': found what is"),
    "empty": (PROFILES, become(b""), f"{PROFILES}, record (first), field '(file)': found what is not JSON"),
    "a list": (PROFILES, become(b"[1]"), "found what is not a JSON object; expected one JSON object"),
    "a pointer": (PRODUCTS_2, become(b"version https://"), "found what is not a JSON object; expected one"),
    "single quotes": (PROFILES, change(b'"', b"'"), "found what is not JSON (lexical error: invalid"),
    "two objects": (PROFILES, lambda old: old + old, "record after UBOB, field '(file)': found what is not "
        "JSON (parse error: trailing garbage); expected a whole file of JSON in UTF-8"),
    "not UTF-8": (PRODUCTS_2, change(b"Number5", b"\xff"), "record after B000000004, field '(file)': found "
        "what is not JSON (lexical error: invalid bytes in UTF8 string.); expected a whole file"),
    "UTF-16": (PROFILES, become("{}".encode("utf-16")), "found what is not a JSON object; expected one JSON"),
    "byte order mark": (PROFILES, become(b"\xef\xbb\xbf{}"), "found what is not a JSON object; expected one"),
    "too deep": (TASKS, become(b'{"train": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "record (first), field "
        "'(file)': found unreadable data (nested deeper than 100 levels); expected a JSON file"),
    "unknown word": (PROFILES, change(b'"Nurse"', b"None"), "found what is not JSON (lexical error"),
    "benchmark.json of others": (
        WRITTEN, become(b'{"name": "x", "content_hash": "0f", "repairs": {}, "population": {}}'),
        "benchmark.json, record -, field 'content_hash': found 0f; expected "),
    "no hash": (WRITTEN, become(b'{"name": "x", "repairs": {}}'), f"field 'content_hash': {ABSENT}"),
    "half a hash": (WRITTEN, become(b'{"name": "x", "co'), "benchmark.json, record (first), field '(file)'"),
}
# fmt: on


class Case(NamedTuple):
    """``spoil`` is a method of the source's files and its arguments, where it is the files that are wrong."""

    source: str
    broken: str
    message: str
    spoil: tuple = ("write",)
    parameters: dict = {}  # noqa: RUF012


def all_cases() -> Iterator[Case]:
    for source, table in (("synthetic", WORLDS), ("amazon", AMAZON_PARAMETERS)):
        for broken, (parameters, message) in table.items():
            yield Case(source, broken, message, parameters=parameters)
    for source, table, path, record in (
        ("amazon", AMAZON_REVIEW, "reviews.6", f"{REVIEWS}, record 7"),
        ("amazon", AMAZON_PRODUCT, "metas.3", f"{METAS}, record 4"),
        (
            "personalwab",
            PERSONALWAB_BEHAVIOR,
            "histories.UANN.3",
            f"{HISTORY_1}, record user UANN, history 3",
        ),
        (
            "personalwab",
            PERSONALWAB_PRODUCT,
            "products.B000000003",
            f"{PRODUCTS_1}, record product B000000003",
        ),
        ("personalwab", PERSONALWAB_TASK, "instructions.test.1", f"{TASKS}, record test task 1"),
    ):
        for broken, (field, value, said) in table.items():
            message = f"{record}, field '{field}': {said}"
            yield Case(source, f"{record}: {broken}", message, ("with_value", f"{path}.{field}", value))
    for file, (broken, (line, said)) in product((REVIEWS, METAS), AMAZON_LINE.items()):
        message = f"{file}, record 4, field '(line)': {said}"
        yield Case("amazon", f"{file}, line: {broken}", message, ("with_line", file, line))
    for broken, (path, value, message) in PERSONALWAB_VALUE.items():
        yield Case("personalwab", broken, message, ("with_value", path, value))
    for source, table in (("amazon", AMAZON_FILE), ("personalwab", PERSONALWAB_FILE)):
        for broken, (pattern, edit, message) in table.items():
            yield Case(source, f"file: {broken}", message, ("with_file", pattern, edit))


@pytest.mark.parametrize("case", [*all_cases()], ids=lambda case: f"{case.source}, {case.broken}")
def test_malformed_input_is_told_in_one_line(case, request):
    folder = ""
    if case.source != "synthetic":
        method, *arguments = case.spoil
        folder = str(getattr(request.getfixturevalue(f"{case.source}_files"), method)(*arguments))
    with pytest.raises(ValueError) as caught:
        data = {"source": case.source, "data_dir": folder} | SIZES | case.parameters
        load_benchmark(DataSettings(**data), 0)
    assert case.message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, DataError) or case.parameters
