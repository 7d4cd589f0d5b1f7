"""Figures of notebook 02: who users are, how one user's products lie, and whom profiles agree with."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from pwagents.results.style import PALETTE, escape_math, legend_above, styled
from pwagents.schema import TASK_TYPES, UserProfile
from pwagents.profiles.consistency import chance
from pwagents.profiles.llm import PROMPTS
from pwagents.profiles.types import OTHER

PEOPLE = ("Gender", "Age", "Occupation")  # PersonalWAB, Figure 3
TENDENCIES = ("Price Sensitivity", "Diversity Preference", "Interaction Complexity")  # Figure 4(a)
_RARE = 0.01  # a value of fewer users than this share has no bar of its own
_FEW = 8  # a field of fewer options shows all of them, in their order
_MARKERS = "osD^vPX*<>"  # a second cue beside colour
_LONGEST = 38  # letters of a cluster's name in a legend


def count_values(profiles: Mapping[str, UserProfile], fields: Sequence[str]) -> pd.DataFrame:
    """Count how many users have which value: ``field, value, users, share``.

    A field that says "Other" of everybody is left out. Fields of a few options (ages, levels) show each of
    them, also those that nobody has, in their order, then what strays from them; other fields go by number of
    users. Values of fewer than 1% of the users, options and strays alike, are counted together as "rarer
    (n kinds)".

    Args:
        profiles: user_id -> profile.
        fields: names as published, such as :data:`PEOPLE`.
    """
    values = pd.DataFrame([profile.model_dump(by_alias=True) for profile in profiles.values()])
    rows = []
    for field in (field for field in fields if (values[field] != OTHER).any()):
        users, fixed = Counter(values[field]), PROMPTS["choices"][field]
        if field in PROMPTS["levels"]:
            fixed = fixed[::-1]  # from low to high
        elif len(fixed) >= _FEW:
            fixed = []  # too many options: by number of users
        others = sorted(users.keys() - set(fixed), key=lambda value: (-users[value], value))
        common = [value for value in others if users[value] >= _RARE * len(profiles)]
        rows += [(field, value, users[value]) for value in (*fixed, *common)]
        if rare := others[len(common) :]:
            kinds = f"rarer ({len(rare)} kind{'s' * (len(rare) > 1)})"
            rows.append((field, kinds, sum(users[value] for value in rare)))
    counts = pd.DataFrame(rows, columns=["field", "value", "users"])
    return counts.assign(share=counts["users"] / len(profiles))


@styled
def plot_values(counts: pd.DataFrame):
    """Draw who the users are, or how they shop (Figures 3 and 4(a)): a panel a field, a bar a value."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    fields = list(counts["field"].unique())
    most = counts.groupby("field").size().max()
    fig, axes = plt.subplots(1, len(fields), figsize=(4.6 * len(fields), 1.2 + 0.42 * most), squeeze=False)
    for ax, field in zip(axes[0], fields, strict=True):
        part = counts[counts["field"] == field]
        part = part.assign(value=part["value"].map(escape_math))
        sns.barplot(part, x="users", y="value", color=PALETTE[0], saturation=1, width=0.8, ax=ax)
        ax.bar_label(ax.containers[0], fmt="{:,.0f}", padding=3, fontsize=13)
        ax.set(title=escape_math(field), xlabel="users", ylabel="", xlim=(0, 1.2 * part["users"].max()))
        ax.set_ylim(max(len(part), most / 2) - 0.4, -0.6)  # no bar is much thicker than another
        ax.grid(axis="y", visible=False)
        ax.locator_params(axis="x", nbins=4)
    return fig


@styled
def plot_item_map(frame: pd.DataFrame):
    """Draw items on a plane (``x, y, cluster``, one row each), a colour and a marker a cluster."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sizes = frame["cluster"].value_counts(sort=False)
    fig, ax = plt.subplots(figsize=(8, 5.5 + 0.25 * len(sizes)))
    sns.scatterplot(
        frame, x="x", y="y", hue="cluster", style="cluster", s=95, alpha=0.85, linewidth=0, ax=ax,
        palette=[PALETTE[i % len(PALETTE)] for i in range(len(sizes))],
        markers=[_MARKERS[i % len(_MARKERS)] for i in range(len(sizes))],
    )  # fmt: skip
    ax.set(xlabel="first component of the item embeddings", ylabel="second component")
    ax.get_legend().remove()
    marks, names = ax.get_legend_handles_labels()
    short = [n if len(n) <= _LONGEST else n[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}" for n in names]
    labels = [escape_math(f"{text} ({sizes[name]})") for text, name in zip(short, names, strict=True)]
    legend_above(fig, marks, labels, columns=2)
    return fig


@styled
def plot_consistency(summary: pd.DataFrame):
    """Draw how well profiles agree with what users do (Figure 5): a panel an evaluation, a bar a method.

    ``summary`` (``method, evaluation, mean, low, high``) is of one judge; dashed is chance.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    evaluations = list(summary["evaluation"].unique())
    methods = [escape_math(method) for method in summary["method"].unique()]
    size = (3.4 * len(evaluations) + 2.6, 1.6 + 0.45 * len(methods))
    fig, axes = plt.subplots(1, len(evaluations), figsize=size, sharey=True, squeeze=False)
    # Three rows a bar: their median is the mean, their range the interval, so that seaborn computes neither.
    rows = summary.melt(["method", "evaluation"], ["low", "mean", "high"]).dropna()
    rows["method"] = rows["method"].map(escape_math)
    for ax, evaluation in zip(axes[0], evaluations, strict=True):
        sns.barplot(
            rows[rows["evaluation"] == evaluation], x="value", y="method", order=methods, ax=ax,
            width=0.75, color="0.65", saturation=1, estimator="median", errorbar=("pi", 100),
            capsize=0.2, err_kws={"color": "black", "linewidth": 2},
        )  # fmt: skip
        ax.axvline(chance()[evaluation], color="black", linestyle="dashed", label="chance")
        ax.set(title=escape_math(evaluation), xlabel="mean over users", ylabel="")
        ax.set(xlim=(0, 1), xticks=(0, 0.5, 1))
        ax.grid(axis="y", visible=False)
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right")
    return fig


@styled
def plot_ambiguity(frame: pd.DataFrame):
    """Draw how many products fit an instruction: cumulative shares, a panel a task type, a line a writer."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    types = [name for name in TASK_TYPES if name in set(frame["type"])]
    fig, axes = plt.subplots(1, len(types), figsize=(4.4 * len(types), 4.2), sharey=True, squeeze=False)
    for ax, task_type in zip(axes[0], types, strict=True):
        part = frame[frame["type"] == task_type]
        for i, (writer, group) in enumerate(part.groupby("writer", sort=False)):
            look = {"color": f"C{i}", "linestyle": ("-", "--", "-.", ":")[i % 4], "linewidth": 2.5}
            sns.ecdfplot(group, x="fitting", label=escape_math(writer), ax=ax, **look)
        ax.set(title=escape_math(task_type), xscale="log", xlabel="products that fit", ylim=(-0.03, 1.03))
        ax.set_xlim(0.8, 1.3 * frame["fitting"].max())  # the same in all panels
        ax.xaxis.set_major_formatter("{x:,.0f}")
    axes[0, 0].set_ylabel("share of instructions that\nso many products fit, or fewer")
    legend_above(fig, *axes[0, 0].get_legend_handles_labels(), columns=3)
    return fig
