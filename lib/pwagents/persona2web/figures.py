"""Notebook 09's figures, each with the numbers that it plots."""

import pandas as pd

from pwagents.persona2web.domains import value_text
from pwagents.persona2web.history import NOW, History
from pwagents.persona2web.judge import WEBSITE
from pwagents.persona2web.types import WebTask
from pwagents.persona2web.views import row_name, told
from pwagents.results.figures import plot_lines
from pwagents.results.statistics import summarise
from pwagents.results.style import PALETTE, escape_math, legend_above, styled

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
