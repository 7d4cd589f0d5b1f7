"""A benchmark read from PersonalWAB's published files (Cai et al., WWW 2025, section 3) as they are.

Values stay as published: texts keep their HTML and categories their raw names, because the published numbers
come from them. A value that the types cannot hold (a price of "None", a title that is null) is mended and
counted; a record whose structure is broken is an error. Departure: a history that is not in time order is put
in it. Positions in messages ("history 3", "test task 17") count from 0, as in the JSON lists.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import get_args

from pwagents.data.amazon_clean import shortened
from pwagents.data.json_stream import read_entries, read_lists
from pwagents.data.personalwab_records import (
    ProductReference,
    PublishedBehavior,
    PublishedProduct,
    PublishedProfile,
    PublishedTask,
    WrittenBenchmark,
    parse,
)
from pwagents.data.personalwab_tasks import playable_tasks
from pwagents.errors import DataError
from pwagents.schema import Behavior, Benchmark, Product, Split, Task, UserProfile
from pwagents.seeds import derive_seed

SPLITS: tuple[Split, ...] = get_args(Split)
FOLDER_IN_CLONE = Path("PersonalWAB/envs/pwab/data")  # where the official repository holds the files
FILES = (
    "user_profiles.json",
    "user_history_part_*.json",
    "all_products_part_*.json",
    "user_instructions.json",
)
DERIVED = "derived"  # marks a profile that was counted where the data have none
WRITTEN = "benchmark.json"  # what pwagents wrote about the benchmark, where it wrote the files


def load_personalwab(
    data_dir: Path, *, n_users: int = 1000, n_products: int = 40_000, seed: int = 0
) -> Benchmark:
    """The benchmark that PersonalWAB's files hold, or a part of it.

    Args:
        data_dir: holds the files ``user_profiles.json``, ``user_history_part_*.json``,
            ``all_products_part_*.json`` and ``user_instructions.json``, or is a clone of the official
            repository. Files of :func:`pwagents.data.personalwab_export.write_personalwab` do as well.
        n_users: how many users to take, with their tasks. ``seed`` chooses them where there are more.
        n_products: size of the catalogue. It holds every product of a chosen user, however many these are;
            others fill it up.
        seed: chooses users and the rest of the catalogue, where not all are taken.

    Returns:
        A benchmark with users in the order of their ids, tasks and products in the order of the files.
        ``repairs`` counts what was mended in all of the files. A task without an id of its own is called
        "user-timestamp-product-type", and those after the first of that name get "-2", "-3" and so on.

    Raises:
        DataError: a file is missing or broken, or the files are not those that their ``benchmark.json``
            was written for.
    """
    profile_files, history_files, product_files, instruction_files = find_files(Path(data_dir))
    repairs: Counter = Counter()
    products = _read_products(product_files, repairs)
    behaviors = _read_histories(history_files, products, repairs)
    tasks = _read_tasks(instruction_files[0], products, behaviors, repairs)
    tasks = playable_tasks(instruction_files[0], tasks, behaviors, repairs)
    profiles = _read_profiles(profile_files[0])
    repairs["user without a published profile"] += len(behaviors.keys() - profiles.keys())
    profiles = {user: profile for user, profile in profiles.items() if profile}
    repairs = dict(sorted((+repairs).items()))
    whole = Benchmark("personalwab", products, behaviors, tasks, profiles, repairs)
    return _part(_as_written(whole, profile_files[0].parent), n_users, n_products, seed)


def read_profiles(path: Path) -> dict[str, UserProfile]:
    """The profiles that ``user_profiles.json`` holds, by user. Users with an empty one are left out.

    Raises:
        DataError: the file cannot be read, or a profile lacks a field.
    """
    return {user: profile for user, profile in _read_profiles(Path(path)).items() if profile}


def find_files(data_dir: Path) -> list[list[Path]]:
    """The files of each kind in ``data_dir``, or in the official repository's place below it.

    Raises:
        DataError: there is no file of some kind.
    """
    folders = (data_dir, data_dir / FOLDER_IN_CLONE)
    found = next(filter(any, map(_files_in, folders)), [[] for _ in FILES])
    missing = [name for name, paths in zip(FILES, found, strict=True) if not paths]
    if missing:
        expected = "PersonalWAB's files: run `make data`, or point data_dir at a folder that holds them"
        raise DataError(data_dir.absolute(), "-", "(files)", f"no {', no '.join(missing)}", expected)
    return found


def _files_in(folder: Path) -> list[list[Path]]:
    """The files of each kind, part 2 before part 10."""
    return [sorted(folder.glob(name), key=lambda path: (len(path.name), path.name)) for name in FILES]


def _read_products(paths: list[Path], repairs: Counter) -> dict[str, Product]:
    products: dict[str, Product] = {}
    for path, asin, value in read_entries(paths, "reading products", repairs):
        if asin in products:
            repairs["product listed again dropped (the first is kept)"] += 1
            continue
        product = parse(PublishedProduct, value, path, f"product {asin}", repairs).product()
        if product.parent_asin != asin:
            expected = f"{asin}, the key of the record"
            raise DataError(path, f"product {asin}", "parent_asin", product.parent_asin, expected)
        products[asin] = product
    return products


def _read_histories(
    paths: list[Path], products: dict[str, Product], repairs: Counter
) -> dict[str, tuple[Behavior, ...]]:
    behaviors: dict[str, tuple[Behavior, ...]] = {}
    for path, user, values in read_entries(paths, "reading histories", repairs):
        if user in behaviors:
            repairs["history of a user listed again dropped (the first is kept)"] += 1
            continue
        if not isinstance(values, list):
            raise DataError(path, f"user {user}", "(history)", shortened(values), "a list of behaviours")
        history = [
            _make_behavior(value, path, f"user {user}, history {i}", products, repairs)
            for i, value in enumerate(values)
        ]
        repairs["user with an empty history"] += not history
        behaviors[user] = tuple(sorted(history, key=lambda behavior: behavior.timestamp))
        repairs["history put in time order"] += behaviors[user] != tuple(history)
    if not behaviors:
        raise DataError(paths[0], "-", "(history)", "no user", "users with their histories")
    return {user: behaviors[user] for user in sorted(behaviors)}


def _make_behavior(
    value, path: Path, record: str, products: dict[str, Product], repairs: Counter
) -> Behavior:
    published = parse(PublishedBehavior, value, path, record, repairs)
    asin = _known_product(published.product_info, path, record, "product_info", products, repairs)
    return Behavior(parent_asin=asin, timestamp=published.review.timestamp, review=published.review.review())


def _known_product(
    info: dict, path: Path, record: str, field: str, products: dict[str, Product], repairs: Counter
) -> str:
    """The id of the product that ``info`` tells about; one that the catalogue lacks is added to it."""
    asin = parse(ProductReference, info, path, record, repairs, field).parent_asin
    if asin not in products:
        products[asin] = parse(PublishedProduct, info, path, record, repairs, field).product()
        repairs["product of a history or target added to the catalogue, which lacks it"] += 1
    return asin


def _read_tasks(
    path: Path, products: dict[str, Product], users: Collection[str], repairs: Counter
) -> dict[Split, tuple[Task, ...]]:
    tasks: dict[Split, list[Task]] = {split: [] for split in SPLITS}
    ids: set[str] = set()
    times_made: Counter = Counter()
    for split, value in read_lists(path, SPLITS, "reading instructions", repairs):
        record = f"{split} task {len(tasks[split])}"
        published = parse(PublishedTask, value, path, record, repairs)
        if published.user_id not in users:
            expected = "a user with a history in one of the parts"
            raise DataError(path, record, "user_id", published.user_id, expected)
        info = published.target.product_info
        asin = _known_product(info, path, record, "target.product_info", products, repairs)
        task = _make_task(published, asin, times_made)
        if task.task_id in ids:
            raise DataError(path, record, "task_id", f"{task.task_id} for a second time", "unique ids")
        ids.add(task.task_id)
        tasks[split].append(task)
    return {split: tuple(tasks[split]) for split in SPLITS}


def _make_task(published: PublishedTask, asin: str, times_made: Counter) -> Task:
    task_id = published.task_id
    if task_id is None:
        task_id = f"{published.user_id}-{published.timestamp}-{asin}-{published.type}"
        times_made[task_id] += 1
        task_id += f"-{times_made[task_id]}" if times_made[task_id] > 1 else ""
    return Task(
        task_id=task_id,
        user_id=published.user_id,
        type=published.type,
        timestamp=published.timestamp,
        instruction=published.task,
        target=asin,
        review=published.target.review.review(),
    )


def _read_profiles(path: Path) -> dict[str, UserProfile | None]:
    """user_id -> profile; None where the file has an empty one, or one that was derived for other code."""
    profiles: dict[str, UserProfile | None] = {}
    fields = [field.alias for field in UserProfile.model_fields.values()]
    for _, user, value in read_entries([path], "reading profiles", Counter()):
        record, profiles[user] = f"user {user}", None
        derived = isinstance(value, dict) and value.get(DERIVED) is True
        if not derived and value not in ({}, {"user_profile": {}}):
            found = parse(PublishedProfile, value, path, record, Counter()).user_profile
            known = {field: found[field] for field in fields if field in found}
            profiles[user] = parse(UserProfile, known, path, record, Counter(), "user_profile")
    return profiles


def _as_written(benchmark: Benchmark, folder: Path) -> Benchmark:
    """``benchmark`` with name, repairs and strangers of the ``benchmark.json`` beside its files, if any."""
    path = folder / WRITTEN
    if not path.exists():
        return benchmark
    value = {key: value for _, key, value in read_entries([path], "reading", Counter())}
    written = parse(WrittenBenchmark, value, path, "-", Counter())
    benchmark = replace(benchmark, population=written.population)
    if written.content_hash != benchmark.content_hash:
        expected = (
            f"{benchmark.content_hash}, that of the files beside it: they are not what was written; write "
            "them again, or delete this file to read them as they are"
        )
        raise DataError(path, "-", "content_hash", written.content_hash, expected)
    return replace(benchmark, name=written.name, repairs=written.repairs)


def _part(whole: Benchmark, n_users: int, n_products: int, seed: int) -> Benchmark:
    if n_users >= len(whole.behaviors) and n_products >= len(whole.products):
        return whole
    users = set(_choose(whole.behaviors, n_users, derive_seed(seed, "users")))
    tasks = {
        split: tuple(task for task in tasks if task.user_id in users) for split, tasks in whole.tasks.items()
    }
    needed = {behavior.parent_asin for user in users for behavior in whole.behaviors[user]}
    needed.update(task.target for split in tasks for task in tasks[split])
    others = _choose(whole.products.keys() - needed, n_products - len(needed), derive_seed(seed, "catalogue"))
    catalogue = needed.union(others)
    return replace(
        whole,
        products={asin: product for asin, product in whole.products.items() if asin in catalogue},
        behaviors={user: behaviors for user, behaviors in whole.behaviors.items() if user in users},
        tasks=tasks,
        profiles={user: profile for user, profile in whole.profiles.items() if user in users},
        population={
            stranger: bought
            for stranger, purchases in whole.population.items()
            if (bought := tuple(each for each in purchases if each[1] in catalogue))
        },
    )


def _choose(names: Collection[str], n: int, seed: int) -> list[str]:
    """At most ``n`` of the names, in the order of a seeded hash, so that fewer are always among more."""
    return sorted(names, key=lambda name: sha256(f"{seed}{name}".encode()).digest())[: max(n, 0)]
