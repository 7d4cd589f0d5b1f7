"""Scans of huge JSON-lines files by DuckDB in bounded memory, with errors that name the broken record."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import duckdb
from tqdm import tqdm

from pwagents.data.amazon_clean import FIRST_TIME, ID_FIELDS, ID_PATTERN, LAST_TIME, find_broken_record
from pwagents.errors import DataError
from pwagents.progress import progress

T = TypeVar("T")
Fields = Mapping[str, tuple[str, ...]]

# A record's place, by which the second pass finds it again, is its file's number times _FILE plus its row in
# that file: DuckDB's ``row_number() OVER ()`` counts in the order of the file, whatever its threads do.
_FILE = 1 << 40
# Kind of JSON value (as amazon_clean names it) -> DuckDB's json_type, with "missing" for an absent field.
_SQL_KINDS = {
    "text": ("VARCHAR",),
    "whole number": ("UBIGINT", "BIGINT"),
    "decimal number": ("DOUBLE",),
    "list": ("ARRAY",),
    "object": ("OBJECT",),
    "null": ("NULL",),
    "missing": ("missing",),
}


def scan_columns(db, paths: list[Path], fields: Fields, table: str, columns: dict) -> None:
    """Make ``table`` of the ``columns`` of all records, each with its place and whether it is sound.

    Raises:
        DataError: names file, record and field of the first record that is not as ``fields`` say.
    """
    definitions = ", ".join(f"{name} {sql_type}" for name, sql_type in columns.items())
    db.execute(f"CREATE TABLE {table} (place BIGINT, {definitions}, sound BOOL)")
    values = ", ".join(
        f"TRY_CAST(value[{i}] AS {sql_type})" for i, sql_type in enumerate(columns.values(), 1)
    )
    insert = f"""
        INSERT INTO {table} SELECT place, {values}, {_soundness(fields, list(columns))}
        FROM (
            SELECT $first + row_number() OVER () AS place,
                json_extract_string(json, {[f"$.{name}" for name in columns]}) AS value,
                json_type(json, {[f"$.{name}" for name in fields]}) AS kind
            FROM read_ndjson_objects($path))"""
    with _bytes_bar(paths, f"checking {table}") as bar:
        for number, path in enumerate(paths):
            first = number * _FILE
            with _naming_broken_records(path, fields):
                with _advancing(bar, path, db):
                    db.execute(insert, {"first": first, "path": str(path)})
                broken = f"SELECT 1 FROM {table} WHERE place > ? AND sound IS NOT TRUE LIMIT 1"
                if db.execute(broken, [first]).fetchone():
                    raise ValueError("a record that is not as expected")  # becomes one that names it, above


def _soundness(fields: Fields, columns: list[str]) -> str:
    """The rules of :func:`pwagents.data.amazon_clean.find_broken_record` as one SQL condition.

    SQL only says whether a file is sound, at gigabytes a minute. Which record and field are broken is for the
    slow reader in Python to say, which runs where something is.
    """
    conditions = []
    for i, (name, kinds) in enumerate(fields.items(), 1):
        sql_kinds = tuple(sql_kind for kind in kinds for sql_kind in _SQL_KINDS[kind])
        conditions.append(f"coalesce(kind[{i}], 'missing') IN {[*sql_kinds]}")
        if name in ID_FIELDS:
            conditions.append(f"regexp_full_match(value[{columns.index(name) + 1}], '{ID_PATTERN}')")
        if name == "timestamp":
            time = f"TRY_CAST(value[{columns.index(name) + 1}] AS BIGINT)"
            conditions.append(f"{time} BETWEEN {FIRST_TIME} AND {LAST_TIME - 1}")
    return " AND ".join(conditions)


@contextmanager
def _naming_broken_records(path: Path, fields: Fields) -> Iterator[None]:
    """Turn a library's complaint about a file into a DataError that names the broken record."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise  # not the file's fault, and a search for a broken record would take long
    except (duckdb.Error, ValueError, RecursionError, OverflowError) as error:
        find_broken_record(path, fields)
        reason = str(error).strip().partition("\n")[0]
        expected = "readable records, a memory_limit and temporary disk space that suffice"
        raise DataError(path, "-", "(file)", f"'{reason}'", expected) from None


def read_records(
    db: duckdb.DuckDBPyConnection, paths: list[Path], fields: Fields, chosen: str, clean: Callable[[dict], T]
) -> list[T]:
    """The whole records whose places are in the table ``chosen``, each turned into an object by ``clean``."""
    query = f"""
        SELECT json FROM (
            SELECT $first + row_number() OVER () AS place, json FROM read_ndjson_objects($path))
        WHERE place IN (SELECT place FROM {chosen})"""
    found = []
    with _bytes_bar(paths, f"reading {chosen}") as bar:
        for number, path in enumerate(paths):
            with _naming_broken_records(path, fields), _advancing(bar, path, db):
                rows = db.execute(query, {"first": number * _FILE, "path": str(path)})
                while batch := rows.fetchmany(1000):
                    found += [clean(json.loads(text, object_pairs_hook=_first_wins)) for (text,) in batch]
    return found


def _bytes_bar(paths: list[Path], what: str) -> tqdm:
    return progress(total=sum(map(_size, paths)), desc=what, unit="B", unit_scale=True)


@contextmanager
def _advancing(bar: tqdm, path: Path, db: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Move ``bar`` on while a query of ``db`` reads ``path``; one file can take many minutes."""
    start, size, done = bar.n, _size(path), Event()

    def follow():
        while not done.wait(0.5):
            share = db.query_progress() / 100  # below 0 while DuckDB does not know
            bar.update(max(start + int(share * size) - bar.n, 0))

    follower = Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()
    bar.update(start + size - bar.n)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0  # a broken link gets its error when it is read


def _first_wins(pairs: list[tuple[str, object]]) -> dict:
    """Of two equal keys in an object the first counts, as in DuckDB; Python alone would take the last."""
    first: dict = {}
    for key, value in pairs:
        first.setdefault(key, value)
    return first
