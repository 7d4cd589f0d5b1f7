"""Tables of notebook 09: means of scores by condition, the paper's rows above ours."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pwagents.results.papers import below_printed
from pwagents.results.statistics import mean_interval, share_interval, summarise
from pwagents.results.tables import format_intervals

# Our scores -> their headings, and the headings over these.
COLUMNS = {
    "website_retrieval": ("website", "found"),
    "website_utilization": ("website", "used"),
    "p_web": ("website", "P_web"),
    "preference_retrieval": ("preferences", "found"),
    "preference_utilization": ("preferences", "used"),
    "p_pref": ("preferences", "P_pref"),
    "p_avg": ("task", "P_avg"),
    "intent": ("task", "Intent"),
    "success": ("task", "SR"),
    "reached": ("task", "goal reached"),
}
WITH_INTERVAL = ("p_avg", "intent", "success", "reached")
NOTE = (
    "Found: 1 for three supporting records or more, 1/2 for one or two. Used: applied on the site (1/2: "
    "some of it, or another site first). P: mean of found and used. SR: P and Intent are 1, and the goal is "
    "reached. Means, 95% intervals clustered by user. Programmatic judge."
)
LOST = ("not found", "found, not used", "used, not carried out", "success")
_ARCHITECTURES = {"indexed": "indexed DOM", "occam": "pruned tree"}
_SCHEMES = {"none": "no history", "on_demand": "on-demand", "pre_execution": "pre-execution"}
_MEMORIES = {"implicit": "", "recency": ", latest 20 records", "explicit": ", stated profile"}
_PRINTED = {"p_avg": "P_avg", "p_pref": "P_pref", "intent": "Intent", "success": "SR"}
_HERE = ("none (trained reader, rules)", "embedded web")  # backbone and data


def name_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Add what rows are called: ``agent``, ``access`` to the history, and ``row``, both in one."""
    blind = frame["method"].eq("oracle")
    access = (frame["scheme"].map(_SCHEMES) + frame["memory"].map(_MEMORIES)).mask(blind, "not used")
    access += frame["retriever"].map({"bm25": ", BM25"}).fillna("")
    row = (frame["method"] + " (" + access + ")").mask(blind, frame["method"])
    words = frame["architecture"].map(_ARCHITECTURES)
    return frame.assign(agent=frame["method"], access=access, row=row, architecture=words)


def scores_table(frame: pd.DataFrame, by: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tabulate means of all scores, one row a group of ``by``, and the same with 95% intervals.

    Columns have two levels, as :func:`pwagents.results.tables.save_table` takes them. What a level or
    agent has no value of is missing; a score that no row has is left out.

    Returns:
        The means, and what readers see: intervals at the scores of the task as a whole alone.
    """
    frame = name_rows(frame)
    known = [name for name in COLUMNS if frame[name].notna().any()]
    summary = summarise(frame, by=by, metrics=known)
    cells = format_intervals(summary)
    summary["cell"] = cells.where(summary["metric"].isin(WITH_INTERVAL), summary["mean"])
    tables = []
    for value in ("mean", "cell"):
        wide = summary.pivot(index=list(by), columns="metric", values=value)
        order = summary[list(by)].drop_duplicates().itertuples(index=False, name=None)
        wide = wide.reindex(order, columns=known).rename_axis(index=by)
        wide.columns = pd.MultiIndex.from_tuples([COLUMNS[name] for name in known])
        tables.append(wide)
    return tuple(tables)


def with_paper(
    frame: pd.DataFrame, table: str, metrics: Sequence[str], keep_rows: bool = False
) -> pd.DataFrame:
    """Return the paper's rows as printed, and means of ours in rows of their own.

    Args:
        table: what the paper's numbers are about (:func:`pwagents.results.papers.paper_table`).
        metrics: of ours; under the paper's names, "mean" before them if its columns have it.
        keep_rows: whether rows have their names already, in the column ``row``.
    """
    groups = (frame if keep_rows else name_rows(frame)).groupby("row", sort=False)
    before = "mean " if table == "levels" else ""
    ours = groups[list(metrics)].mean().rename(columns=lambda name: before + _PRINTED[name])
    backbone = groups["model"].first().replace("none", _HERE[0])
    ours = ours.assign(n=groups["task_id"].nunique(), backbone=backbone)
    return below_printed(ours, "Persona2Web", table, *_HERE, "programmatic judge")


def main_table(level_2: pd.DataFrame) -> pd.DataFrame:
    """Return level 2 with all backbones and both architectures: the paper's rows, then ours."""
    parts = []
    for architecture, table in (("indexed", "Browser-Use, level 2"), ("occam", "AgentOccam, level 2")):
        rows = name_rows(level_2[level_2["architecture"] == architecture])
        rows["row"] += ", " + rows["architecture"]
        parts.append(with_paper(rows, table, ("p_avg", "intent", "success"), keep_rows=True))
    both = pd.concat(parts, ignore_index=True)
    error = (both["SR"] * (1 - both["SR"]) / both["n"]).where(both["source"] == "here") ** 0.5
    facts = ["source", "row", "backbone", "data", "n", "grader"]
    return both[[*facts, "P avg", "Intent", "SR"]].assign(**{"SE of SR": error})


def lost_table(level_2: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of episodes by where they are lost, a row each agent and access.

    An episode is lost at the first of: not everything was found in the history (three supporting records of
    each); not everything found was used; the goal was not reached with it.
    """
    frame = name_rows(level_2).fillna({"website_retrieval": 1.0, "preference_retrieval": 1.0})
    found = (frame["website_retrieval"] == 1) & (frame["preference_retrieval"] == 1)
    used = (frame["website_utilization"] == 1) & (frame["preference_utilization"] == 1)
    where = np.select([~found, ~used, frame["success"] < 1], LOST[:3], LOST[3])
    counts = pd.crosstab(frame["row"], where, normalize="index")
    return counts.reindex(index=frame["row"].unique(), columns=LOST, fill_value=0.0).rename_axis(columns=None)


def stability_table(today: pd.DataFrame, repeated: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return SR over repeated runs with failing pages, and its change on the web of three months later.

    Columns: ``row, level, condition, SR, deviation`` (over runs), ``difference`` (later minus today, paired
    by task) with ``low`` and ``high``, clustered by user.
    """
    rows = []
    for row, part in name_rows(repeated).groupby("row", sort=False):
        runs = part.groupby("sample")["success"].mean().round(9)  # equal runs deviate by 0
        condition = f"{len(runs)} runs, {part['faults'].iloc[0]:.0%} of requests fail"
        rows.append((row, 2, condition, runs.mean(), runs.std(), np.nan, np.nan, np.nan))
    both = pd.concat([name_rows(today).assign(when="today"), name_rows(later).assign(when="later")])
    for (row, level), part in both.groupby(["row", "level"], sort=False):
        wide = part.pivot(index=["user_id", "task_id"], columns="when", values="success")
        if set(wide) == {"today", "later"}:
            change = mean_interval(wide["later"] - wide["today"], wide.index.get_level_values("user_id"))
            rows.append((row, level, "three months later", wide["later"].mean(), np.nan, *change))
    columns = ["row", "level", "condition", "SR", "deviation", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def judges_table(agreement: pd.DataFrame) -> pd.DataFrame:
    """Return rows of agreement to be read."""
    views = agreement["view"].str.replace("_", "-")  # as the paper calls them
    table = agreement.assign(view=views).rename(columns={"judged": "n"})
    table = table.rename(columns={name: name.capitalize() for name in ("spearman", "pearson")})
    facts = ["episodes", "reference", "judge", "view", "measure"]
    table = table[[*facts, *table.columns.drop(facts)]]
    return table if table["unreadable"].any() else table.drop(columns="unreadable")


def judges_with_paper(agreement: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's meta-evaluation (against people), and ours (against the truth) below it."""
    table = judges_table(agreement).query("episodes == 'scripted'")
    rows, columns = table["judge"] + ", " + table["view"], {}
    for measure in ("preference", "intent"):
        part = table.assign(row=rows)[table["measure"] == measure].set_index("row")
        columns[f"{measure.capitalize()}, correlation"] = part["Spearman"]
        columns[f"{measure.capitalize()}, accuracy"] = part["accuracy"]
    ours, data = pd.DataFrame(columns).assign(n=part["n"]), "embedded web, scripted episodes"
    return below_printed(ours, "Persona2Web", "meta-evaluation", "none", data, "programmatic judge")


def clarification_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means by data and method: n, website, values, joint with its interval, what was retrieved."""
    table = []
    for (data, method), part in rows.groupby(["data", "method"], sort=False):
        scored = part.dropna(subset=["joint"])
        mean, low, high = share_interval(scored["joint"], scored["user_id"])
        means = scored[["website", "values", "p_web_found", "p_pref_found"]].mean()
        shares = means.rename({"p_web_found": "website retrieved", "p_pref_found": "values retrieved"})
        facts = {"data": data, "method": method, "n": len(scored), "joint": mean, "low": low, "high": high}
        table.append(facts | shares.to_dict())
    return pd.DataFrame(table)
