"""What notebook 09 shows."""

import io
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

from pwagents.persona2web.agents.chat import PAGES_KEPT
from pwagents.persona2web.agents.episode import Brief, Condition, WebEpisode, run_episode
from pwagents.persona2web.agents.recall import recall_of
from pwagents.persona2web.browser.chromium import ChromiumDriver, find_chromium
from pwagents.persona2web.browser.driver import Driver, HtmlDriver, Visit
from pwagents.persona2web.browser.page import observe
from pwagents.persona2web.experiment import CHANCE, OFFLINE, ORACLE, Study
from pwagents.persona2web.site.serve import serving
from pwagents.persona2web.site.web import LocalWeb
from pwagents.persona2web.world.domains import value_text
from pwagents.persona2web.world.history import NOW, History
from pwagents.persona2web.world.types import WEBSITE, AskStep, MemoryStep, WebTask, WebTrajectory
from pwagents.results.figures import plot_lines
from pwagents.results.papers import below_printed
from pwagents.results.statistics import mean_interval, summarise
from pwagents.results.style import PALETTE, escape_math, legend_above, styled
from pwagents.results.tables import Html, format_intervals

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
    """The rows of :func:`pwagents.persona2web.judge.meta.meta_evaluation` to be read.

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


_PREFERRED, _OTHER, _NOISE = "what the user prefers", "something else", "cancelled or changed"
_LOOKS = {_PREFERRED: (PALETTE[0], "o"), _OTHER: (PALETTE[2], "x"), _NOISE: (PALETTE[-1], "|")}


def year(history: History, task: WebTask) -> pd.DataFrame:
    """The records that tell about what a task leaves out: columns ``date, preference, value, shows``.

    Every record of the sub-domain tells about the website; those that show a masked facet about that.
    """
    wanted = {WEBSITE: task.goal.host} | task.goal.masked
    rows = []
    for event in history.events:
        shown = history.shown[event.event_id]
        if shown.domain != task.goal.domain:
            continue
        for name in (WEBSITE, *([shown.facet] if shown.facet in task.goal.masked else [])):
            value = event.website if name == WEBSITE else shown.value
            what = _NOISE if shown.noise else _PREFERRED if value == wanted[name] else _OTHER
            date = pd.to_datetime(event.timestamp, unit="ms").normalize()
            rows.append((date, f"{name}: {value_text(wanted[name])}", value_text(value), what))
    return pd.DataFrame(rows, columns=["date", "preference", "value", "shows"])


@styled
def plot_year(data: pd.DataFrame):
    """A line of the figure for each preference, a mark for each record; the last three weeks are shaded."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(data["preference"]))
    fig, ax = plt.subplots(figsize=(11, 1.6 + 0.9 * len(names)))
    for i, (what, (color, marker)) in enumerate(_LOOKS.items()):
        part = data[data["shows"] == what]
        places = part["preference"].map(names.index) + 0.22 * (i - 1)
        ax.plot(part["date"], places, marker, color=color, alpha=0.7, markersize=6, label=what)
    end = pd.to_datetime(NOW, unit="ms")
    ax.axvspan(end - pd.Timedelta(days=21), end, color="0.5", alpha=0.2, label="last three weeks")
    ax.set_yticks(range(len(names)), [escape_math(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    legend_above(fig)
    return fig


def evidence(history: History, task: WebTask, n: int) -> pd.DataFrame:
    """Some records of the task's sub-domain and what each shows, the latest first."""
    rows = []
    for event in reversed(history.events):
        shown = history.shown[event.event_id]
        if shown.domain == task.goal.domain and len(rows) < n:
            day = f"{pd.to_datetime(event.timestamp, unit='ms'):%Y-%m-%d}"
            what = f"{shown.facet}: {value_text(shown.value)}" if shown.facet else ""
            noise = "yes" if shown.noise else ""
            rows.append((day, event.type, event.object, event.website, what, noise))
    names = ["date", "type", "object", "website", "shows (truth)", "noise (truth)"]
    return pd.DataFrame(rows, columns=names)


def level_means(levels: pd.DataFrame) -> pd.DataFrame:
    """SR and share of goals reached by level, for each agent and access."""
    frame = told(levels[levels["memory"] == "implicit"])
    data = summarise(frame.assign(row=row_name(frame)), by=["row", "level"], metrics=["success", "reached"])
    return data.assign(panel=data["metric"].map({"success": "success rate (SR)", "reached": "goal reached"}))


def plot_levels(means: pd.DataFrame):
    """:func:`level_means`, a line each agent and access."""
    labels = {"xlabel": "level of ambiguity", "ylabel": "share of tasks (95% interval)"}
    figure = plot_lines(means, "level", "mean", hue="row", panel="panel", panel_size=(5.5, 4.2), **labels)
    for ax in figure.axes:
        ax.set(xticks=[0, 1, 2], ylim=(-0.04, 1.04))
    return figure


@styled
def plot_funnel(lost: pd.DataFrame):
    """Where episodes of the indexed DOM are lost, a bar each agent and access."""
    import matplotlib.pyplot as plt

    data = lost[lost["architecture"] == "indexed DOM"]
    shares = data.assign(row=row_name(data)).pivot(index="row", columns="lost", values="share")
    shares = shares.reindex(index=row_name(data).unique(), columns=data["lost"].unique())
    fig, ax = plt.subplots(figsize=(11, 1.4 + 0.5 * len(shares)))
    shares.plot.barh(ax=ax, stacked=True, legend=False, width=0.75, color=list(PALETTE[:4]))
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), xlabel="share of episodes", ylabel="")
    ax.grid(axis="y", visible=False)
    legend_above(fig)
    return fig


def dial_means(dialled: pd.DataFrame) -> pd.DataFrame:
    """P_avg, goal reached and SR by the value of each dial, and the values' places along its axis."""
    words = {"p_avg": "P_avg", "reached": "goal reached", "success": "SR"}
    data = summarise(dialled, by=["dial", "value"], metrics=list(words)).replace({"metric": words})
    data["dial"] = data["dial"].str.replace("_", " ")
    data["place"] = data.groupby("dial")["value"].rank(method="dense") - 1  # values lie unevenly
    return data


def plot_dials(means: pd.DataFrame):
    """:func:`dial_means`, a panel each dial."""
    labels = {"xlabel": "value of the dial", "ylabel": "mean (95% interval)"}
    look = {"columns": 2, "panel_size": (5.5, 3.4), **labels}
    figure = plot_lines(means, "place", "mean", hue="metric", panel="dial", **look)
    for ax, (_, part) in zip(figure.axes, means.groupby("dial", sort=False), strict=True):
        values = part["value"].unique()
        ax.set(ylim=(-0.04, 1.04), xticks=range(len(values)), xticklabels=[f"{v:g}" for v in values])
    return figure


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


def reading(
    runs: Mapping[str, Sequence[WebEpisode]], count: Callable[[Sequence[str]], Sequence[int]]
) -> pd.DataFrame:
    """What an episode has to read, on average: steps, looks, tokens of a page and of all pages sent.

    A model is sent the page of each step, and as many before it as its architecture keeps.

    Args:
        runs: by what the row is called.
        count: texts -> tokens of each.
    """
    rows = []
    for name, records in runs.items():
        steps = [step for record in records for step in record.trajectory.steps]
        texts = [[s.observation for s in r.trajectory.steps if s.kind == "web"] for r in records]
        pages = [count(each) for each in texts]
        kept = PAGES_KEPT[records[0].trajectory.architecture]
        sent = [sum(each[max(0, i + 1 - kept) : i + 1]) for each in pages for i in range(len(each))]
        n, read = len(records), [tokens for each in pages for tokens in each]
        looks = sum(step.kind == "memory" for step in steps)
        rows.append((name, len(steps) / n, looks / n, float(np.mean(read)), sum(sent) / n))
    names = ["episodes", "steps", "looks", "tokens of a page", "tokens of pages sent"]
    return pd.DataFrame(rows, columns=names)


def costs(frame: pd.DataFrame) -> pd.DataFrame:
    """What a language model's episodes took: tokens and US dollars an episode and in all."""
    spent = told(frame[~frame["method"].isin([OFFLINE, CHANCE, ORACLE])])
    groups = spent.groupby(["architecture", "agent", "access", "level"], sort=False)
    table = groups.agg(
        episodes=("task_id", "size"), steps=("steps", "mean"), tokens=("tokens", "mean"), usd=("usd", "mean")
    )
    table = table.assign(total=groups["usd"].sum())
    return table.rename(columns={"usd": "US dollars", "total": "US dollars in all"}).reset_index()


_SHOT = 520  # pixels that a screenshot is wide in the notebook
_BOX = (
    "background:#f6f8fa;color:#1f2328;border:1px solid #d0d7de;border-radius:6px;padding:6px 8px;"
    "white-space:pre-wrap;overflow-wrap:anywhere"
)


def recorded(study: Study, task: WebTask, folder: Path) -> tuple[WebTrajectory, Path | None]:
    """The offline agent's episode of a task at level 2 in Chromium, with screenshots and trace in ``folder``.

    Returns:
        The episode, and the folder; None for it where no Chromium is found, and none was used.
    """
    world, condition = study.world, Condition("indexed", "on_demand")
    recall = recall_of(world.histories[task.user_id], "implicit", condition.retrieval, study.embedder)
    brief, agent = Brief(task.texts[2], recall), study.agent(OFFLINE, condition, world)(task)

    def play(driver: Driver) -> WebTrajectory:
        return run_episode(task, 2, agent, brief, world.web, driver, "indexed", "on_demand")

    if find_chromium() is None:
        return play(HtmlDriver(world.web)), None
    with serving(world.web) as port, ChromiumDriver(port, record=folder) as driver:
        return play(driver), folder / "000"  # the first visit's


def both_observations(
    web: LocalWeb, driver: Driver, task: WebTask, steps: Sequence, until: int
) -> dict[str, str]:
    """A page of an episode in both forms: that before the web step number ``until``, reached again."""
    session = web.begin(task.now)
    try:
        driver.begin(session)
        visit = Visit(driver, "indexed")
        for step in [step for step in steps if step.kind == "web"][:until]:
            for action in step.action.splitlines():
                visit.act(action)
        return {form: observe(driver.page, form) for form in ("indexed", "occam")}
    finally:
        web.end(session)


def side_by_side(texts: dict[str, str], rows: int = 26) -> Html:
    """Texts beside each other, the first rows of each."""
    cells = []
    for name, text in texts.items():
        lines = text.splitlines()
        more = f"\n({len(lines) - rows} more rows)" if len(lines) > rows else ""
        cells.append(
            f'<div style="flex:1 1 24em;min-width:0"><b>{escape(name)}</b> ({len(lines)} rows)'
            f'<pre style="{_BOX};font-size:11px">{escape(chr(10).join(lines[:rows]) + more)}</pre></div>'
        )
    return Html(f'<div style="display:flex;flex-wrap:wrap;gap:1em">{"".join(cells)}</div>')


def episode_page(task: WebTask, trajectory: WebTrajectory, pictures: Path | None) -> Html:
    """An episode step by step, each web step with the screenshot of the page it was taken on.

    Args:
        pictures: the folder with the screenshots of the visit; None: no screenshots.
    """
    parts, picture = [f"<p><b>Task</b> {escape(task.texts[trajectory.level])}</p>"], 0
    for number, step in enumerate(trajectory.steps, 1):
        image = ""
        if isinstance(step, MemoryStep):
            found = f"{len(step.retrieved)} records found" if step.retrieved else "nothing found"
            said = f"looks into the history: {step.query}\n{found}. {step.answer}"
        elif isinstance(step, AskStep):
            said = f"asks the user: {step.question}\n{step.answer}"
        else:
            actions = step.action.splitlines()
            said = f"{step.reason}\n{step.action}" + (f"\nfailed: {step.error}" if step.error else "")
            image = _picture(pictures / f"{picture:03d}.png", number) if pictures else ""
            picture += sum(not action.startswith("stop") for action in actions)
        box = f'<div style="{_BOX}"><b>{number}</b> {escape(said)}</div>'
        parts.append(f'<div style="flex:1 1 20em;max-width:{_SHOT}px">{box}{image}</div>')
    answer = f"<p><b>Answer</b> {escape(trajectory.answer or 'none')}</p>"
    return Html(
        f'{parts[0]}<div style="display:flex;flex-wrap:wrap;gap:1em">{"".join(parts[1:])}</div>{answer}'
    )


def _picture(path: Path, number: int) -> str:
    """A screenshot, made small."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").resize((_SHOT, round(image.height * _SHOT / image.width)))
    small = small.crop((0, 0, _SHOT, min(small.height, 2 * _SHOT)))
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    data = b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="The page at step {number}" style="max-width:100%">'
