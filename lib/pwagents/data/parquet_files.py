"""Parquet files of known columns: rows in, rows out, with errors that name file, row and column."""

from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from pwagents.errors import DataError
from pwagents.schema import UserProfile

if TYPE_CHECKING:
    import pyarrow as pa

Place = tuple[Path, str]  # a file and a row, as a DataError names them

ROWS_A_GROUP = 10_000  # what is in memory at once


def schemas() -> dict[str, "pa.Schema"]:
    """Table -> its columns. ``details`` is a list of pairs because its keys differ by product."""
    import pyarrow as pa

    text, whole, number = pa.string(), pa.int64(), pa.float64()
    review = {"review_rating": number, "review_title": text, "review_text": text}
    tables = {
        "users": {"user_id": text, "n_behaviors": whole, **dict.fromkeys(UserProfile.model_fields, text)},
        "products": {
            "parent_asin": text,
            "title": text,
            "category": text,
            "price": number,
            "store": text,
            "average_rating": number,
            "rating_number": whole,
            "features": pa.list_(text),
            "description": pa.list_(text),
            "details": pa.list_(pa.struct({"name": text, "value": text})),
        },
        "histories": {"user_id": text, "position": whole, "parent_asin": text, "timestamp": whole, **review},
        "tasks": {
            "task_id": text,
            "user_id": text,
            "type": text,
            "timestamp": whole,
            "instruction": text,
            "target": text,
            **review,
        },
    }
    may_be_null = {
        "n_behaviors",
        "price",
        "store",
        "average_rating",
        "rating_number",
        *UserProfile.model_fields,
    }
    return {
        table: pa.schema([pa.field(name, kind, name in may_be_null) for name, kind in columns.items()])
        for table, columns in tables.items()
    }


def write_rows(root: Path, path: str, rows: Iterator[dict], schema: "pa.Schema", bar: tqdm) -> None:
    """Write ``rows`` into the file ``path`` below ``root``, one group of rows after the other.

    Raises:
        DataError: a text is no valid Unicode, or a number is too large for 64 bits. It names ``path``, the id
            in the row's first column, and the column.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetWriter(root / path, schema, compression="zstd") as writer:
        while group := list(islice(rows, ROWS_A_GROUP)):
            try:
                writer.write_batch(pa.RecordBatch.from_pylist(group, schema))
            except (UnicodeEncodeError, OverflowError):
                _raise_for_misfit(path, group, schema)
                raise
            bar.update(len(group))


def _raise_for_misfit(path: str, rows: list[dict], schema: "pa.Schema") -> None:
    import pyarrow as pa

    id_name = schema.names[0]
    for row, field in product(rows, schema):
        where = (path, f"{id_name} {row[id_name]!r}", field.name)
        try:
            pa.array([row.get(field.name)], field.type)
        except UnicodeEncodeError as error:
            raise DataError(
                *where, f"half a surrogate pair ({error})", "text that is valid Unicode"
            ) from None
        except OverflowError:
            raise DataError(*where, row[field.name], "a whole number of at most 64 bits") from None


def read_rows(file: Path, schema: "pa.Schema", bar: tqdm) -> Iterator[tuple[Place, dict]]:
    """The rows of a file, each with its place.

    Raises:
        DataError: the file is missing or broken, a column is missing, unknown or of another type than in
            ``schema``, or null where it may not be.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as source:
            _check_columns(file, source.schema_arrow, schema)
            first = 0
            for batch in source.iter_batches(ROWS_A_GROUP):
                _check_nulls(file, batch, first, schema)
                for number, row in enumerate(batch.to_pylist(), first):
                    yield _place(file, number), row
                first += len(batch)
                bar.update(len(batch))
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(file, "-", "(file)", f"'{reason}'", "a whole Parquet file") from None


def _check_columns(file: Path, found: "pa.Schema", expected: "pa.Schema") -> None:
    for field in expected:
        if (n_columns := found.names.count(field.name)) != 1:
            raise DataError(file, "-", field.name, f"{n_columns} such columns", f"one of type {field.type}")
        if (kind := found.field(field.name).type) != field.type:
            raise DataError(file, "-", field.name, f"a column of type {kind}", f"type {field.type}")
    if unknown := [name for name in found.names if name not in expected.names]:
        columns = ", ".join(expected.names)
        raise DataError(file, "-", unknown[0], "an unknown column", f"the columns {columns} alone")


def _check_nulls(file: Path, batch: "pa.RecordBatch", first: int, schema: "pa.Schema") -> None:
    for field in schema:
        column = batch.column(field.name)
        if column.null_count and not field.nullable:
            place = _place(file, first + column.is_null().index(True).as_py())
            raise DataError(*place, field.name, "null", f"a value of type {field.type}")


def _place(file: Path, number: int) -> Place:
    return file, f"row {number} (from 0)"
