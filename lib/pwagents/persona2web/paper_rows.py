"""The paper's rows as printed, and ours below them, in rows of their own."""

from collections.abc import Sequence

import pandas as pd

from pwagents.persona2web.study import OFFLINE
from pwagents.persona2web.views import judges_table, row_name, told, with_history
from pwagents.results.papers import below_printed

PAPER = "Persona2Web"
HERE = ("none (trained reader, rules)", "embedded web")  # backbone and data
GRADER = "programmatic judge"
_PRINTED = {"p_avg": "P_avg", "p_pref": "P_pref", "intent": "Intent", "success": "SR"}


def main_with_paper(level_2: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows at level 2, and ours in rows of their own, with the standard error of our SR."""
    parts = []
    for architecture, table in (("indexed", "Browser-Use, level 2"), ("occam", "AgentOccam, level 2")):
        frame = told(level_2[level_2["architecture"] == architecture])
        rows = row_name(frame) + ", " + frame["architecture"]
        ours = _means(frame.assign(row=rows), ("p_avg", "intent", "success"))
        parts.append(below_printed(ours, PAPER, table, *HERE, GRADER))
    both = pd.concat(parts, ignore_index=True)
    error = (both["SR"] * (1 - both["SR"]) / both["n"]).where(both["source"] == "here") ** 0.5
    facts = ["source", "row", "backbone", "data", "n", "grader"]
    return both[[*facts, "P avg", "Intent", "SR"]].assign(**{"SE of SR": error})


def levels_with_paper(levels: pd.DataFrame) -> pd.DataFrame:
    """The paper's means by level, and the offline agent's over both architectures and both schemes."""
    frame = with_history(levels)
    rows = "offline agent, level " + frame["level"].astype(str)
    ours = _means(frame.assign(row=rows), ("success", "p_pref"))
    named = ours.rename(columns={"SR": "mean SR", "P_pref": "mean P_pref"})
    return below_printed(named, PAPER, "levels", *HERE, GRADER)


def profile_with_paper(levels: pd.DataFrame, variants: pd.DataFrame) -> pd.DataFrame:
    """The paper's history against profile, and ours under its setting (indexed DOM, on-demand, level 2)."""
    both = pd.concat([levels[levels["level"] == 2], variants[variants["memory"] == "explicit"]])
    frame = both[(both["scheme"] == "on_demand") & (both["architecture"] == "indexed")]
    frame = frame[(frame["method"] == OFFLINE) & frame["memory"].isin(["implicit", "explicit"])]
    words = {"implicit": "offline agent, implicit history", "explicit": "offline agent, stated profile"}
    ours = _means(frame.assign(row=frame["memory"].map(words)), ("p_pref", "success"))
    return below_printed(ours, PAPER, "history against profile", *HERE, GRADER)


def judges_with_paper(agreement: pd.DataFrame) -> pd.DataFrame:
    """The paper's meta-evaluation (against humans), and ours (against the truth) in rows of their own."""
    table = judges_table(agreement)
    rows = table["judge"] + ", " + table["view"]
    columns: dict[str, pd.Series] = {}
    for measure in ("preference", "intent"):
        part = table.assign(row=rows)[table["measure"] == measure].set_index("row")
        columns[f"{measure.capitalize()}, correlation"] = part["Spearman"]
        columns[f"{measure.capitalize()}, accuracy"] = part["accuracy"]
    ours, data = pd.DataFrame(columns).assign(n=part["episodes"]), "embedded web, scripted episodes"
    return below_printed(ours, PAPER, "meta-evaluation", "none", data, GRADER)


def _means(frame: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Means by ``row`` under the paper's names, ``n`` (tasks), and the backbone."""
    groups = frame.groupby("row", sort=False)
    means = groups[list(metrics)].mean().rename(columns=_PRINTED)
    backbone = groups["model"].first().replace("none", HERE[0])
    return means.assign(n=groups["task_id"].nunique(), backbone=backbone)
