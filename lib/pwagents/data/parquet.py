"""Any benchmark as Parquet files for Hugging Face ``datasets``, and back, equal.

A folder holds ``users/full.parquet``, ``products/full.parquet``, ``histories/full.parquet`` (one row a
behaviour), ``population/full.parquet`` (one row a stranger's purchase), ``tasks/train.parquet`` and
``tasks/test.parquet``. Beside them lie ``benchmark.json``, with what the tables do not hold, and the data
card ``README.md``, which tells ``datasets`` what the files are.

``datasets`` writes the files, and puts neither times nor paths into them: the same benchmark gives the same
bytes on any day and in any process. pyarrow reads them; ``datasets`` would copy each into its cache first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from pwagents.data.parquet_card import INFO, Place, checked, read_info, write_card, write_info
from pwagents.errors import DataError
from pwagents.schema import (
    Behavior,
    Benchmark,
    Product,
    Record,
    Review,
    Split,
    Task,
    UserProfile,
    check_choice,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

R = TypeVar("R", bound=Record)
Rows = Iterator[tuple[Place, dict]]
Users = dict[str, tuple[Place, int | None]]  # user -> the row's place and n_behaviors


def schema(table: str) -> "pa.Schema":
    """The columns of a table. They follow from the fields of the records that its rows are made of."""
    import pyarrow as pa

    text = pa.string()
    types = {"string": text, "integer": pa.int64(), "number": pa.float64(), "array": pa.list_(text)}
    types["object"] = pa.list_(pa.struct({"name": text, "value": text}))  # details: names differ by product
    first = {
        "users": {"user_id": "string", "n_behaviors": "integer"},
        "histories": {"user_id": "string", "position": "integer"},
        "population": {"user_id": "string", "timestamp": "integer", "parent_asin": "string"},
    }
    records = {"users": UserProfile, "products": Product, "histories": Behavior, "tasks": Task}
    name = table.partition("/")[0]
    kinds = first.get(name, {}) | (_kinds(records[name]) if name in records else {})
    return pa.schema({column: types[kind] for column, kind in kinds.items()})


def _kinds(record: type[Record], prefix: str = "") -> dict[str, str]:
    """Field -> its kind, in JSON schema's words; a review's fields stand beside the others."""
    kinds = {}
    for name, field in record.model_json_schema(by_alias=False)["properties"].items():
        if name == "review":
            kinds |= _kinds(Review, "review_")
        else:
            kinds[prefix + name] = field.get("type") or field["anyOf"][0]["type"]  # "anyOf": this, or null
    return kinds


def write_parquet(benchmark: Benchmark, folder: Path, *, licence: str, source_note: str = "") -> None:
    """Write ``benchmark`` into ``folder``.

    All is written into a hidden folder beside it first and renamed at the end; a killed process leaves that
    folder behind, and no ``folder``.

    Args:
        licence: of the data, an identifier that the Hugging Face Hub knows: "mit", "cc-by-4.0", "other".
        source_note: Markdown for the data card: where the data come from and how they were made.

    Raises:
        FileExistsError: ``folder`` is a file, or not empty.
        ValueError: the benchmark has another split than train and test.
        DataError: a text is no valid Unicode (half a surrogate pair), a number is too large for 64 bits, or a
            product is known by another id than its own.
    """
    folder = Path(folder).resolve()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists already: choose another folder, or move this one away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as aside:
        new = Path(aside) / "new"
        tables = {
            table: _write_table(new / f"{table}.parquet", table, rows)
            for table, rows in _tables(benchmark).items()
        }
        write_info(benchmark, new)
        write_card(benchmark, tables, new, licence, source_note)
        new.rename(folder)


def read_parquet(folder: Path) -> Benchmark:
    """The benchmark that :func:`write_parquet` wrote into ``folder``, equal in every field.

    Raises:
        DataError: a file is missing or broken, a column is missing, unknown or of another type, a value is
            not what it should be, or the whole has another content hash than what was written.
    """
    folder = Path(folder)
    info = read_info(folder)
    users, profiles = _read_users(_read_rows(folder, "users/full"))
    products = _read_products(_read_rows(folder, "products/full"))
    behaviors = _read_histories(_read_rows(folder, "histories/full"), users)
    population = _read_population(_read_rows(folder, "population/full"))
    tasks = {
        split: tuple(_make(Task, row, place) for place, row in _read_rows(folder, f"tasks/{split}"))
        for split in info.splits
    }
    # Called by the folder's name first, so that an error of the whole says where it is.
    whole = Benchmark(str(folder), products, behaviors, tasks, profiles, info.repairs, population)
    benchmark = replace(whole, name=info.name)
    if benchmark.content_hash != info.content_hash:
        found = f"{benchmark.content_hash}, the hash of what the Parquet files hold"
        raise DataError(folder / INFO, "-", "content_hash", found, f"{info.content_hash}, as it was written")
    return benchmark


# Writing


def _tables(benchmark: Benchmark) -> dict[str, list[dict]]:
    """Table -> its rows."""
    for asin, item in benchmark.products.items():
        if asin != item.parent_asin:
            where = (benchmark.name, f"product {asin}", "parent_asin")
            raise DataError(*where, item.parent_asin, "the id by which the benchmark knows it")
    for split in benchmark.tasks:
        check_choice("split", split, Split)
    # Null for a user who has a profile and no history, not even an empty one.
    n_behaviors = {user: len(behaviors) for user, behaviors in benchmark.behaviors.items()}
    return {
        "users/full": [
            {"user_id": user, "n_behaviors": n_behaviors.get(user), **dict(benchmark.profiles.get(user, ()))}
            for user in dict.fromkeys([*benchmark.behaviors, *benchmark.profiles])
        ],
        "products/full": [
            {**dict(item), "details": [{"name": name, "value": text} for name, text in item.details.items()]}
            for item in benchmark.products.values()
        ],
        "histories/full": [
            {"user_id": user, "position": position, **_flat(behavior)}
            for user, behaviors in benchmark.behaviors.items()
            for position, behavior in enumerate(behaviors)
        ],
        "population/full": [
            {"user_id": stranger, "timestamp": timestamp, "parent_asin": asin}
            for stranger, purchases in benchmark.population.items()
            for timestamp, asin in purchases
        ],
        **{f"tasks/{split}": [_flat(task) for task in tasks] for split, tasks in benchmark.tasks.items()},
    }


def _flat(record: Behavior | Task) -> dict:
    """The review's fields become columns beside the others."""
    fields = dict(record)
    review = fields.pop("review")
    return {**fields, **{f"review_{name}": value for name, value in review}}


def _write_table(file: Path, table: str, rows: list[dict]) -> "Dataset":
    import pyarrow as pa
    from datasets import Dataset

    try:
        dataset = Dataset(pa.Table.from_pylist(rows, schema(table)))
    except (UnicodeEncodeError, OverflowError):
        _raise_for_misfit(f"{table}.parquet", rows, schema(table))
        raise
    file.parent.mkdir(parents=True, exist_ok=True)
    dataset.to_parquet(file)
    return dataset


def _raise_for_misfit(file: str, rows: list[dict], columns: "pa.Schema") -> None:
    """Arrow does not say which value it cannot hold: try them one by one."""
    import pyarrow as pa

    id_name = columns.names[0]
    for row, column in product(rows, columns):
        where = (file, f"{id_name} {row[id_name]!r}", column.name)
        try:
            pa.array([row.get(column.name)], column.type)
        except UnicodeEncodeError as error:
            found = f"half a surrogate pair ({error})"
            raise DataError(*where, found, "text that is valid Unicode") from None
        except OverflowError:
            raise DataError(*where, row[column.name], "a whole number of at most 64 bits") from None


# Reading


def _read_rows(folder: Path, table: str) -> Rows:
    import pyarrow as pa
    from pyarrow import parquet

    file = folder / f"{table}.parquet"
    try:
        with parquet.ParquetFile(file) as source:
            _check_columns(file, source.schema_arrow, schema(table))
            rows = (row for batch in source.iter_batches(10_000) for row in batch.to_pylist())
            for number, row in enumerate(rows):
                yield (file, f"row {number} (from 0)"), row
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(file, "-", "(file)", f"'{reason}'", "a whole Parquet file") from None


def _check_columns(file: Path, found: "pa.Schema", expected: "pa.Schema") -> None:
    for name in dict.fromkeys([*expected.names, *found.names]):
        types, wanted = ([c.type for c in columns if c.name == name] for columns in (found, expected))
        if types != wanted:
            there = ", ".join(map(str, types)) or "none"
            raise DataError(
                file, "-", name, f"columns of this name: {there}", wanted[0] if wanted else "none"
            )


def _read_users(rows: Rows) -> tuple[Users, dict[str, UserProfile]]:
    users, profiles = {}, {}
    for place, row in rows:
        user, n_behaviors = row.pop("user_id"), row.pop("n_behaviors")
        _check_new(user, users, place, "user_id")
        users[user] = place, n_behaviors
        if any(value is not None for value in row.values()):
            profiles[user] = _make(UserProfile, row, place)
    return users, profiles


def _read_products(rows: Rows) -> dict[str, Product]:
    products: dict[str, Product] = {}
    for place, row in rows:
        if row["details"] is not None:
            pairs = [pair or {"name": None, "value": None} for pair in row["details"]]
            row["details"] = {pair["name"]: pair["value"] for pair in pairs}
        item = _make(Product, row, place)
        _check_new(item.parent_asin, products, place, "parent_asin")
        products[item.parent_asin] = item
    return products


def _read_histories(rows: Rows, users: Users) -> dict[str, tuple[Behavior, ...]]:
    histories: dict[str, list[Behavior]] = {user: [] for user, (_, n) in users.items() if n is not None}
    for place, row in rows:
        user, position = row.pop("user_id"), row.pop("position")
        if user not in histories:
            raise DataError(*place, "user_id", repr(user), "a user whose n_behaviors in users is a number")
        if position != len(histories[user]):
            raise DataError(*place, "position", position, f"{len(histories[user])}, the user's next")
        histories[user].append(_make(Behavior, row, place))
    for user, history in histories.items():
        place, n_behaviors = users[user]
        if n_behaviors != len(history):
            expected = f"{len(history)}, the user's rows in histories"
            raise DataError(*place, "n_behaviors", n_behaviors, expected)
    return {user: tuple(history) for user, history in histories.items()}


def _read_population(rows: Rows) -> dict[str, tuple[tuple[int, str], ...]]:
    population: dict[str, list[tuple[int, str]]] = {}
    for place, row in rows:
        for column, value in row.items():
            if value is None:
                raise DataError(*place, column, "null", "a value")
        population.setdefault(row["user_id"], []).append((row["timestamp"], row["parent_asin"]))
    return {stranger: tuple(purchases) for stranger, purchases in population.items()}


def _check_new(key: str | None, known: Mapping, place: Place, field: str) -> None:
    if key is None or key in known:
        raise DataError(*place, field, f"{key!r} a second time" if key else "null", "unique ids")


def _make(model: type[R], row: dict, place: Place) -> R:
    """A row as a record."""
    if "review" in model.model_fields:
        row["review"] = {name: row.pop(f"review_{name}") for name in Review.model_fields}
    return checked(model.model_validate, row, place)
