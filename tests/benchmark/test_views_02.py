"""Figures of notebook 02: counted values, the map of a user, whom profiles agree with, ambiguity."""

import numpy as np
import pandas as pd
import pytest

from pwagents.benchmark import views_02 as views
from pwagents.profiles.consistency import NDCG, RECALL, TOP1, chance
from pwagents.schema import UserProfile


def people(n, **changes):
    """Profiles of ``n`` users, all "Other" but for ``changes``: field -> {value: number of users}."""
    fields = {}
    for field in UserProfile.model_fields:
        values = [v for value, times in changes.get(field, {}).items() for v in [value] * times]
        fields[field] = [*values, *["Other"] * (n - len(values))]
    return {f"u{i}": UserProfile(**{field: fields[field][i] for field in fields}) for i in range(n)}


def count(profiles, field):
    counts = views.count_values(profiles, [field])
    assert counts["users"].sum() == len(profiles) and counts["share"].sum() == pytest.approx(1)
    return list(zip(counts["value"], counts["users"], strict=True))


def test_occupations_go_by_number_of_users_and_rare_ones_are_counted_together():
    profiles = people(300, occupation={"Writer": 100, "Nurse": 40, "Chef": 2, "Farmer": 2, "Artist": 1})
    expected = [("Other", 155), ("Writer", 100), ("Nurse", 40), ("rarer (3 kinds)", 5)]
    assert count(profiles, "Occupation") == expected


def test_ages_and_levels_keep_their_order_whoever_has_them_and_strays_come_after():
    ages = count(people(200, age={"56+": 10, "25-34": 180, "young at heart": 9, "??": 1}), "Age")
    assert [value for value, _ in ages] == [
        "Under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+", "young at heart", "rarer (1 kind)"
    ]  # fmt: skip
    assert dict(ages)["25-34"] == 180 and dict(ages)["18-24"] == 0
    levels = count(people(3, price_sensitivity={"High": 2, "Low": 1}), "Price Sensitivity")
    assert levels == [("Low", 1), ("Medium", 0), ("High", 2)]


def test_bars_show_counts_and_fields_that_say_nothing_have_no_panel():
    few = {"price_sensitivity": {"High": 100}, "diversity_preference": {"Low": 40, "Medium": 60}}
    profiles = people(100, gender={"Female": 60}, occupation={"Sells $5 & $6": 50}, **few)
    counts, levels = (views.count_values(profiles, names) for names in (views.PEOPLE, views.TENDENCIES))
    axes = views.plot_values(counts).axes
    assert [ax.get_title() for ax in axes] == ["Gender", "Occupation"], "all ages are Other"
    assert [bar.get_width() for bar in axes[0].patches] == [60, 0, 40] and axes[0].yaxis_inverted()
    axes = views.plot_values(levels).axes
    assert [[bar.get_width() for bar in ax.patches] for ax in axes] == [[0, 0, 100], [40, 60, 0]]


def test_the_map_has_a_colour_a_cluster_and_short_names():
    rows = [(0.1, 0.2, "kettles"), (0.5, 0.4, "stools" * 9), (0.6, 0.4, "stools" * 9)]
    fig = views.plot_item_map(pd.DataFrame(rows, columns=["x", "y", "cluster"]))
    first, second, third = (tuple(color) for color in fig.axes[0].collections[0].get_facecolor())
    assert first != second == third
    labels = [text.get_text() for text in fig.legends[0].get_texts()]
    assert labels[0] == "kettles (1)" and labels[1].endswith("\N{HORIZONTAL ELLIPSIS} (2)")


def test_bars_of_consistency_are_means_with_their_intervals_beside_chance():
    rows = [
        (method, name, mean, mean - 0.1, mean + 0.1)
        for method, mean in (("ours", 0.7), ("theirs", 0.5))
        for name in (TOP1, NDCG, RECALL)
    ]
    summary = pd.DataFrame(rows, columns=["method", "evaluation", "mean", "low", "high"])
    summary.loc[0, ["low", "high"]] = np.nan  # one user: no interval
    fig = views.plot_consistency(summary)
    for ax, name in zip(fig.axes, (TOP1, NDCG, RECALL), strict=True):
        assert ax.get_title() == name
        assert [round(bar.get_width(), 6) for bar in ax.patches] == [0.7, 0.5]
        (line,) = (line for line in ax.lines if line.get_label() == "chance")
        assert line.get_xdata()[0] == pytest.approx(chance()[name])
    ends = {round(x, 6) for line in fig.axes[1].lines for x in line.get_xdata()}
    assert {0.4, 0.6, 0.8} <= ends


def test_lines_of_ambiguity_are_shares_of_instructions():
    rows = [(writer, "search", n * k) for writer, k in (("own", 1), ("ambiguous", 10)) for n in (1, 2, 4, 8)]
    (ax,) = views.plot_ambiguity(pd.DataFrame(rows, columns=["writer", "type", "fitting"])).axes
    x, y = ax.lines[1].get_data()
    assert list(x)[1:] == [10, 20, 40, 80] and list(y)[1:] == [0.25, 0.5, 0.75, 1.0]
