"""A benchmark made from the raw files of Amazon Reviews 2023, in the way of PersonalWAB (section 3.2).

The raw files hold tens of gigabytes. DuckDB scans each of them twice in bounded memory: once for ids and
times, from which users and products are chosen, and once for the whole records of those chosen. Departures
from the paper: an item's category is its ``main_category``, not the file that it comes from, and instructions
come from the offline writer (:mod:`pwagents.data.instructions`).

Users, and the products that fill up the catalog, are chosen by a seeded hash of their ids. DuckDB's threads
give groups in no fixed order, so a random generator would choose others at every run; and with the hash, one
file more or less does not change which of two users comes first.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from pwagents.data import mend
from pwagents.data.files import find_amazon
from pwagents.data.instructions import write_instruction
from pwagents.data.splits import split_by_time
from pwagents.errors import DataError
from pwagents.schema import TASK_TYPES, Behavior, Benchmark, Product, Review, Split, Task, join_values
from pwagents.seeds import derive_seed, rng

Query = Callable[..., list[tuple]]  # runs SQL with values for its question marks

LIKED = 4  # stars from which a purchase counts as what the user wanted
STARS = "rating IN (1, 2, 3, 4, 5)"  # the ratings that Amazon knows, in SQL

# Fields and their SQL types. A value that cannot be cast to its type stops DuckDB, which names file and line.
REVIEW = {"user_id": "TEXT", "parent_asin": "TEXT", "timestamp": "BIGINT", "rating": "DOUBLE",
          "title": "TEXT", "text": "TEXT"}  # fmt: skip
PRODUCT = {"parent_asin": "TEXT", "main_category": "TEXT", "title": "TEXT", "store": "TEXT",
           "average_rating": "DOUBLE", "rating_number": "DOUBLE",
           # numbers or texts, lists or texts, objects or texts of JSON: Python tells them apart
           "price": "JSON", "features": "JSON", "description": "JSON", "details": "JSON"}  # fmt: skip
# What programs write for a user that is missing: SQL.
NOBODY = f"user_id IS NULL OR lower(user_id) IN {mend.NOBODY}"
# What no record can do without: field -> condition in SQL, and the words for it.
NEEDED = {
    "user_id": (f"{NOBODY} OR regexp_full_match(user_id, '[!-~]+')", "an id without spaces"),
    "parent_asin": ("regexp_full_match(parent_asin, '[!-~]+')", "an id without spaces"),
    "timestamp": (f"timestamp BETWEEN {mend.FIRST_TIME} AND {mend.LAST_TIME - 1}", mend.TIMES),
    "rating": ("rating IS NOT NULL", "a number"),
}

# Raw main_category -> the category names that PersonalWAB uses (section 3.2.1). Others keep their raw name.
PAPER_CATEGORIES = {
    "Electronics": "All Electronics|Amazon Devices|Apple Products|Camera & Photo|Car Electronics|Computers|"
    "Cell Phones & Accessories|GPS & Navigation|Home Audio & Theater|Portable Audio & Accessories",
    "Home and Kitchen": "Amazon Home|Appliances",
    "Grocery and Gourmet Food": "Grocery|Grocery & Gourmet Food",
    "Clothing, Shoes, and Jewelry": "AMAZON FASHION|Amazon Fashion|Clothing, Shoes & Jewelry",
    "Health and Household": "All Beauty|Luxury Beauty|Premium Beauty|"
    "Health & Personal Care|Health & Household",
}
_PAPER_NAMES = {raw: name for name, raws in PAPER_CATEGORIES.items() for raw in raws.split("|")}


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
        min_behaviors: how many behaviors a user needs, at least 3.
        categories: use only products of these categories (PersonalWAB's names where one fits, as
            :func:`name_category` gives them); None for all.
        max_products: size of the catalog. It holds every product of a sampled user, however many these
            are; others fill it up.
        population: of the users who were not sampled, at most so many become strangers, whose purchases of
            products of the catalog are kept.
        seed: chooses users, strangers, the rest of the catalog and the instructions' wording.
        memory_limit: of DuckDB; what does not fit goes to the system's folder for temporary files.

    Returns:
        A benchmark with users, products and tasks in the order of their ids and times. ``repairs`` counts
        what was mended in the records that it holds.

    Raises:
        DataError: a file is missing or broken, no user has enough behaviors, or a split has no task of
            some type.
        ValueError: ``min_behaviors`` is below 3, with which no split into three can be made.
    """
    if min_behaviors < 3:
        raise ValueError(f"min_behaviors is {min_behaviors}; a split into three needs at least 3")
    data_dir = Path(data_dir)
    reviews, metas = find_amazon(data_dir)
    repairs: Counter = Counter()
    with TemporaryDirectory() as folder:
        # In a file rather than in memory: there, tables are compressed and leave memory when it gets tight.
        config = {"memory_limit": memory_limit, "threads": 4, "temp_directory": folder}
        try:
            with duckdb.connect(f"{folder}/scan.duckdb", config=config) as db:

                def query(sql: str, *values: Any) -> list[tuple]:
                    return db.execute(sql, values).fetchall()

                _scan_ids(query, reviews, metas, repairs)
                if categories is not None:
                    raws = query("SELECT DISTINCT main_category FROM items")
                    names = {raw: name_category(raw) for (raw,) in raws}
                    if absent := sorted(set(categories).difference(names.values())):
                        expected = f"categories among {sorted(set(names.values()))}"
                        raise DataError(data_dir, "-", "main_category", f"no product of {absent}", expected)
                    others = [raw for raw, name in names.items() if name not in categories]
                    query("DELETE FROM items WHERE list_contains(?::TEXT[], main_category)", others)
                _choose_users(query, data_dir, n_users, min_behaviors, seed, repairs)
                strangers = _choose_products(query, max_products, population, seed, repairs)
                behaviors = defaultdict(list)
                for record in _read(db, "reviews", REVIEW, "user_id, timestamp, parent_asin"):
                    rating, asin = record["rating"], record["parent_asin"]
                    title = mend.clean_text(record["title"], "review title", repairs)
                    text = mend.clean_text(record["text"], "review text", repairs)
                    repairs["review without text kept (no review task made)"] += not text
                    review = Review(rating=rating, title=title, text=text)
                    behavior = Behavior(parent_asin=asin, timestamp=record["timestamp"], review=review)
                    behaviors[record["user_id"]].append(behavior)
                products = {
                    record["parent_asin"]: _make_product(data_dir, record, repairs)
                    for record in _read(db, "listings", PRODUCT, "parent_asin")
                }
        except duckdb.Error as error:  # its first line names file, line and value where a file is to blame
            expected = "files of one JSON object a line, with Amazon's fields; a memory_limit that suffices"
            raise DataError(data_dir, "-", "(scan)", str(error).partition("\n")[0], expected) from None
    histories = {user: tuple(history) for user, history in behaviors.items()}
    tasks = _make_tasks(data_dir, products, histories, seed, repairs)
    repaired = dict(sorted((+repairs).items()))
    return Benchmark("amazon", products, histories, tasks, population=strangers, repairs=repaired)


def name_category(main_category: str | None) -> str:
    """Give a raw ``main_category`` its name: PersonalWAB's where one fits; "Other" for null."""
    raw = mend.clean_text(main_category, "main_category", Counter())
    return _PAPER_NAMES.get(raw, raw) or "Other"


def _scan_ids(query: Query, reviews: list[Path], metas: list[Path], repairs: Counter) -> None:
    """First pass: keep place, ids, time and rating of all records in narrow tables, and check them."""

    def place_of(table: str, place: int) -> tuple:
        line = "1 + place - min(place) OVER (PARTITION BY filename)"
        return query(f"SELECT filename, {line} FROM {table}_files QUALIFY place = ?", place)[0]

    for table, paths, fields, kept in (
        ("reviews", reviews, REVIEW, ("user_id", "parent_asin", "timestamp", "rating")),
        ("listings", metas, PRODUCT, ("parent_asin", "main_category")),
    ):
        # A record's place in all files, by which the second pass finds it again: row_number() without an
        # order counts in the order of the files, whatever DuckDB's threads do.
        query(f"""
            CREATE VIEW {table}_files AS SELECT *, row_number() OVER () AS place FROM read_json(
                {[str(path) for path in paths]}, format = 'newline_delimited', columns = {fields},
                filename = true)""")
        query(f"CREATE TABLE {table} AS SELECT place, {', '.join(kept)} FROM {table}_files")
        for field in [name for name in kept if name in NEEDED]:
            sound, expected = NEEDED[field]
            wrong = f"SELECT {field}, place FROM {table} WHERE ({sound}) IS NOT TRUE ORDER BY place LIMIT 1"
            for value, place in query(wrong):
                raise DataError(*place_of(table, place), field, json.dumps(value), expected)
    ((n, place),) = query(f"SELECT count(*), min(place) FROM reviews WHERE {NOBODY}")
    if n:
        file, line = place_of("reviews", place)
        repairs[f"review of nobody dropped (the first: {Path(file).name}, line {line})"] = n
        query(f"DELETE FROM reviews WHERE {NOBODY}")
    query("""
        CREATE TABLE items AS  -- of a product listed more than once, the first listing counts
        SELECT parent_asin, min(place) AS place, count(*) AS listed,
            arg_min(coalesce(main_category, ''), place) AS main_category
        FROM listings GROUP BY parent_asin""")


def _choose_users(
    query: Query, data_dir: Path, n_users: int, min_behaviors: int, seed: int, repairs: Counter
) -> None:
    """Choose users with enough behaviors, by a seeded hash; count which of their reviews are dropped."""
    query(f"""
        CREATE VIEW behaviors AS  -- reviews of one product by one user at the same time are one behavior
        SELECT user_id, parent_asin, timestamp, min(reviews.place) AS place
        FROM reviews JOIN items USING (parent_asin) WHERE {STARS}
        GROUP BY user_id, parent_asin, timestamp""")
    query("CREATE TABLE counts AS SELECT user_id, count(*) AS n FROM behaviors GROUP BY user_id")
    query(
        "CREATE TABLE users AS SELECT user_id FROM counts WHERE n >= ? ORDER BY sha256(? || user_id) LIMIT ?",
        *(min_behaviors, str(derive_seed(seed, "users")), n_users),
    )
    query("CREATE TABLE chosen_reviews AS FROM behaviors SEMI JOIN users USING (user_id)")

    # Reviews of the chosen users that are no behaviors are counted.
    query("CREATE TABLE theirs AS FROM reviews SEMI JOIN users USING (user_id)")
    query("CREATE TABLE known AS FROM theirs SEMI JOIN items USING (parent_asin)")
    ((longest, n_chosen, n_unknown, n_known, n_rated, n_kept),) = query(f"""
        SELECT (SELECT coalesce(max(n), 0) FROM counts), (SELECT count(*) FROM users),
            (SELECT count(*) FROM theirs ANTI JOIN listings USING (parent_asin)),
            (SELECT count(*) FROM known), (SELECT count(*) FROM known WHERE {STARS}),
            (SELECT count(*) FROM chosen_reviews)""")
    if n_chosen == 0:
        advice = "lower min_behaviors (the least history) or take more categories or files"
        found, expected = f"at most {longest} behaviors of one user", f"users with {min_behaviors}; {advice}"
        raise DataError(data_dir, "-", "user_id", found, expected)
    missing = f"users missing of the {n_users} asked for: no more have {min_behaviors} behaviours"
    repairs[missing] = n_users - n_chosen
    repairs["review of an unknown product dropped"] = n_unknown
    repairs["review with a rating other than 1, 2, 3, 4 or 5 stars dropped"] = n_known - n_rated
    repairs["second review of a product by the same user at the same time dropped"] = n_rated - n_kept


def _choose_products(
    query: Query, max_products: int, population: int, seed: int, repairs: Counter
) -> dict[str, tuple[tuple[int, str], ...]]:
    """Choose a catalog, and strangers with what they bought of it."""
    # The products that the users bought; then others, in the order of a seeded hash.
    query("CREATE TABLE bought AS SELECT DISTINCT parent_asin, true AS is_bought FROM chosen_reviews")
    ((n_bought,),) = query("SELECT count(*) FROM bought")
    query(
        """
        CREATE TABLE chosen_listings AS
        SELECT parent_asin, place, listed FROM items LEFT JOIN bought USING (parent_asin)
        ORDER BY is_bought NULLS LAST, sha256(? || parent_asin) LIMIT ?""",
        *(str(derive_seed(seed, "catalogue")), max(max_products, n_bought)),
    )
    ((n_again,),) = query("SELECT coalesce(sum(listed - 1), 0)::BIGINT FROM chosen_listings")
    repairs["product listed again dropped (the first is kept)"] = n_again

    # Strangers are the first users by the hash who were not chosen.
    purchases = query(
        """
        WITH sold AS (
            FROM behaviors SEMI JOIN chosen_listings USING (parent_asin) ANTI JOIN users USING (user_id)),
        strangers AS (
            SELECT user_id FROM sold GROUP BY user_id HAVING count(*) > 1
            ORDER BY sha256(? || user_id) LIMIT ?)
        SELECT user_id, timestamp, parent_asin FROM sold SEMI JOIN strangers USING (user_id) ORDER BY ALL""",
        *(str(derive_seed(seed, "users")), population),
    )
    by_stranger = groupby(purchases, key=itemgetter(0))
    return {user: tuple((time, asin) for _, time, asin in bought) for user, bought in by_stranger}


def _read(db, table: str, fields: dict[str, str], order: str) -> Iterator[dict[str, Any]]:
    """Second pass: the whole records of a table's chosen places, one after the other."""
    chosen = f"{table}_files SEMI JOIN chosen_{table} USING (place)"
    rows = db.execute(f"SELECT {', '.join(fields)} FROM {chosen} ORDER BY {order}")
    while batch := rows.fetchmany(1000):
        for row in batch:
            yield dict(zip(fields, row, strict=True))


def _make_product(data_dir: Path, record: dict[str, Any], repairs: Counter) -> Product:
    """Make a Product of a metadata record; what was mended is counted in ``repairs``.

    Raises:
        DataError: a field is of a kind that cannot be mended, nested too deep or no JSON.
    """

    def clean(value: Any, field: str) -> str:
        return mend.clean_text(join_values(value), f"product {field}", repairs)

    try:
        loose = {name: json.loads(record[name] or "null") for name, kind in PRODUCT.items() if kind == "JSON"}
        # A text in the place of a list is its one part.
        texts = {}
        for field in ("features", "description"):
            parts = [loose[field]] if isinstance(loose[field], str) else loose[field] or []
            if not isinstance(parts, list):
                raise ValueError(f"{field} is {record[field]}; expected a list of texts")
            texts[field] = tuple(text for part in parts if (text := clean(part, field)))
        # Details are an object, or an object written as JSON text; their values become text.
        details = loose["details"]
        if isinstance(details, str):
            try:
                details = json.loads(details or "null")
            except (ValueError, RecursionError):
                details = details.strip() or None
            if not isinstance(details, dict | None):
                repairs["details that are no JSON object taken as missing"] += 1
                details = None
        if not isinstance(details, dict | None):
            raise ValueError(f"details is {record['details']}; expected an object")
        pairs = ((clean(key, "details"), clean(part, "details")) for key, part in (details or {}).items())
        title = clean(record["title"], "title")
        repairs['product without title called "Untitled"'] += not title
        return Product(
            parent_asin=record["parent_asin"],
            title=title or "Untitled",
            category=name_category(record["main_category"]),
            price=mend.parse_price(loose["price"], repairs),
            store=clean(record["store"], "store") or None,
            average_rating=mend.keep_in_range(record["average_rating"], 5, "average_rating", repairs),
            rating_number=mend.parse_count(record["rating_number"], repairs),
            details={key: text for key, text in pairs if text},
            **texts,
        )
    except (ValueError, RecursionError) as error:
        found, asin = str(error).partition("\n")[0], record["parent_asin"]
        raise DataError(data_dir, f"product {asin}", "(record)", found, "sound values") from None


def _make_tasks(
    data_dir: Path, products: dict[str, Product], behaviors: dict[str, tuple[Behavior, ...]], seed: int,
    repairs: Counter,
) -> dict[Split, tuple[Task, ...]]:  # fmt: skip
    """Make tasks for the train and test part of each history, in the order of user, time, product and type.

    Raises:
        DataError: a split has no task of some type; each needs some to learn from, or to score.
    """
    tasks: dict[Split, list[Task]] = {"train": [], "test": []}
    for user, history in behaviors.items():
        n_history, n_train, _ = split_by_time([b.timestamp for b in history])
        repairs["user with fewer than three times of behaviour (no tasks made)"] += n_train == 0
        parts = {"train": (n_history, n_history + n_train), "test": (n_history + n_train, len(history))}
        for split, (start, end) in parts.items():
            for behavior in history[start:end]:
                for task_type in TASK_TYPES:
                    # Nobody asks for what they did not like, and a review task needs a text to match.
                    review = behavior.review
                    if not (review.text if task_type == "review" else review.rating >= LIKED):
                        continue
                    asin = behavior.parent_asin
                    task_id = f"{user}-{behavior.timestamp}-{asin}-{task_type}"
                    drawn = rng(seed, "instruction", task_id)
                    instruction = write_instruction(task_type, products[asin], review, history[:start], drawn)
                    task = Task(task_id=task_id, user_id=user, type=task_type, timestamp=behavior.timestamp,
                                instruction=instruction, target=asin, review=review)  # fmt: skip
                    tasks[split].append(task)
    made = {(split, task.type) for split, of_split in tasks.items() for task in of_split}
    missing = [f"{kind} in {split}" for split in tasks for kind in TASK_TYPES if (split, kind) not in made]
    if missing:
        expected = (
            f"tasks of every type in train and test; search and recommend need purchases of {LIKED} stars or "
            "more, review needs texts, and users need three different times: take more users, "
            "categories or files"
        )
        raise DataError(data_dir, "-", "(tasks)", f"no task for {', '.join(missing)}", expected)
    return {split: tuple(of_split) for split, of_split in tasks.items()}
