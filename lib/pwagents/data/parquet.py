"""Any benchmark as Parquet files in the layout of Hugging Face ``datasets``, and back, equal.

A folder holds four tables: ``users``, ``products``, ``histories`` (one row a behaviour) and ``tasks`` with
the splits ``train`` and ``test``. Beside them lie ``benchmark.json``, with what the tables do not hold, and
``README.md``, a data card from which ``datasets.load_dataset`` knows the rest. The same benchmark gives the
same bytes at every run.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from pydantic import ValidationError

from pwagents.data.parquet_card import (
    CARD,
    INFO,
    FileInfo,
    Info,
    data_error,
    read_info,
    write_card,
    write_info,
)
from pwagents.data.parquet_files import Place, read_rows, schemas, write_rows
from pwagents.errors import DataError
from pwagents.progress import progress
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

R = TypeVar("R", bound=Record)
Rows = Iterator[tuple[Place, dict]]
Users = dict[str, tuple[Place, int | None]]  # user -> the row's place and n_behaviors

ROWS_A_FILE = 500_000


def write_parquet(benchmark: Benchmark, folder: Path, *, licence: str, source_note: str = "") -> None:
    """Write ``benchmark`` into ``folder``, in place of a benchmark written there before.

    All is written into a hidden folder beside it first and renamed at the end; a killed process leaves that
    folder behind, and ``folder`` as it was (between the last two renames: the earlier benchmark as ``old``
    and this one as ``new`` in the hidden folder). One group of rows is in memory at a time.

    Args:
        licence: of the data, an identifier that the Hugging Face Hub knows: "mit", "cc-by-4.0", "other".
        source_note: Markdown for the data card: where the data come from and how they were made.

    Raises:
        FileExistsError: ``folder`` is a file, or holds anything else than a written benchmark.
        ValueError: the benchmark has another split than train and test.
        DataError: a text is no valid Unicode (half a surrogate pair), a number is too large for 64 bits, or a
            product is known by another id than its own.
    """
    folder = Path(folder).resolve()
    _check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as aside:
        new, old = Path(aside) / "new", Path(aside) / "old"
        paths = _write_tables(benchmark, new)
        info = Info(
            name=benchmark.name,
            content_hash=benchmark.content_hash,
            repairs=dict(benchmark.repairs),
            files={path: _describe(new / path) for path in paths},
        )
        write_info(info, new)
        write_card(info, new, licence, source_note)
        try:
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        finally:
            if old.exists() and not folder.exists():
                old.rename(folder)


def read_parquet(folder: Path) -> Benchmark:
    """The benchmark that :func:`write_parquet` wrote into ``folder``, equal in every field.

    Raises:
        DataError: a file is missing or broken, a column is missing, unknown or of another type, a value is
            not what it should be, or the whole has another content hash than what was written.
    """
    folder = Path(folder)
    info = read_info(folder)
    tables, columns = info.tables(), schemas()
    with progress(total=sum(f.rows for f in info.files.values()), desc="reading Parquet", unit="row") as bar:

        def rows(table: str, split: str = "all") -> Rows:
            for path in tables.get(table, {}).get(split, []):
                yield from read_rows(folder / path, columns[table], bar)

        users, profiles = _read_users(rows("users"))
        products = _read_products(rows("products"))
        behaviors = _read_histories(rows("histories"), users)
        tasks = {
            split: tuple(_make(Task, _nested(row), place) for place, row in rows("tasks", split))
            for split in tables.get("tasks", {})
        }
    # Called by the folder's name first, so that an error of the whole says where it is.
    benchmark = Benchmark(str(folder), products, behaviors, tasks, profiles=profiles, repairs=info.repairs)
    benchmark = replace(benchmark, name=info.name)
    if benchmark.content_hash != info.content_hash:
        found = f"{benchmark.content_hash}, the hash of what the Parquet files hold"
        raise DataError(folder / INFO, "-", "content_hash", found, f"{info.content_hash}, as it was written")
    return benchmark


# Writing


def _check_replaceable(folder: Path) -> None:
    """Refuse to replace what :func:`write_parquet` did not write."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    advice = "choose another folder, or move this one away"
    try:
        ours = {INFO, CARD, *read_info(folder).files}
    except DataError:
        raise FileExistsError(f"{folder} exists and is no written benchmark: {advice}") from None
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if others := sorted(found - ours):
        raise FileExistsError(f"{folder} holds other files too, such as {others[0]!r}: {advice}")


def _write_tables(benchmark: Benchmark, root: Path) -> list[str]:
    """Write all Parquet files below ``root``; their paths in the order of writing."""
    n_users = len({*benchmark.behaviors, *benchmark.profiles})
    n_behaviors = sum(map(len, benchmark.behaviors.values()))
    tables = {
        ("users", "all"): (n_users, _user_rows(benchmark)),
        ("products", "all"): (len(benchmark.products), _product_rows(benchmark)),
        ("histories", "all"): (n_behaviors, _history_rows(benchmark)),
    }
    for split, tasks in benchmark.tasks.items():
        check_choice("split", split, Split)
        tables["tasks", split] = (len(tasks), map(_flat, tasks))
    columns, paths = schemas(), []
    with progress(total=sum(n for n, _ in tables.values()), desc="writing Parquet", unit="row") as bar:
        for (table, split), (n_rows, rows) in tables.items():
            (root / table).mkdir(parents=True, exist_ok=True)
            n_files = max(1, math.ceil(n_rows / ROWS_A_FILE))
            for number in range(n_files):
                paths.append(f"{table}/{split}-{number:05d}-of-{n_files:05d}.parquet")
                write_rows(root, paths[-1], islice(rows, ROWS_A_FILE), columns[table], bar)
    return paths


def _user_rows(benchmark: Benchmark) -> Iterator[dict]:
    """``n_behaviors`` is null for a user who has a profile and no history, not even an empty one."""
    for user in dict.fromkeys([*benchmark.behaviors, *benchmark.profiles]):
        n_behaviors = len(benchmark.behaviors[user]) if user in benchmark.behaviors else None
        yield {"user_id": user, "n_behaviors": n_behaviors, **dict(benchmark.profiles.get(user, ()))}


def _product_rows(benchmark: Benchmark) -> Iterator[dict]:
    for asin, product in benchmark.products.items():
        if asin != product.parent_asin:
            where = (benchmark.name, f"product {asin}", "parent_asin")
            raise DataError(*where, product.parent_asin, "the id by which the benchmark knows it")
        yield {**dict(product), "details": list(product.details.items())}


def _history_rows(benchmark: Benchmark) -> Iterator[dict]:
    for user, behaviors in benchmark.behaviors.items():
        for position, behavior in enumerate(behaviors):
            yield {"user_id": user, "position": position, **_flat(behavior)}


def _flat(record: Behavior | Task) -> dict:
    """The review's fields become columns beside the others."""
    fields = dict(record)
    review = fields.pop("review")
    return {**fields, **{f"review_{name}": value for name, value in review}}


def _describe(file: Path) -> FileInfo:
    from pyarrow import parquet

    metadata = parquet.read_metadata(file)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    with open(file, "rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    return FileInfo(
        rows=metadata.num_rows,
        size=file.stat().st_size,
        uncompressed=sum(group.total_byte_size for group in groups),
        sha256=sha256,
    )


# Reading


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
        pairs = [pair or {"name": None, "value": None} for pair in row["details"]]  # null fails validation
        product = _make(Product, {**row, "details": {pair["name"]: pair["value"] for pair in pairs}}, place)
        _check_new(product.parent_asin, products, place, "parent_asin")
        products[product.parent_asin] = product
    return products


def _read_histories(rows: Rows, users: Users) -> dict[str, tuple[Behavior, ...]]:
    histories: dict[str, list[Behavior]] = {user: [] for user, (_, n) in users.items() if n is not None}
    for place, row in rows:
        user, position = row.pop("user_id"), row.pop("position")
        if user not in histories:
            raise DataError(*place, "user_id", repr(user), "a user whose n_behaviors in users is a number")
        if position != len(histories[user]):
            raise DataError(*place, "position", position, f"{len(histories[user])}, the user's next")
        histories[user].append(_make(Behavior, _nested(row), place))
    for user, history in histories.items():
        place, n_behaviors = users[user]
        if n_behaviors != len(history):
            expected = f"{len(history)}, the user's rows in histories"
            raise DataError(*place, "n_behaviors", n_behaviors, expected)
    return {user: tuple(history) for user, history in histories.items()}


def _check_new(key: str, known: dict, place: Place, field: str) -> None:
    if key in known:
        raise DataError(*place, field, f"{key!r} a second time", "unique ids")


def _nested(row: dict) -> dict:
    """The opposite of :func:`_flat`."""
    review = {name: row.pop(f"review_{name}") for name in Review.model_fields}
    return {**row, "review": review}


def _make(model: type[R], fields: dict, place: Place) -> R:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise data_error(error, place) from None
