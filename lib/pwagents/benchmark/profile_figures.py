"""Figures of profiles: who users are and how they shop (PersonalWAB, Figures 3 and 4(a)), what lies in their
interests, what profiles are worth (its Figure 5), and how ambiguous instructions are."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.evaluation.figures import PALETTE, escape_math, legend_above, plot_lines, use_style
from pwagents.profiles.consistency import chance
from pwagents.profiles.llm import options
from pwagents.schema import TASK_TYPES, UserProfile

PEOPLE = ("Gender", "Age", "Occupation")  # Figure 3
TENDENCIES = ("Price Sensitivity", "Diversity Preference", "Interaction Complexity")  # Figure 4(a)
_RARE = 0.01  # a value of fewer users than this share has no bar of its own
_MARKERS = "osD^vPX*<>"  # a second cue beside colour
_FEW = 8  # a field of fewer options shows all of them, in their order


def profile_counts(profiles: Mapping[str, UserProfile], fields: Sequence[str]) -> pd.DataFrame:
    """How many users have which value: ``field, value, users, share``.

    Fields of a few options (ages, levels) show each of them, also those that nobody has, in their order, then
    what strays from them; other fields go by number of users. Values of fewer than 1% of the users, options
    and strays alike, are counted together as "rarer (n kinds)".

    Args:
        profiles: user_id -> profile.
        fields: names as published, such as :data:`PEOPLE`.
    """
    rows = []
    for field in fields:
        found = Counter(profile.model_dump(by_alias=True)[field] for profile in profiles.values())
        fixed = _fixed_order(field)
        others = sorted(found.keys() - set(fixed), key=lambda value: (-found[value], value))
        shown = [*fixed, *(value for value in others if found[value] >= _RARE * len(profiles))]
        rows += [(field, value, found[value]) for value in shown]
        if rare := [value for value in others if value not in shown]:
            kinds = f"rarer ({len(rare)} kind{'s' * (len(rare) > 1)})"
            rows.append((field, kinds, sum(found[value] for value in rare)))
    counts = pd.DataFrame(rows, columns=["field", "value", "users"])
    return counts.assign(share=counts["users"] / len(profiles))


def counted(profiles: Mapping[str, UserProfile]) -> dict[str, tuple[Callable, pd.DataFrame]]:
    """Who users are ("people") and how they shop ("tendencies"): what draws each figure, and its numbers.

    A field of "people" that says "Other" of everybody is left out; without any, so is the figure.
    """
    told = [field for field in PEOPLE if _tells(profiles, field)]
    figures = {"people": (plot_people, profile_counts(profiles, told))} if told else {}
    return figures | {"tendencies": (plot_tendencies, profile_counts(profiles, TENDENCIES))}


def _tells(profiles: Mapping[str, UserProfile], field: str) -> bool:
    return any(profile.model_dump(by_alias=True)[field] != "Other" for profile in profiles.values())


def plot_people(counts: pd.DataFrame):
    """Who the users are (Figure 3): bars of users, one panel a field.

    Args:
        counts: from :func:`profile_counts`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figure_files.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    fields = list(counts["field"].unique())
    most = counts.groupby("field").size().max()
    fig, axes = plt.subplots(1, len(fields), figsize=(4.6 * len(fields), 1.2 + 0.42 * most), squeeze=False)
    for ax, field in zip(axes[0], fields, strict=True):
        part = counts[counts["field"] == field]
        bars = ax.barh([escape_math(value) for value in part["value"]], part["users"], color="C0")
        ax.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=13)
        ax.set(title=escape_math(field), xlabel="users", xlim=(0, 1.2 * part["users"].max()))
        ax.set_ylim(max(len(part), most / 2) - 0.4, -0.6)  # no bar is much thicker than another
        ax.grid(axis="y", visible=False)
        ax.locator_params(axis="x", nbins=4)
    return fig


def plot_tendencies(counts: pd.DataFrame):
    """How the users shop (Figure 4(a)): a group of bars a field, one bar a level.

    Args:
        counts: from :func:`profile_counts`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figure_files.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    wide = counts.pivot(index="field", columns="value", values="users")
    wide = wide.reindex(index=counts["field"].unique(), columns=counts["value"].unique())
    fig, ax = plt.subplots(figsize=(8, 4.5))
    shades = plt.get_cmap("Purples")(np.linspace(0.35, 0.9, len(wide.columns)))  # levels: light to dark
    wide.rename(index=lambda field: escape_math(field).replace(" ", "\n"), columns=escape_math).plot.bar(
        ax=ax, rot=0, width=0.85, legend=False, color=list(shades)
    )
    for bars in ax.containers:
        ax.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=13)
    ax.set(xlabel="", ylabel="users")
    ax.margins(y=0.1)
    ax.grid(axis="x", visible=False)
    legend_above(fig)
    return fig


def plot_item_map(frame: pd.DataFrame):
    """A user's items on the plane of their embeddings, a colour and a marker a cluster.

    Args:
        frame: from :func:`pwagents.benchmark.profile_views.item_map`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figure_files.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    names = list(frame["cluster"].unique())
    fig, ax = plt.subplots(figsize=(8, 5.5 + 0.25 * len(names)))
    for i, name in enumerate(names):
        part = frame[frame["cluster"] == name]
        color, marker = PALETTE[i % len(PALETTE)], _MARKERS[i % len(_MARKERS)]
        label = f"{_shortened(name)} ({len(part)})"
        ax.scatter(
            part["x"], part["y"], color=color, marker=marker, s=70, label=escape_math(label), alpha=0.85
        )
    ax.set(xlabel="first component of the item embeddings", ylabel="second component")
    legend_above(fig, columns=2)
    return fig


def _shortened(name: str) -> str:
    return name if len(name) <= 38 else name[:37] + "\N{HORIZONTAL ELLIPSIS}"


def plot_search_gain(summary: pd.DataFrame):
    """Result accuracy of searches by the number of values added, a line a method, with intervals.

    Args:
        summary: ``method, added, mean, low, high``, of :mod:`pwagents.benchmark.search_gain`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figure_files.save_figure`.
    """
    return plot_lines(
        summary,
        "added",
        "mean",
        hue="method",
        xlabel="values of the profile added to the instruction",
        ylabel="result accuracy of the search",
    )


def plot_consistency(summary: pd.DataFrame):
    """How well profiles agree with what their users do (Figure 5): a panel an evaluation, a bar a method.

    Args:
        summary: ``method, evaluation, mean, low, high`` of one judge, from
            :func:`pwagents.evaluation.statistics.summarise` over a frame of
            :mod:`pwagents.profiles.consistency`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figure_files.save_figure`; dashed is chance.
    """
    import matplotlib.pyplot as plt

    use_style()
    methods, evaluations = list(summary["method"].unique()), list(summary["evaluation"].unique())
    size = (3.4 * len(evaluations) + 2.6, 1.6 + 0.45 * len(methods))
    fig, axes = plt.subplots(1, len(evaluations), figsize=size, sharey=True, squeeze=False)
    for ax, evaluation in zip(axes[0], evaluations, strict=True):
        part = summary[summary["evaluation"] == evaluation].set_index("method").reindex(methods)
        reach = np.nan_to_num([part["mean"] - part["low"], part["high"] - part["mean"]])
        ax.barh(range(len(methods)), part["mean"], 0.75, color="0.65")
        ax.errorbar(part["mean"], range(len(methods)), xerr=reach, fmt="none", ecolor="black", capsize=3)
        ax.axvline(chance()[evaluation], color="black", linestyle="dashed", label="chance")
        ax.set(title=escape_math(evaluation), xlim=(0, 1), xticks=(0, 0.5, 1), xlabel="mean over users")
        ax.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(methods)), [escape_math(method) for method in methods])
    axes[0, 0].invert_yaxis()
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right")
    return fig


def plot_ambiguity(frame: pd.DataFrame):
    """How many products fit an instruction: cumulative shares, one panel a task type, one line a writer.

    Args:
        frame: from :func:`pwagents.tasks.ambiguity.ambiguity`.

    Returns:
        The matplotlib figure, for :func:`pwagents.evaluation.figure_files.save_figure`.
    """
    import matplotlib.pyplot as plt

    use_style()
    types = [name for name in TASK_TYPES if name in set(frame["type"])]
    fig, axes = plt.subplots(1, len(types), figsize=(4.4 * len(types), 4.2), sharey=True, squeeze=False)
    for ax, task_type in zip(axes[0], types, strict=True):
        part = frame[frame["type"] == task_type]
        for i, (writer, group) in enumerate(part.groupby("writer", sort=False)):
            style = ("-", "--", "-.", ":")[i % 4]
            ax.ecdf(
                group["fitting"], label=escape_math(writer), color=f"C{i}", linestyle=style, linewidth=2.5
            )
        ax.set(title=escape_math(task_type), xscale="log", xlabel="products that fit", ylim=(-0.03, 1.03))
        ax.set_xlim(0.8, 1.3 * frame["fitting"].max())
        ax.xaxis.set_major_formatter("{x:,.0f}")
    axes[0, 0].set_ylabel("share of instructions that\nso many products fit, or fewer")
    legend_above(fig, *axes[0, 0].get_legend_handles_labels(), columns=3)
    return fig


def _fixed_order(field: str) -> list[str]:
    """The options of a field in the order that they are shown in; none where the number of users decides."""
    choices = options()["choices"].get(field, [])
    if field in options()["levels"]:
        return choices[::-1]  # from low to high
    return choices if len(choices) < _FEW else []
