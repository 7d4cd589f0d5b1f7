"""Are a preset's tables what they should be? Each cell beside the paper's number or the reference value.

    python -m pwagents.notebook.check outputs/laptop    # as `make check` does

Three things are compared, how strictly says ``tolerances.yaml``:

- the papers' rows in our tables with the papers' numbers, to the digit;
- a row of ours with the paper's row of the same method, where model and data are the paper's, too. A small
  model has no such row, and is never compared with a paper;
- laptop's tables with the committed ones (``outputs/reference``), row by row.
"""

import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pwagents.evaluation.paper import COSTS, load_targets
from pwagents.notebook.reference import PRESET, REFERENCE
from pwagents.project import read_yaml

VERDICTS = ("OK", "noise", "FAIL")
# Columns that say what a row is, or that no paper has.
_ABOUT = ("source", "row", "backbone", "data", "n", "grader", *COSTS.values())
_ABOUT += ("notebook", "over pipelines", "to run it here")
_PAPERS_DATA = "PersonalWAB's files"  # the only paper's data that can be had


class Cell(NamedTuple):
    """A cell of one of our tables, and what it was compared with."""

    table: str
    against: str
    row: str
    column: str
    found: Any
    expected: Any
    verdict: str


def check(output_dir: Path, reference: Path) -> list[Cell]:
    """All cells of ``output_dir``'s tables that have something to be compared with.

    Raises:
        ValueError: there are no tables.
    """
    tables = {path.stem: pd.read_csv(path) for path in sorted((output_dir / "tables").glob("*.csv"))}
    if not tables:
        raise ValueError(f"{output_dir} holds no tables; expected what `make reproduce` leaves there")
    cells = [cell for name, table in tables.items() for cell in _with_papers(name, table)]
    if output_dir.name == PRESET:
        made = {name[:2] for name in tables}  # notebooks that ran
        for path in sorted((reference / "tables").glob("*.csv")):
            if path.stem[:2] in made:
                cells += _with_reference(path.stem, tables.get(path.stem), pd.read_csv(path))
    return cells


def report(cells: list[Cell]) -> str:
    """A line a table, below it each cell that is not OK, and the sum."""
    lines = []
    frame = pd.DataFrame(cells, columns=Cell._fields)
    for (table, against), own in frame.groupby(["table", "against"], sort=False):
        lines.append(f"{_counted(own)}  {table}, against {against}")
        for cell in own[own["verdict"] != "OK"].itertuples():
            lines.append(
                f"    {cell.verdict:5}  {cell.row} | {cell.column}: {cell.found}, expected {cell.expected}"
            )
    return "\n".join([*lines, f"{_counted(frame)}  cells in all"])


def _counted(frame: pd.DataFrame) -> str:
    counts = frame["verdict"].value_counts()
    return "  ".join(f"{verdict} {counts.get(verdict, 0):4d}" for verdict in VERDICTS)


def _tolerances() -> Mapping[str, Any]:
    return read_yaml("pwagents.notebook", "tolerances.yaml")


def _with_papers(name: str, table: pd.DataFrame) -> Iterator[Cell]:
    """The papers' rows as printed, and ours of the same method, model and data."""
    if not {"source", "row", "backbone", "data"} <= set(table):
        return
    targets = load_targets()
    targets["heading"] = targets["column"].str.replace("_", " ")
    targets.loc[targets["task"] != "", "heading"] = targets["task"] + ": " + targets["heading"]
    targets["source"] = targets["paper"] + ", " + targets["table"]
    theirs = {key: rows.set_index("heading")["value"] for key, rows in targets.groupby(["source", "row"])}
    columns = [column for column in table if column not in _ABOUT]
    exact, near = {"ok": 0, "noise": 0}, _tolerances()["paper"]
    for _, row in table.iterrows():
        if row["source"] != "here":
            yield from _cells(
                name, "the paper's print", row, theirs[row["source"], row["row"]], columns, exact
            )
        elif (target := _same(row, table)) is not None:
            yield from _cells(name, f"{target['source']}, {target['row']}", row, target, columns, near)


def _same(row: pd.Series, table: pd.DataFrame) -> pd.Series | None:
    """The paper's row of the same method and model, for a row of ours on the paper's data."""
    if row["data"] != _PAPERS_DATA:
        return None
    ours = _method(row)
    theirs = {ours, *_tolerances()["names"].get(ours, ())}
    others = table[(table["source"] != "here") & (table["backbone"] == row["backbone"])]
    return next((other for _, other in others.iterrows() if _method(other) in theirs), None)


def _method(row: pd.Series) -> str:
    """The method in a row's name, in small letters: "No Memory (gpt-4o)" and "gpt-4o (No memory)" are one."""
    name = row["row"].replace(row["backbone"], "").removesuffix("()").strip()
    return (name[1:-1] if name.startswith("(") else name).casefold()


def _with_reference(name: str, table: pd.DataFrame | None, expected: pd.DataFrame) -> Iterator[Cell]:
    """Row by row, in their order; where a run may make less than the reference has, by their names, and
    without columns that only a full run fills."""
    rules = _tolerances()["reference"]
    rule = next(rule for rule in rules if fnmatch(name, rule["tables"]))
    against, by = "the reference", [column for column in rule.get("matched_by", ()) if column in expected]
    if by and table is not None:
        expected = _of_same_names(table, expected, by)

    def missing(what: str, found: Any, wanted: Any) -> Cell:
        return Cell(name, against, "(whole table)", what, found, wanted, "FAIL")

    if table is None:
        if not by:
            yield missing("table", "none", "a table")
    elif (graders := _graders(table)) != (wanted := _graders(expected)):
        yield missing("grader", graders, f"{wanted}; the notebook, run again, grades its stored runs anew")
    elif len(table) != len(expected):
        yield missing("rows", len(table), len(expected))
    else:
        for column in [column for column in expected if column not in table and not by]:
            yield missing("column", "none", column)
        # Within a table such a column is filled as a whole, or not at all.
        may_lack = set(rule.get("filled_by_a_full_run", ())) & {*table}
        unfilled = {column for column in may_lack if table[column].isna().all()}
        columns = [column for column in expected if column in table and column not in unfilled]
        for i, row in table.iterrows():
            yield from _cells(name, against, row, expected.loc[i], columns, rule)


def _of_same_names(table: pd.DataFrame, expected: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The expected rows that the table has, in its order; rows of one name are told apart by their order."""
    ours, theirs = (
        pd.MultiIndex.from_frame(frame[by].assign(nth=frame.groupby(by, dropna=False).cumcount()))
        for frame in (table, expected)
    )
    places = theirs.get_indexer(ours)
    return expected.iloc[places[places >= 0]].reset_index(drop=True)


def _graders(table: pd.DataFrame) -> str:
    """Who graded our rows."""
    ours = table[table["source"] == "here"] if {"source", "grader"} <= set(table) else pd.DataFrame()
    return ", ".join(ours["grader"].unique()) if len(ours) else ""


def _cells(
    table: str, against: str, row: pd.Series, expected: pd.Series, columns: list[str], rule: Mapping[str, Any]
) -> Iterator[Cell]:
    """A row's cells, those left out that are empty on both sides."""
    exact = {"ok": 0, "noise": 0}
    called = " ".join(str(value) for value in row if isinstance(value, str))[:60] or f"row {row.name}"
    for column in columns:
        found, wanted = row[column], expected.get(column)
        if not (pd.isna(found) and pd.isna(wanted)):
            strict = exact if column in _tolerances()["exact"] else rule
            yield Cell(table, against, called, column, found, wanted, _verdict(found, wanted, strict))


def _verdict(found: Any, expected: Any, rule: Mapping[str, Any]) -> str:
    if isinstance(found, str) or isinstance(expected, str) or pd.isna(found) or pd.isna(expected):
        return "OK" if found == expected else rule.get("texts", "FAIL")
    distance = abs(found - expected) / max(1.0, abs(expected))
    return "OK" if distance <= rule["ok"] else "noise" if distance <= rule["noise"] else "FAIL"


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m pwagents.notebook.check OUTPUTS/PRESET", file=sys.stderr)
        return 2
    output_dir = Path(sys.argv[1])
    try:
        cells = check(output_dir, REFERENCE)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(report(cells))
    if output_dir.name != PRESET:
        print(f"There is no reference for {output_dir.name}: its other numbers are compared with nothing.")
    return int(any(cell.verdict == "FAIL" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
