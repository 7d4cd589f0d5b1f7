"""The numbers printed in the papers, one row a table cell, in ``targets.csv`` beside this module.

``paper`` is PersonalWAB (which holds PUMA), Orion or Persona2Web, ``table`` the paper's own numbering (for
Persona2Web, of which no table is at hand, what the numbers are about), ``source`` where the value was read,
``row`` the row's name without its citation number, ``task`` search, recommend, review, overall, or empty.
Values stand as printed, in the unit of ``unit``: PersonalWAB prints accuracies as shares (0 to 1), Orion in
percent.

Departures from the print: Table 2 of PersonalWAB has its unnamed token averages named (instruction, product)
and cells that span train and test as ``all``; Table 2 of Orion heads its steps with (%), here they are steps.
The check mark of PersonalWAB's Table 1 is ``yes``, its crosses ``no``. Persona2Web's row (table "summary")
puts its text in the terms of that table: one query a task, real websites, users' own histories.

Persona2Web's numbers are of a long summary of the paper and of third-party notes on it, which conflict in
places: the correlation of the meta-evaluation is Spearman's in the summary and Pearson's in the notes, and
the mean SR of level 2 (.078) is not that of Browser-Use's ten rows with a history. Noise and the drop of SR
in three months are told as "about 10%", the latter without saying of what.

Our numbers stand in rows of their own below the printed ones (:func:`below_paper`), which say what they are.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pwagents.evaluation.breakdowns import by_task
from pwagents.evaluation.metrics import GRADER_VERSION
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
# Our names (pwagents.agents.methods) of the methods in PersonalWAB's Tables 3 and 4, and in Orion's Table 1.
PERSONALWAB = (
    "No memory",
    "Random memory",
    "Last memory",
    "Relevant memory",
    "ReAct",
    "Reflection",
    "RecMind",
    "InteRecAgent",
    "PUMA (prompted)",
)
ORION = ("No memory", "Chain of thought", "ReAct", "ChatShop", "PUMA (prompted)")
# Of rows whose names do not tell it. For Table 4 it stands in the paper's appendix A.3.
_BACKBONES = {
    ("PersonalWAB", "Table 4"): "gpt-4o-mini",
    ("PersonalWAB", "Table 5"): "LLaMA-7B",
    ("PersonalWAB", "Table 6"): "LLaMA-7B",
    ("Orion", "Table 2"): "Qwen2.5-7B-Instruct",
}


# Formats of Orion's columns, which are in percent.
IN_PERCENT = dict.fromkeys(METRICS["Orion"].values(), ".1f")


# What the agent's own model read and wrote, on average, and its price (0 but for an endpoint's), without
# profiles, their updates and the user: column -> its heading.
COSTS = {"tokens": "tokens a task", "usd": "USD a task"}


class Here(NamedTuple):
    """What our rows say of themselves: the model behind them ("" for none), and the data."""

    backbone: str
    data: str


_FILE = Path(__file__).with_name("targets.csv")
_PLACE = ["paper", "table", "row", "column", "task"]


def load_targets() -> pd.DataFrame:
    """All cells: ``paper, table, row, column, task, value, unit, source``; a value is a float, or text."""
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


def below_paper(
    frame: pd.DataFrame, paper: str, table: str, here: Here, printed: Sequence[str] | None = None
) -> pd.DataFrame:
    """Rows of a paper's table as printed, and below them ours in the table's unit, in rows of their own.

    There is an "overall" of ours only where all three types of tasks were played: a mean over fewer is not
    the paper's. Where anything was played, columns of what was not are left out.

    Args:
        frame: the episodes of the methods to show, as from
            :func:`pwagents.evaluation.runner.records_frame`; may be empty.
        paper: one of :data:`METRICS`.
        printed: the paper's rows to show; all where none are given.

    Returns:
        ``source`` ("here", or paper and table), ``row`` (as printed, or backbone and method of ours),
        ``backbone, data, n`` (test tasks), ``grader`` and :data:`COSTS`; then a column a type of task and
        metric, such as ("search", "result accuracy"). What a paper does not tell is missing.
    """
    theirs = paper_table(paper, table).rename(columns=_heading, level="column")
    theirs = theirs if printed is None else theirs.loc[list(printed)]
    facts = _printed_facts(paper, table, theirs.index).assign(**dict.fromkeys(COSTS.values(), float("nan")))
    if not frame.empty:
        ours, own_facts = _measured(frame, paper, table, here)
        theirs = theirs[[place for place in theirs.columns if place in ours.columns]]
        theirs = pd.concat([theirs, ours[theirs.columns]])
        facts = pd.concat([facts, own_facts])
    facts.columns = pd.MultiIndex.from_product([facts.columns, [""]])
    return pd.concat([facts, theirs.astype(float)], axis=1).reset_index(drop=True)


def below_printed(ours: pd.DataFrame, paper: str, table: str, here: Here, grader: str) -> pd.DataFrame:
    """:func:`below_paper` of a table that does not tell types of tasks apart, with our means as they are.

    Args:
        ours: a row a method, by its name; a column a metric, called as in the paper, and ``n``, test tasks;
            ``backbone`` where it is not that of ``here``.

    Returns:
        The columns of :func:`below_paper` but for the costs; no types of tasks stand above the metrics.
    """
    theirs = paper_table(paper, table).droplevel("task", axis="columns")
    facts = _printed_facts(paper, table, theirs.index)
    added = ours.rename_axis("row").reset_index().assign(source="here", data=here.data, grader=grader)
    added["backbone"] = ours.get("backbone", pd.Series(here.backbone, ours.index)).to_numpy()
    printed = pd.concat([facts, theirs], axis=1)
    both = pd.concat([printed, added], ignore_index=True).rename(columns=_heading)
    return both.rename_axis(columns=None)


def orders(table: pd.DataFrame, task: str, metric: str) -> str:
    """The paper's rows and ours in the order of one column, the best first, a line each.

    Args:
        table: of :func:`below_paper`; may lack the column.
    """
    if (task, metric) not in table:
        return f"{metric}, {task}: not played here"
    lines = []
    for source, rows in table.groupby("source", sort=False):
        best = rows.sort_values((task, metric), ascending=False, kind="stable")
        told = [f"{row} {value:.3g}" for row, value in zip(best["row"], best[task, metric], strict=True)]
        lines.append(f"{source}, {metric}, {task}, best first: {', '.join(told)}")
    return "\n".join(lines)


def _measured(frame: pd.DataFrame, paper: str, table: str, here: Here) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Our means in the unit of a paper's table, a row a method, and what the rows say of themselves."""
    frame = frame.assign(**{metric: 100 * frame[metric] for metric in _in_percent(paper, table)})
    means, _ = by_task(frame, METRICS[paper])
    if frame["type"].nunique() < len(TASK_TYPES):
        means = means.drop(columns="overall", level=0, errors="ignore")
    result = next(metric for metric in METRICS[paper] if metric.startswith("result"))
    scored = frame.dropna(subset=[result])
    rows = [f"{here.backbone} ({method})" if here.backbone else method for method in means.index]
    facts = pd.DataFrame({"source": "here", "row": rows}, index=means.index)
    facts["backbone"], facts["data"] = here.backbone or "none", here.data
    facts["n"] = scored.groupby("method")["task_id"].nunique().reindex(means.index, fill_value=0)
    facts["grader"] = f"pwagents, version {GRADER_VERSION}"
    spent = scored.groupby("method")[list(COSTS)].mean().round({"tokens": 0})
    return means, facts.join(spent.rename(columns=COSTS))


def _printed_facts(paper: str, table: str, rows: pd.Index) -> pd.DataFrame:
    """What a paper's rows say of themselves: columns ``source, row, backbone, data, n, grader``."""
    facts = pd.DataFrame({"source": f"{paper}, {table}", "row": rows}, index=rows)
    facts["backbone"] = [_backbone(paper, table, row) for row in rows]
    facts["data"], facts["n"] = f"the data of {paper}", _n_tasks(paper, table)
    return facts.assign(grader="the paper's")


def _backbone(paper: str, table: str, row: str) -> str:
    """The model behind a printed row: before its brackets (Orion, Table 1) or within them (PersonalWAB)."""
    before, _, within = row.removesuffix(")").partition(" (")
    if paper == "Persona2Web":  # of means over its models: none
        return before if within else ""
    if (paper, table) == ("Orion", "Table 1"):
        return "Qwen2.5-7B-Instruct" if row == "Orion (Ours)" else before
    return within if paper == "PersonalWAB" and within else _BACKBONES[paper, table]


def _n_tasks(paper: str, table: str) -> float:
    """Test tasks of a paper's table; Orion does not tell, and of judges Persona2Web does not."""
    if paper == "Persona2Web" and table != "meta-evaluation":
        return target(paper, "benchmark", "tasks", "number")
    known = paper == "PersonalWAB"
    return target(paper, "Table 2", "Instructions", "test") if known else float("nan")


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
