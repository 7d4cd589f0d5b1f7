"""Raw Amazon Reviews 2023 files become a benchmark: made, dirty, large and real ones."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pwagents.data.amazon import load_amazon
from pwagents.schema import TASK_TYPES

DATA = Path(os.environ.get("PWAGENTS_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
REAL = DATA / "amazon_reviews_2023"


# Small made files


def test_benchmark_of_sound_files(amazon_files):
    """Tasks are of the last behaviours, in a fixed order."""
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert (benchmark.name, list(benchmark.behaviors)) == ("amazon", ["UANN", "UBOB"])
    assert len(benchmark.products) == 12 and not benchmark.repairs
    product = benchmark.products["B000000003"]
    assert (product.category, product.price, product.store) == ("Home and Kitchen", 19.99, "Stoolworks")
    assert product.details == {"Color": "Brown", "Ranks": "Stools: 3"}
    found = [(s, t.user_id, t.target, t.type) for s in ("train", "test") for t in benchmark.tasks[s]]
    items = {"train": "B00000000a", "test": "B00000000b"}
    expected = [(s, user, items[s], kind) for s in items for user in ("UANN", "UBOB") for kind in TASK_TYPES]
    assert found == expected


def test_neither_order_nor_division_of_the_files_matters_nor_the_raw_releases_layout(amazon_files, tmp_path):
    whole = load_amazon(amazon_files.write(), n_users=2).content_hash
    amazon_files.folder = tmp_path / "release"
    metas, reviews = amazon_files.metas[::-1], amazon_files.reviews[::-1]
    for i, name in enumerate(("All_Beauty", "Books")):
        amazon_files.records = {"metas": metas[i::2], "reviews": reviews[i::2]}
        names = f"review_categories/{name}.jsonl", f"meta_categories/meta_{name}.jsonl.gz"
        amazon_files.write(*(f"raw/{name}" for name in names))
    assert load_amazon(amazon_files.folder, n_users=2).content_hash == whole


def test_catalogue_holds_what_was_bought_whatever_its_size(amazon_files):
    amazon_files.metas += [amazon_files.meta(i, parent_asin=f"BOTHER{i}") for i in range(30)]
    folder = amazon_files.write()
    for size, expected in ((1, 12), (20, 20), (1000, 42)):
        products = load_amazon(folder, n_users=2, max_products=size).products
        assert len(products) == expected
        assert {f"B00000000{i:x}" for i in range(12)} <= set(products)


# What is dropped is counted


def test_product_listed_twice_counts_where_it_is_first(amazon_files):
    amazon_files.metas.insert(8, amazon_files.meta(3, title="Second", main_category="Books"))
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert benchmark.products["B000000003"].title != "Second"
    assert dict(benchmark.repairs) == {"product listed again dropped (the first is kept)": 1}


# What is added to Ann's reviews -> how many behaviours she has then, and the repair that is counted.
LATER = 1_650_000_000_000
REVIEW_REPAIRS = {
    "same product and time": ({"text": "Again"}, 12, "second review of a product"),
    "same product, another time": ({"timestamp": LATER}, 13, None),
    "unknown product": ({"parent_asin": "B0UNKNOWN"}, 12, "review of an unknown product"),
    "parts of stars": ({"rating": 4.73, "timestamp": LATER}, 12, "review with a rating other than"),
    "stars NaN": ({"rating": float("nan"), "timestamp": LATER}, 12, "review with a rating other than"),
}


@pytest.mark.parametrize("case", REVIEW_REPAIRS)
def test_review_that_is_no_behaviour_is_dropped_and_counted(amazon_files, case):
    changes, n_behaviors, repair = REVIEW_REPAIRS[case]
    amazon_files.reviews.append(amazon_files.review("UANN", 4, **changes))
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert len(benchmark.behaviors["UANN"]) == n_behaviors
    assert "Again" not in {b.review.text for b in benchmark.behaviors["UANN"]}
    assert [name.startswith(repair) for name in benchmark.repairs] == [True] * bool(repair)
    assert sum(benchmark.repairs.values()) == bool(repair)


def test_reviews_of_nobody_are_dropped_and_the_first_is_named(amazon_files):
    for user in (None, "None", "nan", "NULL"):
        amazon_files.reviews.insert(7, amazon_files.review("UANN", 4) | {"user_id": user})
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert len(benchmark.behaviors["UANN"]) == 12 and len(benchmark.behaviors) == 2
    ((told, n),) = benchmark.repairs.items()
    assert n == 4 and re.fullmatch(r"review of nobody dropped \(the first: \S+, line 8\)", told)


@pytest.mark.parametrize("text", ["", "  ", "<br />", None])
def test_review_without_text_is_kept_but_no_review_task_is_made(amazon_files, text):
    amazon_files.reviews[11]["text"] = text  # Ann's last, her test behaviour
    benchmark = load_amazon(amazon_files.write(), n_users=2)
    assert len(benchmark.behaviors["UANN"]) == 12
    assert [t.type for t in benchmark.tasks["test"] if t.user_id == "UANN"] == ["search", "recommend"]
    assert benchmark.repairs["review without text kept (no review task made)"] == 1


# A large made file

LIMITED_LOAD = """
import resource, sys
from pathlib import Path
from pwagents.data.amazon import load_amazon

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
benchmark = load_amazon(Path(sys.argv[1]), n_users=50, max_products=500, memory_limit=sys.argv[2])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(benchmark.behaviors), (after - before) // 1024)
"""


def test_memory_stays_bounded_on_a_large_file(tmp_path, project_root):
    """A limit of 200 MB holds on 200 MB of reviews; with a limit of 2 GB they take about 300 MB."""
    text = "A long tale of how this came, fitted and held. " * 20
    line = json.dumps({"rating": 5.0, "title": "t", "text": text, "user_id": "U%d", "parent_asin": "B%d"})
    line = line[:-1] + ', "timestamp": %d}\n'
    with gzip.open(tmp_path / "reviews.jsonl.gz", "wt", compresslevel=1) as file:
        for i in range(190_000):
            file.write(line % (i % 15_000, i * 7919 % 5000, 1_600_000_000_000 + i))
    meta = '{"parent_asin": "B%d", "title": "Thing", "main_category": "Books"}\n'
    (tmp_path / "meta.jsonl").write_text("".join(meta % i for i in range(5000)), "utf-8")
    environment = os.environ | {"PYTHONPATH": str(project_root / "lib")}
    command = [sys.executable, "-c", LIMITED_LOAD, str(tmp_path), "200MB"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    users, megabytes = map(int, result.stdout.split()[-2:])  # a bar may come before
    assert users == 50
    assert megabytes < 250


# The real sample


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real Amazon sample at {REAL}")
def test_real_sizes():
    real = load_amazon(REAL)
    assert real.content_hash == "b299949cf5bb8a51"  # which users, products, texts and instructions
    assert (len(real.behaviors), len(real.products)) == (123, 23_222)
    assert min(map(len, real.behaviors.values())) >= 10
    for split in ("train", "test"):
        assert all(count > 100 for count in Counter(t.type for t in real.tasks[split]).values())
    assert real.repairs['product without title called "Untitled"'] == 76
    assert all(count > 0 for count in real.repairs.values())


def test_what_archives_and_editors_leave_is_no_data(amazon_files):
    whole = load_amazon(amazon_files.write(), n_users=2).content_hash
    for name in ("__MACOSX/._meta.jsonl", ".cache/meta.jsonl", ".reviews.jsonl"):
        (amazon_files.folder / name).parent.mkdir(exist_ok=True)
        (amazon_files.folder / name).write_bytes(b"\x00\x05\x16\x07")
    assert load_amazon(amazon_files.folder, n_users=2).content_hash == whole
