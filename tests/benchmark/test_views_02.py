"""What notebook 02 shows to be looked at: counted values, one user, and what bars, points and lines show."""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pwagents.benchmark import views_02 as views
from pwagents.data.personalwab import read_profiles
from pwagents.embedding import Embedder
from pwagents.errors import SettingsError
from pwagents.profiles.consistency import NDCG, RECALL, TOP1, chance
from pwagents.profiles.types import (
    Cluster,
    ContextualProfile,
    GlobalProfile,
    MicroProfile,
    ProfileLine,
    UserProfiles,
)
from pwagents.profiles.update import Update
from pwagents.schema import (
    Action,
    Behavior,
    Observation,
    Product,
    Review,
    Step,
    Task,
    Trajectory,
    UserProfile,
)

matplotlib.use("Agg")
FACTS = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Other"))
PRODUCTS = {
    asin: Product(parent_asin=asin, title=title, category="Home")
    for asin, title in [("B1", "red oak stool"), ("B2", "blue oak stool"), ("B3", "steel kettle")]
}
HISTORY = tuple(
    Behavior(parent_asin=asin, timestamp=i, review=Review(rating=5))
    for i, asin in enumerate(("B1", "B3", "B2"), start=1)
)


@pytest.fixture(autouse=True)
def closed_figures():
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


def count(profiles, field):
    counts = views.count_values(profiles, [field])
    assert counts["users"].sum() == len(profiles) and counts["share"].sum() == pytest.approx(1)
    return list(zip(counts["value"], counts["users"], strict=True))


def test_occupations_go_by_number_of_users_and_rare_ones_are_counted_together():
    profiles = people(occupation={"Writer": 100, "Nurse": 40, "Chef": 2, "Farmer": 2, "Artist": 1})
    expected = [("Other", 155), ("Writer", 100), ("Nurse", 40), ("rarer (3 kinds)", 5)]
    assert count(profiles, "Occupation") == expected


def test_ages_and_levels_keep_their_order_whoever_has_them_and_strays_come_after():
    ages = count(people(n=200, age={"56+": 10, "25-34": 180, "young at heart": 9, "??": 1}), "Age")
    assert [value for value, _ in ages] == [
        "Under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+", "young at heart", "rarer (1 kind)"
    ]  # fmt: skip
    assert dict(ages)["25-34"] == 180 and dict(ages)["18-24"] == 0
    levels = count(people(n=3, price_sensitivity={"High": 2, "Low": 1}), "Price Sensitivity")
    assert levels == [("Low", 1), ("Medium", 0), ("High", 2)]


def test_bars_of_people_show_their_counts_and_fields_that_say_nothing_have_no_panel():
    profiles = people(gender={"Female": 200, "Male": 100}, occupation={"Writer": 100, "Sells $5 & $6": 50})
    plot, counts = views.profile_figures(profiles)["people"]
    fig = plot(counts)
    assert [ax.get_title() for ax in fig.axes] == ["Gender", "Occupation"]
    for ax in fig.axes:
        part = counts[counts["field"] == ax.get_title()]
        assert [bar.get_width() for bar in ax.patches] == list(part["users"])
        assert [text.get_text() for text in ax.texts] == [f"{n:,}" for n in part["users"]]
        assert ax.yaxis_inverted() and len(ax.get_yticklabels()) == len(part)  # the first at the top
    assert list(views.profile_figures(people(n=9, price_sensitivity={"High": 9}))) == ["tendencies"]


def test_bars_of_tendencies_come_in_groups():
    profiles = people(n=10, price_sensitivity={"High": 10}, diversity_preference={"Low": 4, "Medium": 6})
    plot, counts = views.profile_figures(profiles)["tendencies"]
    fig = plot(counts)
    (ax,) = fig.axes
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Low", "Medium", "High", "Other"]
    assert [bar.get_height() for bar in ax.containers[2]] == [10, 0, 0]
    assert ax.get_xticklabels()[0].get_text() == "Price\nSensitivity"


def test_the_published_profiles(project_root):
    file = Path(project_root).parent / "shared" / "data" / "personalwab" / "user_profiles.json"
    if not file.exists():
        pytest.skip("no published profiles here")
    profiles = read_profiles(file)
    gender = dict(count(profiles, "Gender"))
    assert len(profiles) == 1000 and gender == {"Female": 836, "Male": 164}
    occupations = dict(count(profiles, "Occupation"))
    assert "Nurse" not in occupations and occupations["rarer (13 kinds)"] == 21


@pytest.fixture(scope="module")
def embedder():
    return Embedder(max_tokens=48, batch_size=32)


@pytest.fixture
def profiles(embedder):
    """A user who buys stools and a kettle."""
    centres = embedder.encode(["oak stools", "kettles"])
    clusters = (Cluster("kettles", (1,), centres[1]), Cluster("stools", (0, 2), centres[0]))
    micro = (MicroProfile(), MicroProfile(recommendations=("color: red", "material: oak")))
    return UserProfiles("u", GlobalProfile(facts=FACTS, positive=("price: budget",)), clusters, micro)


def test_the_map_places_every_behaviour_near_those_like_it(profiles, embedder):
    frame = views.map_items(profiles, HISTORY, PRODUCTS, embedder)
    assert frame["cluster"].tolist() == ["kettles", "stools", "stools"]
    assert frame["product"].tolist() == ["steel kettle", "red oak stool", "blue oak stool"]
    places = frame[["x", "y"]].to_numpy()
    assert np.linalg.norm(places[1] - places[2]) < np.linalg.norm(places[1] - places[0])


def test_clusters_on_the_map_have_a_colour_and_their_size():
    long = "things of a kind that has a very long name"
    rows = [(0.1, 0.2, "stools"), (0.2, 0.2, "stools"), (-0.3, 0.1, long)]
    fig = views.plot_item_map(pd.DataFrame(rows, columns=["x", "y", "cluster"]))
    labels = [text.get_text() for text in fig.legends[0].get_texts()]
    assert labels[0] == "stools (2)" and labels[1].endswith("\N{HORIZONTAL ELLIPSIS} (1)")
    (points,) = fig.axes[0].collections
    first, second, third = (tuple(color) for color in points.get_facecolor())
    assert first == second != third


def test_the_example_user_has_clusters_wherever_anybody_has(profiles):
    tasks = [
        Task(
            task_id=user, user_id=user, type="search", timestamp=1, instruction="A stool", target="B1",
            review=Review(rating=5),
        )
        for user in "ab"
    ]  # fmt: skip
    short = UserProfiles("a", profiles.whole)
    assert views.find_example_user({"a": short, "b": profiles}, tasks, 0) == "b"
    with pytest.raises(SettingsError, match="setting example_user: found 1; expected less than 1"):
        views.find_example_user({"a": short, "b": profiles}, tasks, 1)
    nobody = {"a": short, "b": UserProfiles("b", profiles.whole)}
    assert [views.find_example_user(nobody, tasks, position) for position in (0, 1)] == ["a", "b"]
    with pytest.raises(SettingsError, match=r"less than 2, the number of users with a search task$"):
        views.find_example_user(nobody, tasks, 2)
    reviews = [task.model_copy(update={"type": "review"}) for task in tasks]
    assert views.find_example_user(nobody, reviews, 1) == "b"


def test_profiles_as_tables(profiles):
    table = views.global_profile_table(profiles.whole).set_index("field")["value"]
    assert table["Price Sensitivity"] == "Other"
    assert list(table.index[-2:]) == ["likes everywhere", "avoids everywhere"]
    assert table["likes everywhere"] == "price: budget" and table["avoids everywhere"] == ""
    micro = views.micro_profile_table(profiles)
    assert micro.loc[0].tolist() == ["stools", 2, "color: red, material: oak", ""]  # the largest first


def test_updates_are_the_lines_that_come_and_go():
    red, oak, blue = (
        ProfileLine.of(text, True, source)
        for text, source in [
            ("color: red", "history"),
            ("material: oak", "history"),
            ("color: blue", "stated"),
        ]
    )

    def updater(profile, instruction, session):
        if session[-1].action.name != "respond":
            return Update(profile)
        return Update(ContextualProfile(lines=(blue, oak)))

    respond, stop = Action(name="respond", arguments={"content": "Color?"}), Action(name="stop")
    steps = (
        Step(action=respond, observation=Observation(text="Blue.")),
        Step(action=stop, observation=Observation(text="The task has ended.")),
    )
    episode = Trajectory(task_id="t", user_id="u", type="search", target="B1", steps=steps)
    frame, end = views.follow_updates(ContextualProfile(lines=(red, oak)), episode, "A stool", updater)
    assert frame.loc[0].tolist() == [
        1, "respond: Color?", "Blue.", "+ color: blue (stated)", "+ color: red (history)",
    ]  # fmt: skip
    assert frame.loc[1].tolist() == [2, "stop", "", "", ""] and end.lines == (blue, oak)


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
    assert [text.get_text() for text in fig.axes[0].get_yticklabels()] == ["ours", "theirs"]


def test_lines_of_ambiguity_are_shares_of_instructions():
    rows = [
        (writer, task_type, n * k)
        for writer, k in (("own", 1), ("ambiguous", 10))
        for task_type in ("search", "recommend")
        for n in (1, 2, 4, 8)
    ]
    fig = views.plot_ambiguity(pd.DataFrame(rows, columns=["writer", "type", "fitting"]))
    assert [ax.get_title() for ax in fig.axes] == ["search", "recommend"]
    assert "or fewer" in fig.axes[0].get_ylabel()  # cumulative
    x, y = fig.axes[0].lines[1].get_data()
    assert list(x)[1:] == [10, 20, 40, 80] and list(y)[1:] == [0.25, 0.5, 0.75, 1.0]


def test_wordings_of_a_task_stand_below_each_other(world):
    benchmark = world.benchmark
    table = views.wording_table({"its own": benchmark, "ambiguous": benchmark}, n=2)
    assert table["written"].tolist() == ["its own", "ambiguous"] * 2
    assert table["instruction"].tolist()[:2] == [benchmark.tasks["test"][0].instruction] * 2
