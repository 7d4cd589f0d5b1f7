"""A benchmark made from the raw files of Amazon Reviews 2023, in the way of PersonalWAB (section 3.2).

The raw files hold tens of gigabytes. DuckDB scans each of them twice in bounded memory: once for ids and
times, from which users and products are chosen, and once for the whole records of those chosen. Departures
from the paper: an item's category is its ``main_category``, not the file that it comes from, and instructions
come from the offline writer (:mod:`pwagents.data.instructions`).

Users, and the products that fill up the catalogue, are chosen by a seeded hash of their ids. DuckDB's threads
give groups in no fixed order, so a random generator would choose others at every run; and with the hash, one
file more or less does not change which of two users comes first.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import duckdb

from pwagents.data.amazon_clean import (
    META_FIELDS,
    REVIEW_FIELDS,
    category_name,
    clean_behavior,
    clean_product,
)
from pwagents.data.amazon_scan import read_records, scan_columns
from pwagents.data.instructions import write_instruction
from pwagents.data.splits import split_by_time
from pwagents.errors import DataError
from pwagents.schema import TASK_TYPES, Behavior, Benchmark, Product, Split, Task, TaskType
from pwagents.seeds import derive_seed, rng

STARS = "rating IN (1, 2, 3, 4, 5)"  # the ratings that Amazon knows, in SQL
LIKED = 4  # stars from which a purchase counts as what the user wanted


def load_amazon(
    data_dir: Path,
    *,
    n_users: int = 1000,
    min_behaviors: int = 10,
    categories: Sequence[str] | None = None,
    max_products: int = 40_000,
    population: int = 0,
    seed: int = 0,
    memory_limit: str = "2GB",
) -> Benchmark:
    """Sample users from raw Amazon Reviews 2023 files and make a benchmark of them.

    Args:
        data_dir: holds ``.jsonl`` or ``.jsonl.gz`` files, any number of them, in subfolders too. Those whose
            name starts with "meta" are metadata, all others reviews, as the raw release names them.
        n_users: how many users to sample; where there are fewer, all are taken and ``repairs`` says so.
        min_behaviors: how many behaviours a user needs, at least 3.
        categories: use only products of these categories (PersonalWAB's names where one fits, as
            :func:`pwagents.data.amazon_clean.category_name` gives them); None for all.
        max_products: size of the catalogue. It holds every product of a sampled user, however many these
            are; others fill it up.
        population: of the users who were not sampled, at most so many become strangers, whose purchases of
            products of the catalogue are kept.
        seed: chooses users, strangers, the rest of the catalogue and the instructions' wording.
        memory_limit: of DuckDB; what does not fit goes to the system's folder for temporary files.

    Returns:
        A benchmark with users, products and tasks in the order of their ids and times. ``repairs`` counts
        what was mended in the records that it holds.

    Raises:
        DataError: a file is missing or broken, no user has enough behaviours, or a split has no task of
            some type.
        ValueError: ``min_behaviors`` is below 3, with which no split into three can be made.
    """
    if min_behaviors < 3:
        raise ValueError(f"min_behaviors is {min_behaviors}; a split into three needs at least 3")
    data_dir = Path(data_dir)
    reviews, metas = find_files(data_dir)
    repairs: Counter = Counter()
    try:
        with tempfile.TemporaryDirectory() as folder, _open_database(folder, memory_limit) as db:
            _scan_ids(db, metas, reviews)
            _keep_categories(db, data_dir, categories)
            _choose_users(db, data_dir, n_users, min_behaviors, seed, repairs)
            _count_dropped_reviews(db, repairs)
            _choose_catalogue(db, max_products, seed, repairs)
            strangers = _read_population(db, population, seed)
            behaviors = _read_behaviors(db, reviews, repairs)
            products = _read_products(db, metas, repairs)
    except duckdb.Error as error:
        expected = "a memory_limit and temporary disk space that suffice"
        raise DataError(data_dir, "-", "(scan)", str(error).partition("\n")[0], expected) from None
    tasks = _make_tasks(products, behaviors, seed, repairs)
    _check_tasks(data_dir, tasks)
    repaired = dict(sorted((+repairs).items()))
    return Benchmark("amazon", products, behaviors, tasks, population=strangers, repairs=repaired)


def _open_database(folder: str, memory_limit: str) -> duckdb.DuckDBPyConnection:
    # In a file rather than in memory: there, tables are compressed and leave memory when it gets tight.
    config = {"memory_limit": memory_limit, "threads": 4, "temp_directory": folder}
    db = duckdb.connect(f"{folder}/scan.duckdb", config=config)
    db.execute("SET enable_progress_bar = true")  # DuckDB keeps count, tqdm shows it
    db.execute("SET enable_progress_bar_print = false")
    return db


def find_files(data_dir: Path) -> tuple[list[Path], list[Path]]:
    """The review files and the metadata files below a folder, each in the order of their paths.

    Raises:
        DataError: there is no such folder, or no file of one kind in it.
    """
    if not data_dir.is_dir():
        expected = "a folder with review and metadata files, .jsonl or .jsonl.gz"
        raise DataError(data_dir.absolute(), "-", "data_dir", "no such folder", expected)
    found = sorted(path for suffix in ("", ".gz") for path in data_dir.rglob(f"*.jsonl{suffix}"))
    metas = [path for path in found if path.name.startswith("meta")]
    reviews = [path for path in found if not path.name.startswith("meta")]
    for kind, example, paths in (
        ("metadata", "meta.jsonl.gz or meta_<category>.jsonl.gz", metas),
        ("review", "reviews.jsonl.gz or <category>.jsonl.gz", reviews),
    ):
        if not paths:
            expected = f"{example} (or .jsonl), here or in folders below"
            raise DataError(data_dir.absolute(), "-", "(file)", f"no {kind} file", expected)
    return reviews, metas


def _scan_ids(db: duckdb.DuckDBPyConnection, metas: list[Path], reviews: list[Path]) -> None:
    """First pass: check every record, and keep its place, ids, time and rating in narrow tables."""
    columns = {"parent_asin": "TEXT", "main_category": "TEXT"}
    scan_columns(db, metas, META_FIELDS, "listings", columns)
    columns = {"user_id": "TEXT", "parent_asin": "TEXT", "timestamp": "BIGINT", "rating": "DOUBLE"}
    scan_columns(db, reviews, REVIEW_FIELDS, "reviews", columns)
    db.execute("""
        CREATE TABLE items AS  -- of a product listed more than once, the first listing counts
        SELECT parent_asin, min(place) AS place, count(*) AS listed,
            arg_min(coalesce(main_category, ''), place) AS main_category
        FROM listings GROUP BY parent_asin""")


def _keep_categories(db: duckdb.DuckDBPyConnection, data_dir: Path, categories: Sequence[str] | None) -> None:
    if categories is None:
        return
    names = {
        raw: category_name(raw)
        for (raw,) in db.execute("SELECT DISTINCT main_category FROM items").fetchall()
    }
    absent = sorted(set(categories) - set(names.values()))
    if absent:
        found = f"no product of {absent}"
        raise DataError(
            data_dir, "-", "main_category", found, f"categories among {sorted(set(names.values()))}"
        )
    unwanted = [raw for raw, name in names.items() if name not in categories]
    db.execute("DELETE FROM items WHERE list_contains(?::TEXT[], main_category)", [unwanted])


def _choose_users(db, data_dir: Path, n_users: int, min_behaviors: int, seed: int, repairs: Counter) -> None:
    """Choose users with enough behaviours, in the order of a seeded hash."""
    db.execute(f"""
        CREATE VIEW behaviors AS  -- reviews of one product by one user at the same time are one behaviour
        SELECT user_id, parent_asin, timestamp, min(reviews.place) AS place
        FROM reviews JOIN items USING (parent_asin) WHERE {STARS}
        GROUP BY user_id, parent_asin, timestamp""")
    db.execute("CREATE TABLE counts AS SELECT user_id, count(*) AS n FROM behaviors GROUP BY user_id")
    db.execute(
        "CREATE TABLE users AS SELECT user_id FROM counts WHERE n >= ? ORDER BY sha256(? || user_id) LIMIT ?",
        [min_behaviors, str(derive_seed(seed, "users")), n_users],
    )
    (found,) = db.execute("SELECT count(*) FROM users").fetchone()
    if found == 0:
        (longest,) = db.execute("SELECT coalesce(max(n), 0) FROM counts").fetchone()
        advice = "lower min_behaviors (the least history) or take more categories or files"
        expected = f"users with {min_behaviors}; {advice}"
        raise DataError(data_dir, "-", "user_id", f"at most {longest} behaviours of one user", expected)
    repairs[f"users missing of the {n_users} asked for: no more have {min_behaviors} behaviours"] = (
        n_users - found
    )
    db.execute("CREATE TABLE chosen_reviews AS FROM behaviors SEMI JOIN users USING (user_id)")


def _count_dropped_reviews(db: duckdb.DuckDBPyConnection, repairs: Counter) -> None:
    """Count the reviews of the chosen users that did not become behaviours."""
    db.execute("CREATE TABLE theirs AS FROM reviews SEMI JOIN users USING (user_id)")
    unknown = "SELECT count(*) FROM theirs ANTI JOIN listings USING (parent_asin)"
    (repairs["review of an unknown product dropped"],) = db.execute(unknown).fetchone()
    in_range = f"count(*) FILTER ({STARS})"
    rated = f"SELECT count(*), {in_range} FROM theirs SEMI JOIN items USING (parent_asin)"
    n_all, n_rated = db.execute(rated).fetchone()
    (n_kept,) = db.execute("SELECT count(*) FROM chosen_reviews").fetchone()
    repairs["review with a rating other than 1, 2, 3, 4 or 5 stars dropped"] = n_all - n_rated
    repairs["second review of a product by the same user at the same time dropped"] = n_rated - n_kept


def _choose_catalogue(db, max_products: int, seed: int, repairs: Counter) -> None:
    """Choose the products that the users bought; then others, in the order of a seeded hash."""
    db.execute("CREATE TABLE bought AS SELECT DISTINCT parent_asin, true AS is_bought FROM chosen_reviews")
    (n_bought,) = db.execute("SELECT count(*) FROM bought").fetchone()
    db.execute(
        """
        CREATE TABLE chosen_listings AS
        SELECT place, listed FROM items LEFT JOIN bought USING (parent_asin)
        ORDER BY is_bought NULLS LAST, sha256(? || parent_asin) LIMIT ?""",
        [str(derive_seed(seed, "catalogue")), max(max_products, n_bought)],
    )
    more = "SELECT coalesce(sum(listed - 1), 0)::BIGINT FROM chosen_listings"
    (repairs["product listed again dropped (the first is kept)"],) = db.execute(more).fetchone()


def _read_population(db, n_strangers: int, seed: int) -> dict[str, tuple[tuple[int, str], ...]]:
    """What users who were not chosen bought of the catalogue; who, the seeded hash says."""
    purchases = db.execute(
        """
        WITH catalogue AS (SELECT parent_asin FROM items SEMI JOIN chosen_listings USING (place)),
        sold AS (FROM behaviors SEMI JOIN catalogue USING (parent_asin) ANTI JOIN users USING (user_id)),
        strangers AS (
            SELECT user_id FROM sold GROUP BY user_id HAVING count(*) > 1
            ORDER BY sha256(? || user_id) LIMIT ?)
        SELECT user_id, timestamp, parent_asin FROM sold SEMI JOIN strangers USING (user_id) ORDER BY ALL""",
        [str(derive_seed(seed, "users")), n_strangers],
    ).fetchall()
    by_stranger = groupby(purchases, key=itemgetter(0))
    return {user: tuple((time, asin) for _, time, asin in bought) for user, bought in by_stranger}


def _read_behaviors(db, paths: list[Path], repairs: Counter) -> dict[str, tuple[Behavior, ...]]:
    def clean(record: dict) -> tuple[str, Behavior]:
        return record["user_id"], clean_behavior(record, repairs)

    found = defaultdict(list)
    for user, behavior in read_records(db, paths, REVIEW_FIELDS, "chosen_reviews", clean):
        found[user].append(behavior)
    return {
        user: tuple(sorted(found[user], key=lambda b: (b.timestamp, b.parent_asin))) for user in sorted(found)
    }


def _read_products(db, paths: list[Path], repairs: Counter) -> dict[str, Product]:
    clean = partial(clean_product, repairs=repairs)
    products = read_records(db, paths, META_FIELDS, "chosen_listings", clean)
    return {product.parent_asin: product for product in sorted(products, key=lambda p: p.parent_asin)}


def _make_tasks(products, behaviors, seed: int, repairs: Counter) -> dict[Split, tuple[Task, ...]]:
    """Tasks for the train and test part of each history, in the order of user, time, product and type."""
    tasks: dict[Split, list[Task]] = {"train": [], "test": []}
    for user, history in behaviors.items():
        n_history, n_train, _ = split_by_time([b.timestamp for b in history])
        if n_train == 0:
            repairs["user with fewer than three times of behaviour (no tasks made)"] += 1
        parts = {"train": (n_history, n_history + n_train), "test": (n_history + n_train, len(history))}
        for split, (start, end) in parts.items():
            for behavior in history[start:end]:
                product = products[behavior.parent_asin]
                for task_type in _task_types(behavior):
                    tasks[split].append(_make_task(user, task_type, behavior, product, history[:start], seed))
    return {split: tuple(made) for split, made in tasks.items()}


def _check_tasks(data_dir: Path, tasks: dict[Split, tuple[Task, ...]]) -> None:
    """Every split needs tasks of every type: some to learn from, and some to score."""
    missing = [
        f"{task_type} in {split}"
        for split, made in tasks.items()
        for task_type in TASK_TYPES
        if all(task.type != task_type for task in made)
    ]
    if missing:
        expected = (
            f"tasks of every type in train and test; search and recommend need purchases of {LIKED} stars or "
            "more, review needs texts, and users need three different times: take more users, "
            "categories or files"
        )
        raise DataError(data_dir, "-", "(tasks)", f"no task for {', '.join(missing)}", expected)


def _task_types(behavior: Behavior) -> list[TaskType]:
    """A search and a recommend task for what was liked; a review task where there is a text to match."""
    liked, written = behavior.review.rating >= LIKED, bool(behavior.review.text)
    return [task_type for task_type in TASK_TYPES if (written if task_type == "review" else liked)]


def _make_task(
    user: str, task_type: TaskType, behavior: Behavior, product: Product, history, seed: int
) -> Task:
    task_id = f"{user}-{behavior.timestamp}-{behavior.parent_asin}-{task_type}"
    generator = rng(seed, "instruction", task_id)
    return Task(
        task_id=task_id,
        user_id=user,
        type=task_type,
        timestamp=behavior.timestamp,
        instruction=write_instruction(task_type, product, behavior.review, history, generator),
        target=behavior.parent_asin,
        review=behavior.review,
    )
