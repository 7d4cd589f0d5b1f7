"""The numbers printed in the papers (``papers/*.yaml``), and our rows below them.

``table`` is the paper's own numbering (for Persona2Web, of which no table is at hand, what the numbers are
about), ``task`` search, recommend, review, overall, or empty. Values stand as printed: PersonalWAB prints
accuracies as shares (0 to 1), Orion in percent. Our numbers stand in rows of their own below the printed
ones.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import pandas as pd

from pwagents.orion.baselines import BASELINES
from pwagents.results.statistics import SCORED, by_task
from pwagents.schema import TASK_TYPES
from pwagents.shop.score import GRADER_VERSION
from pwagents.words import read_yaml

# What each paper grades by: our metric -> its heading. PersonalWAB scores the choice of function once a task
# and takes the best attempt; Orion scores each step, and what the user is left with.
GRADED = {
    "PersonalWAB": {
        "function_accuracy": "function accuracy",
        "result_official": "result accuracy",
        "steps": "steps",
    },
    "Orion": {"result_final": "result accuracy", "step_accuracy": "function accuracy", "steps": "steps"},
}
NOT_RUN = "not run"  # the source of a row that says what it needs
# Formats of Orion's columns, which are in percent.
IN_PERCENT = dict.fromkeys(GRADED["Orion"].values(), ".1f")
# What the agent's own model read and wrote, on average, and its price (0 but for an endpoint's), without
# profiles, their updates and the user: column -> its heading.
COSTS = {"tokens": "tokens a task", "usd": "USD a task"}
_OF_ROW = ("ours", "backbone", "n", "command", "tolerance")
_FACTS = ["source", "row", "backbone", "data", "n", "grader"]


@cache
def load_targets() -> pd.DataFrame:
    """Load all printed cells, once; the frame is not to be changed.

    Returns:
        ``paper, table, row, column, task``; ``value`` (a float, or text) and its ``unit``; ``source``, where
        it was read; of its row ``backbone``, ``n`` (test tasks, if printed), ``ours`` (the method's name with
        us), ``command`` (what makes it here) and ``tolerance`` (of `make check`).
    """
    cells = []
    for name in ("personalwab", "orion", "persona2web"):
        paper = read_yaml("pwagents.results", f"papers/{name}.yaml")
        for title, table in paper["tables"].items():
            for row in table["rows"]:
                # What paper, table and row say: the nearest holds.
                row = {"ours": row["row"], "backbone": "", "n": None, "tasks": [""]} | paper | table | row
                own = {each: row[each] for each in ("paper", "row", *_OF_ROW)} | {"table": title}
                places = list(product(row["tasks"], row["columns"]))
                # Unit and source stand once for a row, or a column each.
                units, sources = (
                    [row[each]] * len(places) if isinstance(row[each], str) else row[each] * len(row["tasks"])
                    for each in ("unit", "source")
                )
                about = zip(places, row["expected"], units, sources, strict=True)
                for (task, column), value, unit, source in about:
                    if value is not None:
                        value = value if unit == "text" else float(value)
                        cell = {"task": task, "column": column, "value": value, "unit": unit}
                        cells.append(own | cell | {"source": source})
    return pd.DataFrame(cells).astype({"value": object})


def paper_table(paper: str, table: str) -> pd.DataFrame:
    """Return a whole table as printed: index ``row``, columns (task, column).

    Raises:
        KeyError: there is no such table.
    """
    cells = _cells(paper, table)
    wide = cells.set_index(["row", "task", "column"])["value"].unstack(["task", "column"])
    return wide.reindex(index=pd.Index(cells["row"].unique(), name="row")).infer_objects()


def below_paper(
    frame: pd.DataFrame,
    paper: str,
    table: str,
    backbone: str,
    data: str,
    printed: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Put rows of ours below a paper's table as printed, in the table's unit.

    There is an "overall" of ours only if all three types of tasks were played: a mean over fewer is not the
    paper's. In it each task has the same weight; in Orion's tables, each type. If anything was played, the
    columns of other types are left out.

    Args:
        frame: the episodes of the methods to show, a row each; may be empty.
        backbone: the model behind them; empty for none.
        data: what they were played on.
        printed: the paper's rows to show; None: all.

    Returns:
        What rows say of themselves (``source`` is "here", or paper and table; ``n`` counts test tasks) with
        :data:`COSTS`; then the columns of :func:`pwagents.results.statistics.by_task`. What a paper does not
        print is missing.
    """
    cells = _cells(paper, table)
    theirs = paper_table(paper, table).rename(columns=_heading, level="column")
    facts = _printed_facts(cells).assign(**dict.fromkeys(COSTS.values(), float("nan")))
    if printed is not None:
        theirs, facts = theirs.loc[list(printed)], facts.loc[list(printed)]
    if not frame.empty:
        # By what this paper grades by, in its unit.
        percent = set(cells.loc[cells["unit"] == "percent", "column"].map(_heading))
        in_unit = {m: frame[m] * (100 if name in percent else 1) for m, name in GRADED[paper].items()}
        means, _ = by_task(frame.assign(**in_unit), GRADED[paper])
        if frame["type"].nunique() < len(TASK_TYPES):
            means = means.drop(columns="overall", level=0, errors="ignore")
        elif paper == "Orion":  # each type weighs the same: 62.5, 19.8, 50.5 (Table 1) make 44.3 (Table 2)
            for heading in GRADED[paper].values():
                means["overall", heading] = means[[(each, heading) for each in TASK_TYPES]].mean(
                    axis=1, skipna=False
                )
        # What our rows say of themselves.
        result = next(metric for metric in GRADED[paper] if metric.startswith("result"))
        scored = frame.dropna(subset=[result]).groupby("method")
        rows = [f"{backbone} ({method})" if backbone else method for method in means.index]
        ours = pd.DataFrame({"source": "here", "row": rows}, index=means.index)
        ours = ours.assign(backbone=backbone or "none", data=data)
        ours["n"] = scored["task_id"].nunique().reindex(means.index, fill_value=0)
        ours["grader"] = f"pwagents, version {GRADER_VERSION}"
        ours = ours.join(scored[list(COSTS)].mean().round({"tokens": 0}).rename(columns=COSTS))
        columns = [place for place in theirs if place in means]
        in_part = [place for place in means if place[1] == SCORED]
        theirs = pd.concat([theirs[columns].astype(float), means[columns + in_part]])
        facts = pd.concat([facts, ours])
    facts.columns = pd.MultiIndex.from_product([facts.columns, [""]])
    return pd.concat([facts, theirs], axis=1).reset_index(drop=True)


def with_prompted(trained: pd.DataFrame, played: pd.DataFrame, data: str, preset: str) -> pd.DataFrame:
    """Put the prompting rows into Orion's Table 1, also those that were not run.

    Args:
        trained: the other rows, of :func:`below_paper`.
        played: one row an episode of :data:`BASELINES`, with its ``model``; may be empty.
        preset: whose ``data`` these are.

    Returns:
        The paper's rows, ours, and a row for each prompting one of the paper whose model did not play here
        (``source`` :data:`NOT_RUN`), with what it ``needs``.
    """
    rows = _cells("Orion", "Table 1").drop_duplicates("row")
    printed = rows[rows["ours"].isin(BASELINES)]
    theirs = below_paper(played.head(0), "Orion", "Table 1", "", data, printed["row"])
    ours = [
        below_paper(own, "Orion", "Table 1", model, data, [])
        for model, own in played.groupby("model", sort=False)
    ]
    is_ours = trained["source", ""] == "here"
    # The model that a printed row's command names; a maker before the name of ours does not matter.
    names = printed["command"].str.extract(r"openai:([^\],}]+)")[0].str.casefold()
    models = played["model"].str.rpartition("/")[2].str.casefold() if len(played) else ()
    absent = printed[~names.isin(models)]
    commands = absent["command"].str.replace("preset paper", f"preset {preset}")  # on these data
    needs = "the model, and its key in OPENAI_API_KEY: " + commands
    missing = absent[["row", "backbone"]].assign(source=NOT_RUN, data=data, needs=needs)
    missing.columns = pd.MultiIndex.from_product([missing.columns, [""]])
    table = pd.concat([theirs, trained[~is_ours], *ours, trained[is_ours], missing], ignore_index=True)
    in_part = [place for place in table if place[1] == SCORED and place not in trained]
    return table[[*trained, *in_part, ("needs", "")]]


def below_printed(
    ours: pd.DataFrame, paper: str, table: str, backbone: str, data: str, grader: str
) -> pd.DataFrame:
    """Put means of ours, as they are, below a table that has no types of tasks.

    Args:
        ours: a row a method, by its name; a column a metric, called as in the paper, and ``n``, test tasks;
            ``backbone`` if it is another one.

    Returns:
        The columns of :func:`below_paper` but for the costs; no types of tasks stand above the metrics.
    """
    theirs = paper_table(paper, table).droplevel("task", axis="columns")
    added = ours.rename_axis("row").reset_index().assign(source="here", data=data, grader=grader)
    added["backbone"] = ours.get("backbone", pd.Series(backbone, ours.index)).to_numpy()
    printed = pd.concat([_printed_facts(_cells(paper, table)), theirs], axis=1)
    both = pd.concat([printed, added], ignore_index=True).rename(columns=_heading)
    return both.rename_axis(columns=None)


def _printed_facts(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what a paper's rows say of themselves, by row."""
    rows = cells.drop_duplicates("row").set_index("row", drop=False).rename_axis(None)
    rows = rows.assign(source=rows["paper"] + ", " + rows["table"], data="the data of " + rows["paper"])
    return rows.assign(grader="the paper's").astype({"n": float})[_FACTS]


def _cells(paper: str, table: str) -> pd.DataFrame:
    cells = load_targets().query("paper == @paper and table == @table")
    if cells.empty:
        raise KeyError(f"no {table} of {paper} in results/papers")
    return cells


def _heading(column: Any) -> str:
    return str(column).replace("_", " ")
