"""The numbers printed in the papers, one row a table cell, in ``targets.csv`` beside this module.

``paper`` is PersonalWAB (which holds PUMA), Orion or Persona2Web, ``table`` the paper's own numbering,
``row`` the row's name without its citation number, ``task`` search, recommend, review, overall, or empty.
Values stand as printed, in the unit of ``unit``: PersonalWAB prints accuracies as shares (0 to 1), Orion in
percent.

Departures from the print: Table 2 of PersonalWAB has its unnamed token averages named (instruction, product)
and cells that span train and test as ``all``; Table 2 of Orion heads its steps with (%), here they are steps.
The check mark of PersonalWAB's Table 1 is ``yes``, its crosses ``no``. Persona2Web's row (table "summary")
puts its text in the terms of that table: one query a task, real websites, users' own histories.
"""

from functools import cache
from pathlib import Path

import pandas as pd

_FILE = Path(__file__).with_name("targets.csv")
_PLACE = ["paper", "table", "row", "column", "task"]


def load_targets() -> pd.DataFrame:
    """All cells: ``paper, table, row, column, task, value, unit``; a value is a float, or a str for text."""
    return _targets().copy()


@cache
def _targets() -> pd.DataFrame:
    targets = pd.read_csv(_FILE, dtype=str, keep_default_na=False)
    is_text = targets["unit"] == "text"
    targets["value"] = targets["value"].astype(object)
    targets.loc[~is_text, "value"] = targets.loc[~is_text, "value"].astype(float)
    return targets


def target(paper: str, table: str, row: str, column: str, task: str = "") -> float | str:
    """One value, as printed.

    ``target("PersonalWAB", "Table 3", "PUMA (LLaMA-7B)", "result_accuracy", "search")`` is 0.652.

    Raises:
        KeyError: there is no such cell.
    """
    place = (paper, table, row, column, task)
    targets = _targets()
    cells = dict(zip(targets[_PLACE].itertuples(index=False, name=None), targets["value"], strict=True))
    if place not in cells:
        raise KeyError(f"no cell {place} in {_FILE.name}")
    return cells[place]


def paper_table(paper: str, table: str) -> pd.DataFrame:
    """A whole table as printed: rows as its index ``row``, columns as (task, column), both in print order.

    Raises:
        KeyError: there is no such table.
    """
    targets = _targets()
    cells = targets[(targets["paper"] == paper) & (targets["table"] == table)]
    if cells.empty:
        raise KeyError(f"no {table} of {paper} in {_FILE.name}")
    wide = cells.set_index(["row", "task", "column"])["value"].unstack(["task", "column"])
    return wide.reindex(index=pd.Index(cells["row"].unique(), name="row")).infer_objects()
