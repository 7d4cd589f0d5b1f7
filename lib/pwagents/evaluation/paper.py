"""The numbers printed in the papers, one row a table cell, in ``targets.csv`` beside this module.

``paper`` is PersonalWAB (which holds PUMA), Orion or Persona2Web, ``table`` the paper's own numbering,
``row`` the row's name without its citation number, ``task`` search, recommend, review, overall, or empty.
Values stand as printed, in the unit of ``unit``: PersonalWAB prints accuracies as shares (0 to 1), Orion in
percent.

Departures from the print: Table 2 of PersonalWAB has its unnamed token averages named (instruction, product)
and cells that span train and test as ``all``; Table 2 of Orion heads its steps with (%), here they are steps.
The check mark of PersonalWAB's Table 1 is ``yes``, its crosses ``no``. Persona2Web's row (table "summary")
puts its text in the terms of that table: one query a task, real websites, users' own histories.

Our numbers stand beside the printed ones (:func:`beside`), never in one column with them.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pandas as pd

from pwagents.evaluation.breakdowns import by_task
from pwagents.schema import TASK_TYPES

# What each paper grades by: our metric -> its heading. PersonalWAB scores the choice of function once a task
# and takes the best attempt; Orion scores each step, and what the user is left with.
METRICS = {
    "PersonalWAB": {
        "function_accuracy": "function accuracy",
        "result_official": "result accuracy",
        "steps": "steps",
    },
    "Orion": {"result_final": "result accuracy", "step_accuracy": "function accuracy", "steps": "steps"},
}
# Our name of a method (pwagents.agents.methods) -> the name it has in the paper's rows.
PERSONALWAB = {
    "No memory": "No Memory",
    "Random memory": "Random Memory",
    "Last memory": "Last Memory",
    "Relevant memory": "Relevant Memory",
    "ReAct": "ReAct",
    "Reflection": "Reflection",
    "RecMind": "RecMind",
    "InteRecAgent": "InteRecAgent",
    "PUMA (prompted)": "PUMA",
}
ORION = {
    "No memory": "Raw",
    "Chain of thought": "CoT",
    "ReAct": "ReAct",
    "ChatShop": "ChatShop",
    "PUMA (prompted)": "PUMA",
}
ORION_BACKBONES = {"gpt-4.1": "GPT-4.1", "deepseek-v3": "DeepSeek-V3", "qwen2.5-72b-instruct": "Qwen2.5"}
# Table 4 names no backbone but PUMA's; the paper's appendix A.3 says which one the baselines have.
BACKBONE_OF_TABLE_4 = "gpt-4o-mini"

_FILE = Path(__file__).with_name("targets.csv")
_PLACE = ["paper", "table", "row", "column", "task"]


def load_targets() -> pd.DataFrame:
    """All cells: ``paper, table, row, column, task, value, unit``; a value is a float, or a str for text."""
    return _targets().copy()


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
    cells = _cells(paper, table)
    wide = cells.set_index(["row", "task", "column"])["value"].unstack(["task", "column"])
    return wide.reindex(index=pd.Index(cells["row"].unique(), name="row")).infer_objects()


def beside(
    frame: pd.DataFrame, paper: str, table: str, rows: Mapping[str, str], *, others: bool = True
) -> pd.DataFrame:
    """A table of a paper by task, our numbers beside the printed ones and in their unit.

    There is an "overall" of ours only where all three types of tasks were played: a mean over fewer is not
    the paper's. What was not run stays empty.

    Args:
        frame: one row an episode, as from :func:`pwagents.evaluation.runner.records_frame`; may be empty.
        paper: one of :data:`METRICS`.
        rows: method -> its row in the table; a name that the paper does not have makes a row of its own.
        others: whether to show the paper's rows that ``rows`` does not name.

    Returns:
        A row each, by columns such as ("search, result accuracy", "paper") and (..., "here").
    """
    printed = paper_table(paper, table).rename(columns=_heading, level="column")
    ours = frame[frame["method"].isin(rows)].assign(method=lambda f: f["method"].map(rows))
    measured = pd.DataFrame(index=pd.Index([], name="row"), columns=printed.columns, dtype=float)
    if not ours.empty:
        ours = ours.assign(**{metric: 100 * ours[metric] for metric in _in_percent(paper, table)})
        measured = by_task(ours, METRICS[paper])[0].rename_axis("row")
        if ours["type"].nunique() < len(TASK_TYPES):
            measured = measured.drop(columns="overall", level=0, errors="ignore")
        measured = measured.reindex(columns=printed.columns)
    headings = [", ".join(place) for place in printed.columns]
    both = side_by_side(measured.set_axis(headings, axis=1), printed.set_axis(headings, axis=1))
    return (both if others else both[both.index.isin(rows.values())]).astype(float)


def side_by_side(measured: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Two frames with the same kind of rows (index) and columns, as one: a "paper" and a "here" column each.

    Rows come in the paper's order, then those measured only; columns in the measured frame's order, then
    those of the paper only. What one of the two lacks is missing.
    """
    rows = paper.index.append(measured.index.difference(paper.index, sort=False))
    columns = measured.columns.append(paper.columns.difference(measured.columns, sort=False))
    sides = {"paper": paper.reindex(rows, columns=columns), "here": measured.reindex(rows, columns=columns)}
    both = pd.concat(sides, axis=1).swaplevel(axis=1)
    return both[[(column, side) for column in columns for side in sides]].rename_axis(index=rows.name)


def table_3(frame: pd.DataFrame, backbone: str) -> pd.DataFrame:
    """PersonalWAB's Table 3 (single-turn), the paper's numbers and ours side by side.

    Args:
        frame: as of :func:`beside`.
        backbone: the name of the model that was run, such as "gpt-4o".
    """
    rows = {method: f"{name} ({backbone})" for method, name in PERSONALWAB.items()}
    return beside(frame, "PersonalWAB", "Table 3", rows)


def table_4(frame: pd.DataFrame, backbone: str) -> pd.DataFrame:
    """PersonalWAB's Table 4 (multi-turn), as :func:`table_3`."""
    as_printed = backbone == BACKBONE_OF_TABLE_4
    rows = {
        method: name if as_printed and method != "PUMA (prompted)" else f"{name} ({backbone})"
        for method, name in PERSONALWAB.items()
    }
    return beside(frame, "PersonalWAB", "Table 4", rows)


def orion_table_1(frame: pd.DataFrame, backbone: str) -> pd.DataFrame:
    """The prompting rows of Orion's Table 1: accuracies in percent, function accuracy by step, last attempt.

    Its other rows are trained models, which have notebooks of their own.
    """
    rows = {method: f"{ORION_BACKBONES.get(backbone, backbone)} ({name})" for method, name in ORION.items()}
    table = beside(frame, "Orion", "Table 1", rows)
    prompting = tuple(f"({name})" for name in ORION.values())
    return table[[row.endswith(prompting) for row in table.index]]


@cache
def _targets() -> pd.DataFrame:
    targets = pd.read_csv(_FILE, dtype=str, keep_default_na=False)
    is_text = targets["unit"] == "text"
    targets["value"] = targets["value"].astype(object)
    targets.loc[~is_text, "value"] = targets.loc[~is_text, "value"].astype(float)
    return targets


def _cells(paper: str, table: str) -> pd.DataFrame:
    targets = _targets()
    cells = targets[(targets["paper"] == paper) & (targets["table"] == table)]
    if cells.empty:
        raise KeyError(f"no {table} of {paper} in {_FILE.name}")
    return cells


def _in_percent(paper: str, table: str) -> list[str]:
    """Those of our metrics that a table prints in percent; ours are shares."""
    cells = _cells(paper, table)
    percent = {_heading(column) for column in cells.loc[cells["unit"] == "percent", "column"]}
    return [metric for metric, heading in METRICS[paper].items() if heading in percent]


def _heading(column: str) -> str:
    return column.replace("_", " ")
