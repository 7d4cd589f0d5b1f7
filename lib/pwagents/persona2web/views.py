"""What notebook 09's tables show: means of scores by condition, where episodes are lost, what must hold."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pwagents.persona2web.study import CHANCE, OFFLINE, ORACLE
from pwagents.results.statistics import mean_interval, summarise
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
_ARCHITECTURES = {"indexed": "indexed DOM", "occam": "pruned tree"}
_SCHEMES = {"none": "no history", "on_demand": "on-demand", "pre_execution": "pre-execution"}
_MEMORIES = {"implicit": "", "recency": ", latest 20 records", "explicit": ", stated profile"}
NOTE = (
    "Found: 1 for three supporting records or more, 1/2 for one or two. Used: applied on the site (1/2: "
    "some of it, or another site first). P: mean of found and used. SR: P and Intent are 1, and the goal is "
    "reached. Means, 95% intervals clustered by user. Programmatic judge."
)


def told(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with what rows are called: ``agent, access`` and the architecture in words."""
    scheme = frame["scheme"].map(_SCHEMES) + frame["memory"].map(_MEMORIES)
    access = scheme.where(~frame["method"].isin([CHANCE, ORACLE]), "not used")
    words = frame["architecture"].map(_ARCHITECTURES)
    return frame.assign(agent=frame["method"], access=access, architecture=words)


def scores_table(frame: pd.DataFrame, by: Sequence[str]):
    """Means of all scores, one row a group of ``by``, and the same with 95% intervals clustered by user.

    Columns have two levels, as :func:`pwagents.results.tables.save_table` takes them. What a level or
    agent has no value of is missing; a score that no row has is left out.

    Returns:
        The means, and what readers see: intervals at the scores of the task as a whole alone.
    """
    known = [name for name in COLUMNS if frame[name].notna().any()]
    summary = summarise(frame, by=by, metrics=known)
    cells = format_intervals(summary)
    summary["cell"] = cells.where(summary["metric"].isin(WITH_INTERVAL), summary["mean"])
    tables = []
    for value in ("mean", "cell"):
        wide = summary.pivot(index=list(by), columns="metric", values=value)
        wide = wide.reindex(
            summary[list(by)].drop_duplicates().itertuples(index=False, name=None), columns=known
        )
        wide.index.names = by
        wide.columns = pd.MultiIndex.from_tuples([COLUMNS[name] for name in known])
        tables.append(wide)
    return tables


def main_table(level_2: pd.DataFrame):
    """Level 2 by architecture, agent and access, in both forms of :func:`scores_table`."""
    frame = told(level_2).sort_values("architecture", kind="stable")
    return scores_table(frame, ["architecture", "agent", "access"])


def levels_table(levels: pd.DataFrame):
    """All levels by agent, access and level, over both architectures, in both forms."""
    frame = told(levels[levels["memory"] == "implicit"])
    by = ["agent", "access", "level"]
    rows = frame[by].drop_duplicates().set_index(by[:2])
    order = {row: place for place, row in enumerate(dict.fromkeys(rows.index))}
    place = pd.Series([order[row] for row in zip(frame["agent"], frame["access"], strict=True)], frame.index)
    return scores_table(frame.assign(place=place).sort_values(["place", "level"], kind="stable"), by)


def memories_table(level_2: pd.DataFrame, variants: pd.DataFrame):
    """Level 2 by what the agent may know and by scheme, indexed DOM, in both forms."""
    here = level_2[level_2["architecture"] == "indexed"]
    frame = pd.concat([here, variants], ignore_index=True)
    known = frame["memory"].map({"recency": "latest 20 records", "explicit": "stated profile"})
    searched = "history, " + frame["retriever"].map({"minilm": "MiniLM", "bm25": "BM25"})
    known = known.fillna(searched).where(frame["scheme"] != "none", "nothing")
    known = known.where(~frame["method"].isin([CHANCE, ORACLE]), "not used")
    known = known + frame["asked"].map({True: ", and questions", False: ""})
    frame = frame.assign(agent=frame["method"], known=known, scheme=frame["scheme"].map(_SCHEMES))
    rank = frame["method"].map({CHANCE: 0, ORACLE: 2}).fillna(1)
    frame = frame.assign(rank=rank).sort_values("rank", kind="stable")
    return scores_table(frame, ["agent", "known", "scheme"])


def with_history(frame: pd.DataFrame) -> pd.DataFrame:
    """The offline agent's episodes with a plain history."""
    return frame[(frame["method"] == OFFLINE) & (frame["scheme"] != "none") & (frame["memory"] == "implicit")]


def row_name(frame: pd.DataFrame) -> pd.Series:
    """Agent and access of :func:`told` as one text."""
    alone = frame["agent"].isin([CHANCE, ORACLE])
    return frame["agent"].where(alone, frame["agent"] + " (" + frame["access"] + ")")


# --- where episodes are lost -----------------------------------------------------------------------------

LOST = ("not found", "found, not used", "used, not carried out", "success")


def funnel(level_2: pd.DataFrame) -> pd.DataFrame:
    """Shares of episodes by where they are lost: columns ``agent, architecture, access, lost, share``.

    An episode is lost at the first of: not everything was found in the history (three supporting records of
    each); not everything found was used; the goal was not reached with it.
    """
    frame = told(level_2)
    scores = frame.fillna({"website_retrieval": 1.0, "preference_retrieval": 1.0})
    found = (scores["website_retrieval"] == 1) & (scores["preference_retrieval"] == 1)
    used = (scores["website_utilization"] == 1) & (scores["preference_utilization"] == 1)
    where = np.select([~found, ~used, scores["success"] < 1], LOST[:3], LOST[3])
    by = ["agent", "architecture", "access"]
    counts = frame.assign(lost=where).groupby([*by, "lost"], sort=False).size().unstack(fill_value=0)
    shares = counts.reindex(columns=LOST, fill_value=0).div(counts.sum(axis=1), axis=0)
    return shares.rename_axis(columns="lost").stack().rename("share").reset_index()


# --- repeated runs, later --------------------------------------------------------------------------------


def deviations(repeated: pd.DataFrame) -> pd.DataFrame:
    """By condition, mean and standard deviation over runs of the main scores, and episodes with a fault."""
    frame, rows = told(repeated), []
    for (agent, access), part in frame.groupby(["agent", "access"], sort=False):
        runs = (
            part.groupby("sample")[["p_avg", "intent", "success"]].mean().round(9)
        )  # equal runs deviate by 0
        row = {("", "agent"): agent, ("", "access"): access}
        row |= {("", "runs"): len(runs), ("", "episodes with a fault"): part["fault"].mean()}
        for name, heading in (("p_avg", "P_avg"), ("intent", "Intent"), ("success", "SR")):
            row |= {(heading, "mean"): runs[name].mean(), (heading, "deviation"): runs[name].std()}
        calm = part["fault"] == 0
        row |= {("SR of episodes", "without a fault"): part.loc[calm, "success"].mean()}
        row |= {("SR of episodes", "with one"): part.loc[~calm, "success"].mean()}
        rows.append(row)
    table = pd.DataFrame(rows)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table


def drift_table(today: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """SR today, later, and the difference paired by task with its 95% interval clustered by user."""
    keys = ["agent", "access", "level"]
    here = today[today["architecture"].isin(later["architecture"])]
    both = pd.concat([told(here).assign(when="today"), told(later).assign(when="later")])
    rows = []
    for names, part in both.groupby(keys, sort=False):
        wide = part.pivot(index=["user_id", "task_id"], columns="when", values="success")
        if set(wide) == {"today", "later"}:
            users = wide.index.get_level_values("user_id")
            change = mean_interval(wide["later"] - wide["today"], users)
            means = {"SR today": wide["today"].mean(), "SR later": wide["later"].mean()}
            rows.append(dict(zip(keys, names, strict=True)) | means | change._asdict())
    return pd.DataFrame(rows).rename(columns={"mean": "difference"})


def drivers_table(frame: pd.DataFrame) -> pd.DataFrame:
    """By agent, level and driver: episodes, scores, and the share of trajectories equal in both drivers."""
    groups = frame.groupby(["method", "level", "driver"], sort=False)
    table = groups.agg(
        episodes=("task_id", "size"),
        steps=("steps", "mean"),
        SR=("success", "mean"),
        reached=("reached", "mean"),
    )
    same = groups["same"].mean()
    return (
        table.assign(**{"same trajectory": same})
        .reset_index()
        .rename(columns={"method": "agent", "reached": "goal reached"})
    )


# --- judges ----------------------------------------------------------------------------------------------

_VIEWS = {"reasoning_aware": "reasoning-aware", "action_wise": "action-wise", "outcome": "outcome"}


def judges_table(agreement: pd.DataFrame) -> pd.DataFrame:
    """The rows of :func:`pwagents.persona2web.meta_evaluation.meta_evaluation` to be read.

    The truth's own row is left out: it agrees with itself.
    """
    itself = (agreement["judge"] == "programmatic") & (agreement["view"] == "reasoning_aware")
    table = agreement[~itself].replace({"view": _VIEWS}).rename(columns={"judged": "episodes"})
    table = table.rename(columns={name: name.capitalize() for name in ("spearman", "pearson")})
    return table if table["unreadable"].any() else table.drop(columns="unreadable")


# --- what must hold --------------------------------------------------------------------------------------


def orders(levels: pd.DataFrame, variants: pd.DataFrame) -> pd.DataFrame:
    """The orders that were expected (the first mean above the second), and whether they were found.

    The oracle's and the levels' means are over both architectures, all others of the indexed DOM at level 2.
    """
    oracle = levels.loc[levels["method"] == ORACLE, "success"].mean()
    by_level = with_history(levels).groupby("level")["success"].mean()
    agent = pd.concat([levels[levels["level"] == 2], variants[~variants["asked"]]])
    agent = agent.query("method == @OFFLINE and architecture == 'indexed' and retriever == 'minilm'")
    means = agent.groupby(["scheme", "memory"])[["p_avg", "p_pref", "success"]].mean()
    floor = means.loc[("none", "implicit")]
    rows = [(f"SR, level {a}, above level {b}", by_level[a], by_level[b]) for a, b in ((0, 1), (1, 2))]
    for scheme in ("on_demand", "pre_execution"):
        here, latest, profile = (means.loc[scheme, name] for name in ("implicit", "recency", "explicit"))
        rows += [
            (f"P_avg, {_SCHEMES[scheme]}, above no history", here["p_avg"], floor["p_avg"]),
            (f"P_avg, {_SCHEMES[scheme]}, above the latest records", here["p_avg"], latest["p_avg"]),
            (f"SR, {_SCHEMES[scheme]}, above the latest records", here["success"], latest["success"]),
            (f"SR, oracle above {_SCHEMES[scheme]}", oracle, here["success"]),
            (f"P_pref, {_SCHEMES[scheme]}, profile above history", profile["p_pref"], here["p_pref"]),
            (f"SR, {_SCHEMES[scheme]}, profile above history", profile["success"], here["success"]),
        ]
    table = pd.DataFrame(rows, columns=["expected", "first", "second"])
    return table.assign(found=np.where(table["first"] > table["second"], "yes", "NO"))
