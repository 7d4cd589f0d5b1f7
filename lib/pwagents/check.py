"""Are a preset's tables what they should be? Each cell beside the paper's number or the reference value.

    python -m pwagents.check outputs/laptop    # as `make check` does

Three things are compared:

- the papers' rows in our tables with the papers' numbers, to the digit;
- a row of ours with the paper's row of the same method, where model and data are the paper's, too, within the
  tolerance of that row (``results/papers``). A small model has no such row, and is never compared with a
  paper;
- laptop's tables with the committed ones (``outputs/reference``), row by row, what rests on a training within
  the noise of seeds that these measured; how strictly says ``check.yaml``.

A mean over part of its tasks is compared with nothing. The exit status is 1 if a cell FAILs; 2 if a notebook
began and did not finish, a table that it left is gone, or the reference has a table that its notebook no
longer makes; else 0. Notebooks that never began are listed.
"""

import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pwagents.llm.budget import VERSION
from pwagents.report.reference import PRESET, REFERENCE, read_lines
from pwagents.results.papers import COSTS, NOT_RUN, load_targets
from pwagents.results.seeds import MUST_EXCEED
from pwagents.results.statistics import MEAN, OVERALL, SCORED
from pwagents.schema import TASK_TYPES
from pwagents.settings import ROOT
from pwagents.words import read_yaml

VERDICTS = ("OK", "noise", "FAIL")
QUOTED, STORED = "the paper's print", "the reference"  # what a cell is compared with, beside a paper's row
IN_PART = "part"  # the verdict on a mean over part of its tasks
# Columns that say what a row is, or that no paper has.
_ABOUT = ("source", "row", "backbone", "data", "n", "grader", *COSTS.values())
_ABOUT += ("notebook", "over seeds or worlds", "to run it here", "needs")
_PAPERS_DATA = "PersonalWAB's files"  # the only paper's data that can be had
_MISSING = ("n_missing", "n_left_out")  # counts of tasks that a mean, or a difference, leaves out
_EXACT = {"ok": 0, "noise": 0}
_NAMES = ("method", "row", "comparison", "name", "outcome")  # columns, of which a table has one
# Against what, a row of ours, the row that is expected, and how far apart they may be.
Comparison = tuple[str, pd.Series, pd.Series, Mapping[str, Any]]


class Cell(NamedTuple):
    """A cell of one of our tables, and what it was compared with."""

    table: str
    against: str
    row: str
    column: str
    found: Any
    expected: Any
    verdict: str


def check_tables(output_dir: Path, reference: Path) -> list[Cell]:
    """Compare all cells of ``output_dir``'s tables that have something to be compared with.

    Cells that are empty on both sides are left out. A distance is |found - expected| / max(1, |expected|):
    absolute for shares, relative for what is larger.

    Raises:
        ValueError: there are no tables.
    """
    tables = {path.stem: pd.read_csv(path) for path in sorted((output_dir / "tables").glob("*.csv"))}
    if not tables:
        raise ValueError(f"{output_dir} holds no tables; expected what `make reproduce` leaves there")
    rules, cells = read_yaml("pwagents", "check.yaml"), []
    seeds = _read_noise(reference) if output_dir.name == PRESET else None
    for name, table in tables.items():
        pairs = [*_with_papers(table)]
        stored = reference / "tables" / f"{name}.csv"
        if output_dir.name == PRESET and stored.exists():
            rule = next(rule for rule in rules["reference"] if fnmatch(name, rule["tables"]))
            pairs += _with_reference(table, pd.read_csv(stored), rules["distance"] | rule)
        for against, row, expected, rule in pairs:
            # A row is named by its texts.
            label = " ".join(str(value) for value in row if isinstance(value, str))[:60] or f"{row.name}"
            for column, theirs in expected.items():
                ours = row.get(column)
                if pd.isna(ours) and pd.isna(theirs):
                    continue
                own = _EXACT if column in rules["exact"] else rule
                if own is rule and "trained" in rule:
                    own = _within_seeds(row, column, rule, rules, seeds)
                # A mean, or a difference, over part of its tasks, here or there.
                scored = f"{column.partition(': ')[0]}: {SCORED}"
                in_part = any(
                    isinstance(each.get(scored), str) or any(each.get(count, 0) > 0 for count in _MISSING)
                    for each in (row, expected)
                )
                if in_part and not isinstance(ours, str):
                    verdict = IN_PART
                elif any(isinstance(value, str) or pd.isna(value) for value in (ours, theirs)):
                    verdict = "OK" if ours == theirs else own.get("texts", "FAIL")
                else:
                    distance = abs(ours - theirs) / max(1.0, abs(theirs))
                    verdict = (
                        "OK" if distance <= own["ok"] else "noise" if distance <= own["noise"] else "FAIL"
                    )
                cells.append(Cell(name, against, label, column, ours, theirs, verdict))
    return cells


def _read_noise(reference: Path) -> pd.DataFrame:
    """Return how far two seeds may differ in accuracy and in return, by method and task type."""
    names = ("04_noise_floor", "07_noise_floor", "07_seeds")
    table = pd.concat([pd.read_csv(reference / "tables" / f"{name}.csv") for name in names])
    table["method"], table["type"] = table["method"].str.casefold(), table["type"].replace(MEAN, OVERALL)
    table["return"] = table["return_high"] - table["return_low"]
    return table.groupby(["method", "type"])[[MUST_EXCEED, "return"]].max()


def _within_seeds(
    row: pd.Series, column: str, rule: dict[str, Any], rules: Mapping[str, Any], seeds: pd.DataFrame
) -> dict[str, Any]:
    """Return ``rule`` for a cell of the row: where that rests on a training, with the noise of its seeds."""
    name = str(next((row[each] for each in _NAMES if each in row), "")).casefold()
    if "backbone" in row:
        name = _method(name, str(row["backbone"]).casefold())
    methods = []
    for side in name.split(" - "):
        fitting = (method for pattern, method in rules["noise_of"].items() if fnmatch(side, pattern))
        methods.append(side if (side, OVERALL) in seeds.index else next(fitting, rule["trained"]))
    if not any(methods) or row.get("source", "here") != "here":
        return rule
    words = str(row.get("type", row.get("task", column)))
    task = next((each for each in TASK_TYPES if words.startswith(each)), OVERALL)
    own = seeds.loc[[(method, task) for method in methods if method]]
    is_return = any(fnmatch(column, each) for each in rules["returns"])
    noise = own["return"].fillna(own[MUST_EXCEED]) if is_return else own[MUST_EXCEED]
    noise = max(rule["noise"], np.linalg.norm(noise))
    return rule | {"texts": "noise", "noise": np.inf if column in rules["follows"] else noise}


def _with_papers(table: pd.DataFrame) -> Iterator[Comparison]:
    """Put the papers' rows beside what is printed, and ours beside the row of its method, model and data."""
    if not {"source", "row", "backbone", "data"} <= set(table):
        return
    targets = load_targets()
    targets = targets.assign(
        source=targets["paper"] + ", " + targets["table"],
        heading=(targets["task"] + ": " + targets["column"].str.replace("_", " ")).str.removeprefix(": "),
    )
    targets = targets[targets["source"].isin(table["source"])]
    columns = [column for column in table if column not in _ABOUT and not column.endswith(f": {SCORED}")]
    printed = targets.pivot(index=["source", "row"], columns="heading", values="value")
    printed, facts = printed.reindex(columns=columns), targets.drop_duplicates(["source", "row"])
    for _, row in table[table["source"] != NOT_RUN].iterrows():
        if row["source"] != "here":
            yield QUOTED, row, printed.loc[row["source"], row["row"]], _EXACT
        elif row["data"] == _PAPERS_DATA:
            # Behind the model stands what tells several cells of notebook 03 apart; the papers' is published.
            backbone, *words = row["backbone"].split(", ")
            if "leak-free" in words:
                continue
            method = _method(row["row"], row["backbone"])
            for each in facts[facts["backbone"] == VERSION.sub("", backbone)].itertuples():
                if method in (_method(each.row, each.backbone), each.ours.casefold()):
                    against = f"{each.source}, {each.row}"
                    yield against, row, printed.loc[each.source, each.row], each.tolerance
                    break


def _method(row: str, backbone: str) -> str:
    """Read the method from a row's name: "No Memory (gpt-4o)" and "gpt-4o (No memory)" are one."""
    name = row.replace(backbone, "").removesuffix("()").strip()
    return (name[1:-1] if name.startswith("(") else name).casefold()


def _with_reference(
    table: pd.DataFrame, expected: pd.DataFrame, rule: Mapping[str, Any]
) -> Iterator[Comparison]:
    """Put rows beside those of the reference: in their order, or by names where a run may make fewer."""
    by = [column for column in rule.get("matched_by", ()) if column in expected]
    if by:  # rows of one name are matched by their order
        ours, theirs = (
            pd.MultiIndex.from_frame(frame[by].assign(nth=frame.groupby(by, dropna=False).cumcount()))
            for frame in (table, expected)
        )
        places = theirs.get_indexer(ours)
        expected = expected.iloc[places[places >= 0]]
        # A column that only a full run fills is filled as a whole, or not at all.
        unfilled = [c for c in rule.get("filled_by_a_full_run", ()) if c in table and table[c].isna().all()]
        # What says that a mean is over part of its tasks stays, here or there.
        whole = [c for c in expected if c in table or c.endswith((f": {SCORED}", *_MISSING))]
        expected = expected[[column for column in whole if column not in unfilled]]
    if len(table) != len(expected):
        counts = [pd.Series({"rows": len(each)}, name="(whole table)") for each in (table, expected)]
        yield STORED, *counts, _EXACT
        return
    for (_, row), (_, wanted) in zip(table.iterrows(), expected.iterrows(), strict=True):
        yield STORED, row, wanted, rule


def check_runs(output_dir: Path, reference: Path) -> tuple[list[str], list[str], list[str]]:
    """Return notebooks that did not come to their end, a line a missing table, and notebooks never begun."""
    # The last to start counts: an earlier run may write its row when the kernel ends. Clocks err:
    # what counts is how many rows there were. `evaluate` writes, too.
    journal = enumerate(read_lines(output_dir / "timings" / "journal.jsonl"))
    order = sorted(journal, key=lambda each: (each[1].get("rows_before", each[0]), each[1]["started"]))
    last = {row["notebook"]: row for _, row in order if row["notebook"][:2].isdigit()}
    # A process that was killed leaves no row, but the notebook as far as it came, or results without any row.
    begun = {path.stem for path in (output_dir / "notebooks" / ".partial").glob("*.ipynb")}
    folders = (output_dir / "tables", output_dir / "timings" / "tables")
    tables = {path.stem for folder in folders for path in folder.glob("[0-9][0-9]_*.csv")}
    names = {path.stem for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")} | last.keys()
    made = {table[:2] for table in tables}
    begun |= {name for name in names if last and name[:2] in made - {row[:2] for row in last}}
    unfinished = begun | {name for name, row in last.items() if row["status"] != "finished"}

    recorded = {table for row in last.values() for table in row.get("tables", ())}
    missing = [f"{table} is missing: its notebook should have left this table" for table in recorded - tables]
    if output_dir.name == PRESET:
        full = read_yaml("pwagents", "check.yaml")["made_by_a_full_run"]
        known = {path.stem for path in (reference / "tables").glob("*.csv")}
        missing += [
            f"{table} is in the reference and no longer made: make it, or remove it there"
            for table in known - recorded - tables
            if table[:2] in made and table not in full
        ]
    return sorted(unfinished), sorted(missing), sorted(names - last.keys() - begun)


def format_report(cells: list[Cell]) -> str:
    """List a line a table, below it each cell that is not OK, and the sums.

    A quoted cell says that a paper was copied without a mistake, a row of ours how near it comes: each is
    counted for itself.
    """

    def count(own: pd.DataFrame) -> str:
        counts = own["verdict"].value_counts()
        return "  ".join(f"{verdict} {counts.get(verdict, 0):4d}" for verdict in VERDICTS)

    lines, frame = [], pd.DataFrame(cells, columns=Cell._fields)
    for (table, against), own in frame.groupby(["table", "against"], sort=False):
        lines.append(f"{count(own)}  {table}, against {against}")
        for cell in own[own["verdict"] != "OK"].itertuples():
            text = f"    {cell.verdict:5}  {cell.row} | {cell.column}: {cell.found}, expected {cell.expected}"
            lines.append(text + " (over part of the tasks: not compared)" * (cell.verdict == IN_PART))
    quoted, ours = frame[frame["against"] == QUOTED], frame[~frame["against"].isin([QUOTED, STORED])]
    rows = ours.drop_duplicates(["table", "against", "row"])
    n_exact = (quoted["verdict"] == "OK").sum()
    compared = f"{n_exact} of {len(quoted)} quoted cells are as the papers print them"
    compared += f"; {len(rows)} of our rows can be compared with a paper's"
    compared += f" ({count(ours)}  cells)" if len(rows) else " (none has a paper's model and data)"
    return "\n".join([*lines, f"{count(frame)}  cells in all", compared])


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m pwagents.check OUTPUTS/PRESET")
    output_dir = Path(sys.argv[1])
    unfinished, missing, never_begun = check_runs(output_dir, REFERENCE)
    try:
        cells = check_tables(output_dir, REFERENCE)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2 if unfinished else 1
    notes = [format_report(cells)]
    if output_dir.name != PRESET:
        notes.append(f"There is no reference for {output_dir.name}: its other numbers are not compared.")
    notes += [f"{name} began and did not finish: run it again" for name in unfinished]
    notes += missing
    notes += [f"Never begun: {', '.join(never_begun)}"] if never_begun else []
    print("\n".join(notes))
    return 2 if unfinished or missing else int(any(cell.verdict == "FAIL" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
