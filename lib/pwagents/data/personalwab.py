"""A benchmark read from PersonalWAB's published files (Cai et al., WWW 2025, section 3) as they are.

Values stay as published: texts keep their HTML and categories their raw names, because the published numbers
come from them. A value that the types cannot hold (a price of "None", a title that is null) is mended and
counted; a record whose structure is broken is an error. Histories and tasks are mended for the leak-free
protocol alone: the published numbers were made without. Positions in messages ("test 17") count from 0, as in
the JSON lists.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from pydantic import ValidationError

from pwagents.data import mend
from pwagents.data.files import find_personalwab
from pwagents.errors import DataError
from pwagents.schema import (
    Behavior,
    Benchmark,
    Product,
    Protocol,
    Review,
    Split,
    Task,
    UserProfile,
    join_values,
)
from pwagents.seeds import derive_seed


def load_personalwab(
    data_dir: Path,
    *,
    n_users: int = 1000,
    n_products: int = 40_000,
    seed: int = 0,
    protocol: Protocol = "leak_free",
) -> Benchmark:
    """Read the benchmark that PersonalWAB's files hold, or a part of it.

    Args:
        data_dir: holds :data:`pwagents.data.files.PERSONALWAB`, or is a clone of the official repository.
        n_users: how many users to take, with their tasks. ``seed`` chooses them where there are more.
        n_products: size of the catalog. It holds every product of a chosen user, however many these are;
            others fill it up.
        seed: chooses users and the rest of the catalog, where not all are taken.
        protocol: leak_free puts histories in time order and chooses tasks (:func:`_choose_tasks`); published
            leaves both as they are.

    Returns:
        A benchmark with users in the order of their ids, tasks and products in the order of the files.
        ``repairs`` counts what was mended in all of the files. A task without an id of its own is called
        "user-timestamp-product-type", and those after the first of that name get "-2", "-3" and so on.

    Raises:
        DataError: a file is missing or broken, or a split has no task.
    """
    (profile_file, *_), history_files, product_files, (task_file, *_) = find_personalwab(Path(data_dir))
    products: dict[str, Product] = {}
    repairs: Counter = Counter()
    # The catalog comes first: histories and tasks add the products that it lacks.
    for path in product_files:
        with _reading(path, repairs) as (entries, at):
            for asin, info in entries.items():
                at.record = f"product {asin}"
                product = _make_product(info, repairs)
                if product.parent_asin != asin:
                    expected = f"{asin}, the key of the record"
                    raise DataError(path, at.record, "parent_asin", product.parent_asin, expected)
                repairs["product listed again dropped (the first is kept)"] += asin in products
                products.setdefault(asin, product)
    behaviors: dict[str, tuple[Behavior, ...]] = {}
    for path in history_files:
        with _reading(path, repairs) as (entries, at):
            for user, records in entries.items():
                at.record = f"user {user}"
                if user.lower() in mend.NOBODY:
                    repairs[f"history of nobody ({user!r}) dropped"] += 1
                    continue
                if user in behaviors:
                    repairs["history of a user listed again dropped (the first is kept)"] += 1
                    continue
                history = []
                for i, record in enumerate(records):
                    at.record = f"user {user}, history {i}"
                    review = record["review"]
                    asin = _add_product(record["product_info"], products, repairs)
                    time = mend.check_time(review["timestamp"])
                    made = _make_review(review, repairs)
                    history.append(Behavior(parent_asin=asin, timestamp=time, review=made))
                repairs["user with an empty history"] += not history
                behaviors[user] = tuple(history)
                if protocol == "leak_free":  # published histories are in time order but for few
                    behaviors[user] = tuple(sorted(history, key=lambda behavior: behavior.timestamp))
                    repairs["history put in time order"] += behaviors[user] != tuple(history)
    behaviors = {user: behaviors[user] for user in sorted(behaviors)}
    tasks = {split: tuple(made) for split, made in _read_tasks(task_file, products, repairs).items()}
    if protocol == "leak_free":
        tasks = _choose_tasks(tasks, behaviors, repairs)
    for split, made in tasks.items():
        if not made:
            raise DataError(task_file, "-", split, "no task", "tasks in both splits, of different purchases")
    profiles = read_profiles(profile_file)
    repairs["user without a published profile"] += len(behaviors.keys() - profiles.keys())
    repaired = dict(sorted((+repairs).items()))
    kept_as = {"as_published": protocol == "published"}
    whole = Benchmark("personalwab", products, behaviors, tasks, profiles, repaired, **kept_as)
    return _take_part(whole, n_users, n_products, seed)


def read_profiles(path: Path) -> dict[str, UserProfile]:
    """Read the profiles of ``user_profiles.json``, by user. Users with an empty one are left out.

    Raises:
        DataError: the file cannot be read, or a profile lacks a field.
    """
    profiles = {}
    known = {field.alias for field in UserProfile.model_fields.values()}
    with _reading(path, Counter()) as (entries, at):
        for user, record in entries.items():
            at.record = f"user {user}"
            if record not in ({}, {"user_profile": {}}):
                fields = record["user_profile"].items()
                profiles[user] = UserProfile(**{name: text for name, text in fields if name in known})
    return profiles


@contextmanager
def _reading(path: Path, repairs: Counter) -> Iterator[tuple[dict[str, Any], SimpleNamespace]]:
    """Open the JSON object of a file; give it, and the place whose ``record`` an error will name.

    NaN and Infinity, which Python writes although JSON does not know them, become null and are counted.

    Raises:
        DataError: the file is no JSON object, or a record lacks a field or holds what it may not.
    """

    def as_null(_: str) -> None:
        repairs["NaN or Infinity taken as missing"] += 1

    at = SimpleNamespace(record="-")
    where, found, expected = "(file)", "", "a whole file of one JSON object in UTF-8"
    try:
        entries = json.loads(path.read_text("utf-8"), parse_constant=as_null)
        if not isinstance(entries, dict):
            raise ValueError(f"{mend.shorten(entries)}, which is no JSON object")
        for at.record, entry in entries.items():  # half a surrogate pair can be no text of ours
            json.dumps({at.record: entry}, ensure_ascii=False).encode()
        at.record = "-"
        where, expected = "(record)", "PersonalWAB's layout"
        yield entries, at
        return
    except DataError:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where, found = ".".join(map(str, first["loc"])), mend.shorten(first["input"])
        expected = first["msg"].removeprefix("Input should be ")
    except KeyError as error:
        where, found, expected = error.args[0], "no such field", "this field in every record"
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        found = str(error)
    raise DataError(path, at.record, where, found, expected)


def _make_product(info: Mapping[str, Any], repairs: Counter) -> Product:
    """Make a Product of a published record, which may hold more fields; what is mended is counted."""

    # A value of a kind that cannot be mended goes on to Product, which refuses it by its field's name.
    def name_of(field: str, otherwise: str) -> str:
        name = "" if info[field] is None else info[field]
        if isinstance(name, str) and not name.strip():
            repairs[f'product without {field} called "{otherwise}"'] += 1
            return otherwise
        return name

    def texts(field: str) -> Any:
        value = info[field] or []
        if isinstance(info[field], str):
            repairs[f"{field} given as one text taken as a list"] += 1
            return [value] if value else []
        return [join_values(part) for part in value] if isinstance(value, list) else value

    return Product(
        parent_asin=info["parent_asin"],
        title=name_of("title", "Untitled"),
        category=name_of("main_category", "Other"),
        price=mend.parse_price(info["price"], repairs),
        store=info["store"],
        average_rating=mend.keep_in_range(info["average_rating"], 5, "average_rating", repairs),
        rating_number=mend.parse_count(info["rating_number"], repairs),
        features=texts("features"),
        description=texts("description"),
        details=info["details"] or {},
    )


def _add_product(info: Mapping[str, Any], products: dict[str, Product], repairs: Counter) -> str:
    """Give the id of the product that ``info`` tells about, which is added to a catalog that lacks it."""
    if (asin := info["parent_asin"]) not in products:
        product = _make_product(info, repairs)
        asin = product.parent_asin  # without spaces around it
        products[asin] = product
        repairs["product of a history or target added to the catalogue, which lacks it"] += 1
    return asin


def _make_review(record: Mapping[str, Any], repairs: Counter) -> Review:
    texts = {field: record[field] for field in ("title", "text")}
    for field in [field for field, text in texts.items() if text is None]:
        repairs[f"review {field} that is null taken as empty"] += 1
        texts[field] = ""
    review = Review(rating=record["rating"], **texts)
    if review.rating != int(review.rating):
        raise ValueError(f"rating is {review.rating}; expected a whole number of stars")
    return review


def _read_tasks(path: Path, products: dict[str, Product], repairs: Counter) -> dict[Split, list[Task]]:
    """Read the tasks of both splits; those without an id of their own get one."""
    tasks: dict[Split, list[Task]] = {split: [] for split in get_args(Split)}
    times_made, nobodys = Counter(), []
    with _reading(path, repairs) as (entries, at):
        for split, made in tasks.items():
            for i, record in enumerate(entries[split]):
                at.record = f"{split} task {i}"
                if str(record["user_id"]).lower() in mend.NOBODY:
                    nobodys.append(at.record)
                    continue
                target = record["target"]
                asin = _add_product(target["product_info"], products, repairs)
                task_id = record.get("task_id")  # not published; files of other makers may have it
                if task_id is None:
                    task_id = f"{record['user_id']}-{record['timestamp']}-{asin}-{record['type']}"
                    times_made[task_id] += 1
                    task_id += f"-{times_made[task_id]}" if times_made[task_id] > 1 else ""
                made.append(
                    Task(
                        task_id=task_id,
                        user_id=record["user_id"],
                        type=record["type"],
                        timestamp=mend.check_time(record["timestamp"]),
                        instruction=record["task"],
                        target=asin,
                        review=_make_review(target["review"], repairs),
                    )
                )
    if nobodys:
        repairs[f"task of nobody dropped (the first: {nobodys[0]})"] = len(nobodys)
    return tasks


def _choose_tasks(
    tasks: Mapping[Split, Sequence[Task]],
    behaviors: Mapping[str, Sequence[Behavior]],
    repairs: Counter,
) -> dict[Split, tuple[Task, ...]]:
    """Choose the tasks that may be played leak-free, after a comparison with histories and with each other.

    Were a task dated after its own purchase, the history before it would hold its answer: it is dated by the
    purchase. Were a purchase trained on and tested, training would tell its answer: its train tasks are
    dropped, as are tasks listed twice. A target that its user's history lacks is only counted.
    """
    times: dict[tuple[str, str], list[int]] = defaultdict(list)
    for user, history in behaviors.items():
        for behavior in history:
            times[user, behavior.parent_asin].append(behavior.timestamp)
    kept: dict[Split, dict[tuple, Task]] = {split: {} for split in tasks}
    for split, of_split in tasks.items():
        for task in of_split:
            bought = times.get((task.user_id, task.target), [])
            repairs["task whose target is missing in the user's history"] += not bought
            if bought and task.timestamp not in bought:
                repairs["task at another time than its purchase, dated by the purchase"] += 1
                nearest = min(bought, key=lambda time: (abs(time - task.timestamp), time))
                task = task.model_copy(update={"timestamp": nearest})
            same = (task.user_id, task.target, task.timestamp, task.type, task.instruction)
            repairs["task listed again dropped (the first is kept)"] += same in kept[split]
            kept[split].setdefault(same, task)
    # The first three say which purchase a task is about: user, product and time.
    tested = {same[:3] for same in kept["test"]}
    train = {same: task for same, task in kept["train"].items() if same[:3] not in tested}
    repairs["train task of a purchase that is tested dropped"] += len(kept["train"]) - len(train)
    kept["train"] = train
    return {split: tuple(of_split.values()) for split, of_split in kept.items()}


def _take_part(whole: Benchmark, n_users: int, n_products: int, seed: int) -> Benchmark:
    if n_users >= len(whole.behaviors) and n_products >= len(whole.products):
        return whole
    users = set(_choose(whole.behaviors, n_users, derive_seed(seed, "users")))
    tasks = {split: tuple(t for t in tasks if t.user_id in users) for split, tasks in whole.tasks.items()}
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
    )


def _choose(names: Collection[str], n: int, seed: int) -> list[str]:
    """At most ``n`` of the names, in the order of a seeded hash, so that fewer are always among more."""
    return sorted(names, key=lambda name: sha256(f"{seed}{name}".encode()).digest())[: max(n, 0)]
