"""Figures of notebook 02: counted values, the map of a user, whom profiles agree with, ambiguity."""

import pytest

from pwagents.benchmark import views_02 as views
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
