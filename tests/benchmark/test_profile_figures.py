"""Figures of profiles: what is counted, and what the bars and lines show."""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pwagents.benchmark import profile_figures
from pwagents.benchmark.profile_figures import (
    PEOPLE,
    TENDENCIES,
    plot_ambiguity,
    plot_consistency,
    plot_item_map,
    plot_people,
    plot_search_gain,
    plot_tendencies,
    profile_counts,
)
from pwagents.data.personalwab import read_profiles
from pwagents.evaluation.figure_files import save_figure
from pwagents.profiles.consistency import NDCG, RECALL, TOP1, chance
from pwagents.schema import UserProfile

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def plain_matplotlib():
    with matplotlib.rc_context():
        yield
    plt.close("all")


def people(n=300, **changes):
    """Profiles of ``n`` users, all "Other" but for ``changes``: field -> {value: number of users}."""
    fields = {}
    for field in UserProfile.model_fields:
        values = [v for value, times in changes.get(field, {}).items() for v in [value] * times]
        fields[field] = [*values, *["Other"] * (n - len(values))]
    return {f"u{i}": UserProfile(**{field: fields[field][i] for field in fields}) for i in range(n)}


def counted(profiles, field):
    counts = profile_counts(profiles, [field])
    return list(zip(counts["value"], counts["users"], strict=True))


def test_occupations_go_by_number_of_users_and_rare_ones_are_counted_together():
    profiles = people(occupation={"Writer": 100, "Nurse": 40, "Chef": 2, "Farmer": 2, "Artist": 1})
    expected = [("Other", 155), ("Writer", 100), ("Nurse", 40), ("rarer (3 kinds)", 5)]
    assert counted(profiles, "Occupation") == expected


def test_ages_and_levels_keep_their_order_whoever_has_them_and_strays_come_after():
    ages = counted(people(n=200, age={"56+": 10, "25-34": 180, "young at heart": 9, "??": 1}), "Age")
    assert [value for value, _ in ages] == [
        "Under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+", "young at heart", "rarer (1 kind)"
    ]  # fmt: skip
    assert dict(ages)["25-34"] == 180 and dict(ages)["18-24"] == 0
    levels = counted(people(n=3, price_sensitivity={"High": 2, "Low": 1}), "Price Sensitivity")
    assert levels == [("Low", 1), ("Medium", 0), ("High", 2)]


def test_every_user_is_counted_once_in_each_field():
    profiles = people(occupation={"Writer": 1}, age={"Under 18": 3})
    counts = profile_counts(profiles, [*PEOPLE, *TENDENCIES])
    assert (counts.groupby("field")["users"].sum() == len(profiles)).all()
    assert counts.groupby("field")["share"].sum().to_numpy() == pytest.approx(1)


def test_bars_of_people_show_their_counts():
    profiles = people(gender={"Female": 200, "Male": 100}, occupation={"Writer": 100, "Sells $5 & $6": 50})
    counts = profile_counts(profiles, PEOPLE)
    fig = plot_people(counts)
    assert [ax.get_title() for ax in fig.axes] == list(PEOPLE)
    for ax, field in zip(fig.axes, PEOPLE, strict=True):
        part = counts[counts["field"] == field]
        assert [bar.get_width() for bar in ax.patches] == list(part["users"])
        assert [text.get_text() for text in ax.texts] == [f"{n:,}" for n in part["users"]]
        assert len(ax.get_yticklabels()) == len(part)
        assert ax.yaxis_inverted()  # the first at the top


def test_bars_of_tendencies_come_in_groups():
    profiles = people(n=10, price_sensitivity={"High": 10}, diversity_preference={"Low": 4, "Medium": 6})
    fig = plot_tendencies(profile_counts(profiles, TENDENCIES))
    ax = fig.axes[0]
    assert [bars.get_label() for bars in ax.containers] == ["Low", "Medium", "High", "Other"]
    assert [bar.get_height() for bar in ax.containers[2]] == [10, 0, 0]
    assert ax.get_xticklabels()[0].get_text() == "Price\nSensitivity"


def test_the_figures_of_profiles_come_with_what_they_show():
    made = profile_figures.counted(people(n=10, price_sensitivity={"High": 10}, gender={"Female": 1}))
    assert list(made) == ["people", "tendencies"]
    (_, counts), (_, levels) = made.values()
    assert set(counts["field"]) == {"Gender"} and set(levels["field"]) == set(TENDENCIES)


def test_there_is_no_figure_of_people_whom_nothing_is_told_of():
    assert list(profile_figures.counted(people(n=10, price_sensitivity={"High": 10}))) == ["tendencies"]


def test_clusters_on_the_map_have_a_colour_and_their_size():
    rows = [
        (0.1, 0.2, "stools"),
        (0.2, 0.2, "stools"),
        (-0.3, 0.1, "things of a kind that has a very long name"),
    ]
    ax = plot_item_map(pd.DataFrame(rows, columns=["x", "y", "cluster"])).axes[0]
    labels = [points.get_label() for points in ax.collections]
    assert labels[0] == "stools (2)" and labels[1].endswith("\N{HORIZONTAL ELLIPSIS} (1)")
    assert len({tuple(points.get_facecolor()[0]) for points in ax.collections}) == 2


def test_search_gains_are_lines_by_number_of_values():
    rows = [(m, n, 0.5 + k * n, 0.4, 0.9) for m, k in (("averaged", 0.0), ("micro", 0.1)) for n in (0, 1, 2)]
    summary = pd.DataFrame(rows, columns=["method", "added", "mean", "low", "high"])
    lines = plot_search_gain(summary).axes[0].containers  # each a line with its intervals
    assert [line.get_label() for line in lines] == ["averaged", "micro"]
    assert list(lines[1][0].get_ydata()) == pytest.approx([0.5, 0.6, 0.7])


def test_bars_of_consistency_stand_beside_chance():
    rows = [
        (method, name, mean, mean - 0.1, mean + 0.1)
        for method, mean in (("ours", 0.7), ("theirs", 0.5))
        for name in (TOP1, NDCG, RECALL)
    ]
    summary = pd.DataFrame(rows, columns=["method", "evaluation", "mean", "low", "high"])
    summary.loc[0, ["low", "high"]] = np.nan  # one user: no interval
    fig = plot_consistency(summary)
    for ax, name in zip(fig.axes, (TOP1, NDCG, RECALL), strict=True):
        assert ax.get_title() == name
        assert [round(bar.get_width(), 6) for bar in ax.patches] == [0.7, 0.5]
        (line,) = (line for line in ax.lines if line.get_label() == "chance")
        assert line.get_xdata()[0] == pytest.approx(chance()[name])
    assert [text.get_text() for text in fig.axes[0].get_yticklabels()] == ["ours", "theirs"]


def test_lines_of_ambiguity_are_shares_of_instructions(tmp_path):
    rows = [
        (w, t, n * k)
        for w, k in (("own", 1), ("ambiguous", 10))
        for t in ("search", "recommend")
        for n in (1, 2, 4, 8)
    ]
    frame = pd.DataFrame(rows, columns=["writer", "type", "fitting"])
    fig = plot_ambiguity(frame)
    assert [ax.get_title() for ax in fig.axes] == ["search", "recommend"]
    assert "or fewer" in fig.axes[0].get_ylabel()  # cumulative
    x, y = fig.axes[0].lines[1].get_data()
    assert list(x)[1:] == [10, 20, 40, 80] and list(y)[1:] == [0.25, 0.5, 0.75, 1.0]
    save_figure(fig, "ambiguity", frame, output_dir=tmp_path)
    assert (tmp_path / "figures" / "ambiguity.svg").stat().st_size > 1000


def test_the_published_profiles(project_root):
    file = Path(project_root).parent / "shared" / "data" / "personalwab" / "user_profiles.json"
    if not file.exists():
        pytest.skip("no published profiles here")
    profiles = read_profiles(file)
    gender = dict(counted(profiles, "Gender"))
    assert len(profiles) == 1000 and gender == {"Female": 836, "Male": 164}
    occupations = dict(counted(profiles, "Occupation"))
    assert "Nurse" not in occupations and occupations["rarer (13 kinds)"] == 21
    assert sum(occupations.values()) == 1000
