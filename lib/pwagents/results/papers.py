"""The numbers printed in the papers, a YAML file each in ``papers``, and our rows below them.

Values stand as printed, in the unit of ``unit``: PersonalWAB prints accuracies as shares (0 to 1), Orion in
percent. Our numbers stand in rows of their own below the printed ones, which say what they are.
"""

from functools import cache
from itertools import product

import pandas as pd

from pwagents.results.metrics import GRADER_VERSION
from pwagents.results.statistics import SCORED, by_task
from pwagents.schema import TASK_TYPES
from pwagents.words import read_yaml

# What each paper grades by: our metric -> its heading. PersonalWAB scores the choice of function once a task
# and takes the best attempt.
METRICS = {
    "PersonalWAB": {
        "function_accuracy": "function accuracy",
        "result_official": "result accuracy",
        "steps": "steps",
    },
}
COSTS = {"tokens": "tokens a task", "usd": "USD a task"}  # of the agent's own model: column -> its heading
_OF_ROW = ("ours", "backbone", "n", "command", "tolerance")
_FACTS = ["source", "row", "backbone", "data", "n", "grader"]


@cache
def load_targets() -> pd.DataFrame:
    """Return all printed cells, one a row; the frame is not to be changed.

    Returns:
        ``paper, table, row, column, task``; ``value`` (a float, or text) and its ``unit``; ``source``, where
        it was read; of its row ``backbone``, ``n`` (test tasks, if printed), ``ours`` (the method's name with
        us), ``command`` (what makes it here) and ``tolerance``.
    """
    cells = []
    for name in ("personalwab",):
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
                for (task, column), value, unit, source in zip(
                    places, row["expected"], units, sources, strict=True
                ):
                    if value is not None:
                        value = value if unit == "text" else float(value)
                        cell = {"task": task, "column": column, "value": value, "unit": unit}
                        cells.append(own | cell | {"source": source})
    return pd.DataFrame(cells).astype({"value": object})


def below_paper(frame: pd.DataFrame, paper: str, table: str, backbone: str, data: str) -> pd.DataFrame:
    """Put rows of ours below a paper's table as printed, in the table's unit.

    There is an "overall" of ours only if all three types of tasks were played: a mean over fewer is not
    the paper's.

    Args:
        frame: one row an episode of the methods to show.
        backbone: the model behind them; empty for none.

    Returns:
        ``source`` ("here", or paper and table), ``row`` (as printed, or backbone and method of ours),
        ``backbone, data, n`` (test tasks), ``grader`` and :data:`COSTS`; then the columns of
        :func:`pwagents.results.statistics.by_task`. What a paper does not print is missing.
    """
    cells = load_targets().query("paper == @paper and table == @table")
    wide = cells.set_index(["row", "task", "column"])["value"].unstack(["task", "column"])
    theirs = wide.reindex(index=pd.Index(cells["row"].unique(), name="row")).infer_objects()
    theirs = theirs.rename(columns=_heading, level="column")
    facts = cells.drop_duplicates("row").set_index("row", drop=False).rename_axis(None)
    facts = facts.assign(source=facts["paper"] + ", " + facts["table"], data="the data of " + facts["paper"])
    facts = facts.assign(grader="the paper's").astype({"n": float})[_FACTS]
    facts = facts.assign(**dict.fromkeys(COSTS.values(), float("nan")))

    means, _ = by_task(frame, METRICS[paper])
    if frame["type"].nunique() < len(TASK_TYPES):
        means = means.drop(columns="overall", level=0, errors="ignore")
    scored = frame.dropna(subset=["result_official"]).groupby("method")
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


def _heading(column: str) -> str:
    return str(column).replace("_", " ")
