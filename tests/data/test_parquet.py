"""Benchmarks as Parquet: equal when read back, and loadable by ``datasets`` as they are."""

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import mistune
import pytest
import yaml
from datasets import load_dataset
from datasets.utils.info_utils import NonMatchingSplitsSizesError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pwagents.data.amazon import load_amazon
from pwagents.data.parquet import read_parquet, schema, write_parquet
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.schema import Behavior, Benchmark, Product, Review, Task, UserProfile

DATA = Path(os.environ.get("PWAGENTS_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
REAL = DATA / "amazon_reviews_2023"
NASTY = "---\n# x | `y` <script> $1$\n```\n| a: [b](c) *d* \u202e\x00"
PROFILE = UserProfile(**{name: f"some {name}" for name in UserProfile.model_fields})


@pytest.fixture(scope="module")
def world():
    return make_world(WorldConfig(n_users=30, n_products=400), seed=0).benchmark


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parquet") / "world"
    write_parquet(world, folder, licence="mit")
    return folder


def load(folder, config, split, cache):
    return load_dataset(str(folder), config, split=split, cache_dir=str(cache))


# There and back


def assert_equal(back, benchmark):
    assert back == benchmark
    assert back.content_hash == benchmark.content_hash
    for name in ("products", "behaviors", "tasks"):
        assert list(getattr(back, name)) == list(getattr(benchmark, name))  # the order too


def test_the_embedded_world_comes_back_equal(world, folder):
    assert_equal(read_parquet(folder), world)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real Amazon sample at {REAL}")
def test_real_products_and_reviews_come_back_equal(tmp_path):
    benchmark = load_amazon(REAL, n_users=50, max_products=3000)
    assert benchmark.repairs
    write_parquet(benchmark, tmp_path / "amazon", licence="other")
    assert_equal(read_parquet(tmp_path / "amazon"), benchmark)
    products = load(tmp_path / "amazon", "products", "full", tmp_path)
    assert products["parent_asin"][:] == list(benchmark.products)


def test_profiles_odd_users_and_absent_splits_come_back(world, tmp_path):
    profiles = {"U0001": PROFILE, "a user with a profile alone": PROFILE}
    behaviors = {"a user with an empty history": (), **world.behaviors}
    odd = replace(world, behaviors=behaviors, profiles=profiles, tasks={"test": ()})
    for benchmark in (odd, replace(world, tasks={}), Benchmark("empty", {}, {}, {})):
        folder = tmp_path / f"{benchmark.name} {len(benchmark.tasks)}"
        write_parquet(benchmark, folder, licence="mit")
        assert_equal(read_parquet(folder), benchmark)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["\x00", "\r\n", "\ufeff"]
)
words = texts.map(lambda text: f"x{text}x")
whole = st.integers(1, 2**63 - 1)
reviews = st.builds(Review, rating=st.floats(1, 5), title=texts, text=texts)
products = st.builds(
    Product,
    parent_asin=words,
    title=words,
    category=words,
    price=st.none() | st.floats(0, allow_infinity=False),
    store=st.none() | texts,
    average_rating=st.none() | st.floats(0, 5),
    rating_number=st.none() | whole,
    features=st.lists(texts, max_size=3),
    description=st.lists(texts, max_size=3),
    details=st.dictionaries(texts, texts, max_size=3),
)
user_profiles = st.fixed_dictionaries(dict.fromkeys(UserProfile.model_fields, texts)).map(
    lambda fields: UserProfile(**fields)
)


@st.composite
def benchmarks(draw):
    shop = {product.parent_asin: product for product in draw(st.lists(products, min_size=1, max_size=4))}
    asins = st.sampled_from(list(shop))
    times = st.lists(whole | st.just(7), max_size=5).map(sorted)
    behaviors = {
        user: tuple(Behavior(parent_asin=draw(asins), timestamp=t, review=draw(reviews)) for t in draw(times))
        for user in draw(st.lists(words, min_size=1, max_size=3, unique=True))
    }
    task = st.builds(Task, user_id=st.sampled_from(list(behaviors)), target=asins, instruction=words,
                     type=st.sampled_from(["search", "recommend", "review"]), timestamp=whole, review=reviews,
                     task_id=words)  # fmt: skip
    found = draw(st.lists(task, max_size=4, unique_by=lambda task: task.task_id))
    splits = draw(st.lists(st.sampled_from(["train", "test"]), unique=True))
    tasks = {split: tuple(found[i :: len(splits)]) for i, split in enumerate(splits)}
    users = st.sampled_from([*behaviors, "x with a profile alone"])
    profiles = draw(st.dictionaries(users, user_profiles, max_size=3))
    repairs = draw(st.dictionaries(texts, st.integers(), max_size=2))
    purchases = st.lists(st.tuples(whole, asins), min_size=1, max_size=3).map(tuple)
    strangers = words.filter(lambda stranger: stranger not in behaviors)
    population = draw(st.dictionaries(strangers, purchases, max_size=2))
    return Benchmark(draw(texts), shop, behaviors, tasks, profiles, repairs, population)


@settings(max_examples=25)
@given(benchmarks())
def test_any_benchmark_comes_back_equal(benchmark):
    with TemporaryDirectory() as folder:
        write_parquet(benchmark, Path(folder), licence=benchmark.name, source_note=benchmark.name)
        assert_equal(read_parquet(Path(folder)), benchmark)


def test_every_field_of_a_record_has_its_column():
    review = {f"review_{name}" for name in Review.model_fields}
    tables = ("users/full", "products/full", "histories/full", "tasks/train", "tasks/test")
    assert schema("population/full").names == ["user_id", "timestamp", "parent_asin"]
    users, products, histories, *tasks = ({*schema(table).names} for table in tables)
    assert users == {"user_id", "n_behaviors", *UserProfile.model_fields}
    assert products == {*Product.model_fields}
    assert histories == {"user_id", "position", *Behavior.model_fields} - {"review"} | review
    assert tasks == [{*Task.model_fields} - {"review"} | review] * 2


def test_the_same_benchmark_gives_the_same_bytes(world, folder, tmp_path):
    write_parquet(world, tmp_path / "again", licence="mit")
    assert_same_bytes(folder, tmp_path / "again")


def test_another_process_on_another_day_gives_the_same_bytes(folder, tmp_path):
    """Its hashes, time zone, language and cache are others, too."""
    program = """
import sys, time
from pathlib import Path
time.time = lambda: 2e9
from pwagents.data.parquet import read_parquet, write_parquet
write_parquet(read_parquet(Path(sys.argv[1])), Path(sys.argv[2]), licence="mit")
"""
    elsewhere = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C", "HF_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", program, str(folder), str(tmp_path / "again")]
    subprocess.run(command, check=True, env=os.environ | elsewhere)
    assert_same_bytes(folder, tmp_path / "again")


def assert_same_bytes(folder, again):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 8
    for path in files:
        assert path.read_bytes() == (again / path.relative_to(folder)).read_bytes()


# As ``datasets`` sees it


def test_datasets_loads_the_tasks_of_a_split(world, folder, tmp_path):
    assert list(load_dataset(str(folder), cache_dir=str(tmp_path))) == ["train", "test"]
    for split, tasks in world.tasks.items():
        rows = load(folder, "tasks", split, tmp_path)
        assert rows["task_id"][:] == [task.task_id for task in tasks]
        assert rows["review_text"][:] == [task.review.text for task in tasks]
    first = world.tasks["test"][0]
    assert load(folder, "tasks", "test", tmp_path)[0] == {
        "task_id": first.task_id,
        "user_id": first.user_id,
        "type": first.type,
        "timestamp": first.timestamp,
        "instruction": first.instruction,
        "target": first.target,
        "review_rating": first.review.rating,
        "review_title": first.review.title,
        "review_text": first.review.text,
    }


def test_datasets_loads_products_with_details_as_pairs(world, folder, tmp_path):
    rows = load(folder, "products", "full", tmp_path)
    for row, product in zip(rows, world.products.values(), strict=True):
        assert {pair["name"]: pair["value"] for pair in row.pop("details")} == product.details
        assert row == json.loads(product.model_dump_json(exclude={"details"}))


def test_datasets_loads_histories_one_row_a_behaviour(world, folder, tmp_path):
    rows = iter(load(folder, "histories", "full", tmp_path))
    for user, behaviors in world.behaviors.items():
        for position, behavior in enumerate(behaviors):
            row = next(rows)
            assert (row["user_id"], row["position"], row["parent_asin"]) == (
                user,
                position,
                behavior.parent_asin,
            )
            assert (row["timestamp"], row["review_rating"]) == (behavior.timestamp, behavior.review.rating)
    assert next(rows, None) is None


def test_datasets_notices_that_rows_are_missing(world, tmp_path):
    write_parquet(world, tmp_path / "world", licence="mit")
    path = tmp_path / "world" / "products" / "full.parquet"
    parquet.write_table(parquet.read_table(path).slice(1), path)
    with pytest.raises(NonMatchingSplitsSizesError):
        load(tmp_path / "world", "products", "full", tmp_path)


def test_datasets_loads_users_with_profiles_where_there_are_some(world, tmp_path):
    benchmark = replace(world, profiles={"U0002": PROFILE, "eve": PROFILE})
    write_parquet(benchmark, tmp_path / "users", licence="mit")
    rows = load(tmp_path / "users", "users", "full", tmp_path)
    ann, bob, eve = rows[0], rows[1], rows[30]
    assert (ann["user_id"], ann["n_behaviors"]) == ("U0001", len(world.behaviors["U0001"]))
    assert (ann["gender"], bob["gender"], eve["tone_and_style"]) == (
        None,
        "some gender",
        "some tone_and_style",
    )
    assert (eve["user_id"], eve["n_behaviors"]) == ("eve", None)


def test_what_has_no_rows_stands_not_in_the_way_of_the_rest(world, tmp_path):
    write_parquet(replace(world, tasks={**world.tasks, "train": ()}), tmp_path / "world", licence="mit")
    assert (tmp_path / "world" / "tasks" / "train.parquet").exists()
    assert list(load_dataset(str(tmp_path / "world"), "tasks", cache_dir=str(tmp_path))) == ["test"]


# The data card


def front_matter(folder):
    _, text, body = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(text), body


def test_the_card_says_what_the_files_are(world, folder):
    data, body = front_matter(folder)
    assert (data["license"], data["pretty_name"]) == ("mit", "synthetic")
    assert [config["config_name"] for config in data["configs"]] == [
        "users",
        "products",
        "histories",
        "tasks",
    ]
    assert world.content_hash in body
    assert "| products | full | 400 | " in body
    for path in folder.rglob("*.parquet"):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        assert f"| {path.parent.name} | {path.stem} | " in body
        assert f" | {path.stat().st_size:,} | `{sha256}` |" in body


def test_texts_of_the_data_do_not_break_the_card(world, tmp_path):
    folder = tmp_path / "world"
    render = mistune.create_markdown(plugins=["table"])
    world = replace(world, repairs={"dirt removed": 1})
    write_parquet(world, folder, licence="mit", source_note="Made *by hand*.\n\nTwice.")
    plain = render(front_matter(folder)[1])
    assert "<em>by hand</em>" in plain

    nasty = replace(world, name=NASTY, repairs={NASTY: 1})
    write_parquet(nasty, tmp_path / "nasty", licence=NASTY, source_note=f"<!-- {NASTY}")
    data, body = front_matter(tmp_path / "nasty")
    as_it_is = "--- # x | `y` <script> $1$ ``` | a: [b](c) *d*"
    assert data["license"] == data["pretty_name"] == as_it_is
    html = re.sub(
        "<blockquote>.*?</blockquote>", "", render(body), flags=re.DOTALL
    )  # the note may be Markdown
    for tag in ("h1", "h2", "table", "tr", "ul", "li", "script"):
        assert len(re.findall(f"<{tag}\\b", html)) == len(re.findall(f"<{tag}\\b", plain)), tag
    shown = as_it_is.replace("<", "&lt;").replace(">", "&gt;")
    assert f"<h1>{shown}</h1>" in html
    assert f"<td>{shown}</td>" in html
    assert_equal(read_parquet(tmp_path / "nasty"), nasty)
    assert len(load(tmp_path / "nasty", "tasks", "test", tmp_path)) == len(world.tasks["test"])
