"""The numbers printed in the papers, one row a table cell, in ``targets.csv`` beside this module.

``paper`` is PersonalWAB (which holds PUMA), Orion or Persona2Web, ``table`` the paper's own numbering,
``row`` the row's name without its citation number, ``task`` search, recommend, review, overall, or empty.
Values stand as printed, in the unit of ``unit``: PersonalWAB prints accuracies as shares (0 to 1), Orion in
percent.

Departures from the print: Table 2 of PersonalWAB has its unnamed token averages named (instruction, product)
and cells that span train and test as ``all``; Table 2 of Orion heads its steps with (%), here they are steps.
The check mark of PersonalWAB's Table 1 is ``yes``, its crosses ``no``. Persona2Web's row (table "summary")
puts its text in the terms of that table: one query a task, real websites, users' own histories.

The tables of the papers with our numbers beside the printed ones; rows that were not run stay empty.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pandas as pd

from pwagents.evaluation.breakdowns import by_task
from pwagents.evaluation.tables import paper_beside

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


# Our name of a method -> the name it has in the paper's rows.
PERSONALWAB = {
    "no_memory": "No Memory",
    "random_memory": "Random Memory",
    "last_memory": "Last Memory",
    "relevant_memory": "Relevant Memory",
    "react": "ReAct",
    "reflection": "Reflection",
    "recmind": "RecMind",
    "interecagent": "InteRecAgent",
    "puma_prompting": "PUMA",
}
ORION = {"no_memory": "Raw", "cot": "CoT", "react": "ReAct", "chatshop": "ChatShop", "puma_prompting": "PUMA"}
ORION_BACKBONES = {"gpt-4.1": "GPT-4.1", "deepseek-v3": "DeepSeek-V3", "qwen2.5-72b-instruct": "Qwen2.5"}
# Table 4 names no backbone but PUMA's; the paper's appendix A.3 says which one the baselines have.
BACKBONE_OF_TABLE_4 = "gpt-4o-mini"


def table_3(frame: pd.DataFrame, backbone: str) -> pd.DataFrame:
    """PersonalWAB's Table 3 (single-turn), the paper's numbers and ours side by side.

    Args:
        frame: episodes as of :func:`pwagents.evaluation.runner.records_frame`; empty where nothing was run.
        backbone: the name of the model that was run, such as "gpt-4o".
    """
    metrics = {"function_accuracy": "function_accuracy", "result_official": "result_accuracy"}
    rows = {method: f"{name} ({backbone})" for method, name in PERSONALWAB.items()}
    return _beside(frame, rows, metrics, "PersonalWAB", "Table 3")


def table_4(frame: pd.DataFrame, backbone: str) -> pd.DataFrame:
    """PersonalWAB's Table 4 (multi-turn), as :func:`table_3`."""
    metrics = {
        "function_accuracy": "function_accuracy",
        "result_official": "result_accuracy",
        "steps": "steps",
    }
    as_printed = backbone == BACKBONE_OF_TABLE_4
    rows = {
        method: name if as_printed and method != "puma_prompting" else f"{name} ({backbone})"
        for method, name in PERSONALWAB.items()
    }
    return _beside(frame, rows, metrics, "PersonalWAB", "Table 4")


def orion_table_1(frame: pd.DataFrame, backbone: str) -> pd.DataFrame:
    """The prompting rows of Orion's Table 1: accuracies in percent, function accuracy by step, last attempt.

    Its other rows are trained models, which have notebooks of their own.
    """
    metrics = {"step_accuracy": "function_accuracy", "result_final": "result_accuracy", "steps": "steps"}
    rows = {method: f"{ORION_BACKBONES.get(backbone, backbone)} ({name})" for method, name in ORION.items()}
    percent = frame.assign(
        step_accuracy=100 * frame["step_accuracy"], result_final=100 * frame["result_final"]
    )
    prompting = tuple(f"({name})" for name in ORION.values())
    table = _beside(percent, rows, metrics, "Orion", "Table 1")
    return table[[row.endswith(prompting) for row in table.index]]


def _beside(
    frame: pd.DataFrame, rows: Mapping[str, str], metrics: Mapping[str, str], paper: str, table: str
) -> pd.DataFrame:
    printed = paper_table(paper, table)
    shown = frame[frame["method"].isin(rows)].assign(method=lambda f: f["method"].map(rows))
    if shown.empty:
        measured = pd.DataFrame(index=pd.Index([], name="row"), columns=printed.columns, dtype=float)
    else:
        measured = by_task(shown, metrics)[0].reindex(columns=printed.columns).rename_axis("row")
    return paper_beside(_flat(measured), _flat(printed)).astype(float)


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """One heading a column ("search, steps"), as the side takes the second."""
    return frame.set_axis([f"{task}, {column.replace('_', ' ')}" for task, column in frame.columns], axis=1)
