"""Any benchmark written in PersonalWAB's layout: read again it is equal, and other code can read it."""

import glob
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pwagents.data.amazon import load_amazon
from pwagents.data.derived_profile import derived_profile
from pwagents.data.personalwab import load_personalwab
from pwagents.data.personalwab_export import write_personalwab
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.errors import DataError
from pwagents.schema import TASK_TYPES, Behavior, Benchmark, Product, Review, Task, UserProfile

DATA = Path(os.environ.get("PWAGENTS_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
REAL = DATA / "amazon_reviews_2023"


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return make_world(WorldConfig(n_users=12, n_products=200), seed=0).benchmark


def assert_same(read: Benchmark, written: Benchmark):
    assert read == written
    assert read.content_hash == written.content_hash
    assert list(read.products) == list(written.products)
    assert [task.task_id for task in read.all_tasks()] == [task.task_id for task in written.all_tasks()]


@pytest.mark.parametrize("parts", [1, 2, 13, 500])
def test_embedded_world_comes_back(world, tmp_path, parts):
    write_personalwab(world, tmp_path / "new" / "folder", parts=parts)
    assert len(list(tmp_path.glob("new/folder/*_part_*.json"))) == 2 * parts
    read = load_personalwab(tmp_path / "new" / "folder")
    assert_same(read, world)
    assert list(read.behaviors) == list(world.behaviors)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real Amazon sample at {REAL}")
def test_real_amazon_comes_back(tmp_path):
    benchmark = load_amazon(REAL, n_users=60, max_products=1500)
    assert benchmark.repairs
    write_personalwab(benchmark, tmp_path)
    assert_same(load_personalwab(tmp_path), benchmark)


def test_personalwab_comes_back_without_its_dirt(personalwab_files):
    personalwab_files.put("products.B000000003.title", None)
    personalwab_files.put("profiles.UBOB", ...)
    published = load_personalwab(personalwab_files.write("published") / "published")
    write_personalwab(published, personalwab_files.folder / "written")
    assert len(published.repairs) == 2
    assert_same(load_personalwab(personalwab_files.folder / "written"), published)


FIELDS = {field.alias for field in UserProfile.model_fields.values()}
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["<br />a &amp; b", "NaN", '"\\', "\x1c", "\u2028\x85", "\x00", "🪑"]
)
IDS = TEXTS.map(lambda text: f"x{text}x")  # what has no white space around it
NAMES = TEXTS.map(lambda text: f"{text}x") | st.just("\x1c")
REVIEWS = st.builds(Review, rating=st.integers(1, 5), title=TEXTS, text=TEXTS)
TIMES = st.integers(1_600_000_000_000, 1_600_000_000_003)
PROFILES = st.fixed_dictionaries(dict.fromkeys(UserProfile.model_fields, TEXTS)).map(
    lambda fields: UserProfile(**fields)
)


@st.composite
def benchmarks(draw) -> Benchmark:
    """Up to four products and three users, with equal times, empty texts and fields that are None."""

    def products(asin: str) -> st.SearchStrategy[Product]:
        return st.builds(
            Product,
            parent_asin=st.just(asin),
            title=NAMES,
            category=NAMES,
            price=st.none() | st.floats(0, 1e6),
            store=st.none() | TEXTS,
            average_rating=st.none() | st.floats(0, 5),
            rating_number=st.none() | st.integers(0, 10**9),
            features=st.lists(TEXTS, max_size=2).map(tuple),
            description=st.lists(TEXTS, max_size=2).map(tuple),
            details=st.dictionaries(TEXTS, TEXTS, max_size=2),
        )

    asins = draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
    users = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    purchases = st.tuples(st.sampled_from(users), st.sampled_from(asins), TIMES)
    bought = draw(st.lists(purchases, min_size=2, max_size=8, unique=True))
    about = draw(st.permutations(bought))[:5]  # a task each, in one of two splits
    tasks = [
        Task(
            task_id=f"{i}{draw(IDS)}",
            user_id=user,
            type=draw(st.sampled_from(TASK_TYPES)),
            timestamp=timestamp,
            instruction=draw(NAMES),
            target=asin,
            review=draw(REVIEWS),
        )
        for i, (user, asin, timestamp) in enumerate(about)
    ]
    n_train = draw(st.integers(1, len(tasks) - 1))
    return Benchmark(
        draw(TEXTS),
        {asin: draw(products(asin)) for asin in asins},
        {
            user: tuple(
                Behavior(parent_asin=asin, timestamp=timestamp, review=draw(REVIEWS))
                for owner, asin, timestamp in sorted(bought, key=lambda purchase: purchase[2])
                if owner == user
            )
            for user in users
        },
        {"train": tuple(tasks[:n_train]), "test": tuple(tasks[n_train:])},
        draw(st.dictionaries(st.sampled_from(users), PROFILES)),
        draw(st.dictionaries(TEXTS, st.integers(0, 9), max_size=2)),
        {"a stranger": ((1_600_000_000_000, asins[0]),)} if draw(st.booleans()) else {},
    )


@settings(max_examples=50)
@given(benchmark=benchmarks(), parts=st.integers(1, 3))
def test_any_sound_benchmark_comes_back(benchmark, parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    write_personalwab(benchmark, folder, parts=parts)
    assert_same(load_personalwab(folder), benchmark)


def test_other_code_finds_what_it_reads(world, tmp_path):
    """The way in which published code reads the files: parts merged in any order, every key looked up."""
    profile = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Medium"))
    write_personalwab(replace(world, profiles={"U0001": profile}), tmp_path)

    def merged(pattern: str) -> dict:
        found = {}
        for path in glob.glob(str(tmp_path / pattern)):
            with open(path) as file:
                found.update(json.load(file))
        return found

    products, histories = merged("all_products_part_*.json"), merged("user_history_part_*.json")
    profiles, instructions = merged("user_profiles.json"), merged("user_instructions.json")
    assert list(instructions) == ["train", "test"]
    assert profiles.keys() == histories.keys() == world.behaviors.keys()
    assert profiles["U0001"]["user_profile"]["Price Sensitivity"] == "Medium"
    assert all(profile["user_profile"].keys() == FIELDS for profile in profiles.values())
    levels = (
        "Price Sensitivity",
        "Diversity Preference",
        "Interaction Complexity",
    )  # looked up by these words
    values = {p["user_profile"][field] for p in profiles.values() for field in levels}
    assert values == {"High", "Medium", "Low"}
    texts = [value for p in profiles.values() for value in p["user_profile"].values()]
    assert all(isinstance(text, str) and text for text in texts)
    info_keys = {
        *("title", "parent_asin", "main_category", "average_rating", "rating_number"),
        *("price", "store", "details", "description", "features"),
    }
    review_keys = {"rating", "title", "text", "timestamp", "parent_asin", "user_id"}
    purchases = [(user, purchase) for user, history in histories.items() for purchase in history]
    purchases += [(task["user_id"], task["target"]) for split in instructions.values() for task in split]
    for user, purchase in purchases:
        info, review = purchase["product_info"], purchase["review"]
        assert info.keys() == info_keys and review.keys() == review_keys
        assert products[info["parent_asin"]] == info
        assert (review["user_id"], review["parent_asin"]) == (user, info["parent_asin"])
    for task, written in zip(world.tasks["test"], instructions["test"], strict=True):
        assert (written["user_id"], written["task"], written["type"]) == (
            task.user_id,
            task.instruction,
            task.type,
        )
        assert written["timestamp"] == written["target"]["review"]["timestamp"] == task.timestamp


def test_a_derived_profile_knows_nothing_from_the_first_test_task_on(world, tmp_path):
    user = "U0001"
    before = replace(world, behaviors={**world.behaviors, user: world.train_period(user)})
    assert len(before.behaviors[user]) < len(world.behaviors[user])
    assert derived_profile(before, user) == derived_profile(world, user)
    assert derived_profile(world, "nobody").price_sensitivity == "Medium"


def test_strangers_come_back_and_of_a_part_what_it_sells(world, tmp_path):
    asins = sorted(world.products)
    bought = tuple((1_600_000_000_000 + i, asin) for i, asin in enumerate(asins))
    write_personalwab(replace(world, population={"P1": bought, "P2": bought[:1]}), tmp_path)
    assert load_personalwab(tmp_path).population == {"P1": bought, "P2": bought[:1]}
    part = load_personalwab(tmp_path, n_users=2, n_products=1)
    assert [asin for _, asin in part.population["P1"]] == [asin for asin in asins if asin in part.products]


def test_files_changed_since_are_refused_whatever_is_read_of_them(world, tmp_path):
    write_personalwab(world, tmp_path)
    path = tmp_path / "all_products_part_1.json"
    path.write_text(path.read_text().replace('"price": ', '"price": 1', 1))
    for n_users in (12, 1):
        with pytest.raises(
            DataError, match="they are not what was written; write them again, or delete this file"
        ):
            load_personalwab(tmp_path, n_users=n_users)
    (tmp_path / "benchmark.json").unlink()
    assert load_personalwab(tmp_path).name == "personalwab"


def test_part_of_a_written_benchmark_keeps_its_name(world, tmp_path):
    write_personalwab(replace(world, repairs={"a price mended": 3}), tmp_path)
    part = load_personalwab(tmp_path, n_users=2)
    assert (part.name, dict(part.repairs), len(part.behaviors)) == ("synthetic", {"a price mended": 3}, 2)


def test_smaller_benchmark_replaces_a_larger_one(world, tmp_path):
    write_personalwab(world, tmp_path, parts=5)
    small = make_world(WorldConfig(n_users=2, n_products=150), seed=1).benchmark
    write_personalwab(small, tmp_path, parts=1)
    assert_same(load_personalwab(tmp_path), small)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "all_products_part_1.json",
        "benchmark.json",
        "user_history_part_1.json",
        "user_instructions.json",
        "user_profiles.json",
    ]


def test_interrupted_writing_leaves_the_old_files(world, tmp_path, monkeypatch):
    write_personalwab(world, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    broken = replace(world, repairs={"not JSON": float("nan")})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_personalwab(broken, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("moved", range(1, 7))
def test_half_moved_files_are_told_from_whole_ones(world, tmp_path, monkeypatch, moved):
    """Killed between two renames: what lies there is a mixture, and the reader says so."""
    write_personalwab(world, tmp_path)
    left, really_replace = [moved], os.replace

    def replace_some(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        really_replace(source, target)

    monkeypatch.setattr(os, "replace", replace_some)
    other = make_world(WorldConfig(n_users=12, n_products=200), seed=1).benchmark
    with pytest.raises(KeyboardInterrupt):
        write_personalwab(other, tmp_path)
    with pytest.raises(DataError):
        load_personalwab(tmp_path)


def test_published_files_are_not_overwritten(world, personalwab_files):
    folder = personalwab_files.write()
    with pytest.raises(FileExistsError, match="take another folder"):
        write_personalwab(world, folder)
    assert set(load_personalwab(folder).behaviors) == {"UANN", "UBOB"}


def test_no_parts_are_refused(world, tmp_path):
    with pytest.raises(ValueError, match="parts is 0; expected 1 or more"):
        write_personalwab(world, tmp_path, parts=0)
