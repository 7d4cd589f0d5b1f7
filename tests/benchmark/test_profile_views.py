"""Profiles to be read: tables of one user, the map of their items, an update told step by step."""

from dataclasses import replace

import numpy as np
import pytest

from pwagents.benchmark import profile_views
from pwagents.data.personalwab import read_profiles
from pwagents.embedding import Embedder
from pwagents.errors import SettingsError
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

from ..personalwab_files import write_personalwab

FACTS = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Other"))
PRODUCTS = {
    asin: Product(parent_asin=asin, title=title, category="Home")
    for asin, title in [("B1", "red oak stool"), ("B2", "blue oak stool"), ("B3", "steel kettle")]
}
HISTORY = tuple(
    Behavior(parent_asin=asin, timestamp=i, review=Review(rating=5))
    for i, asin in enumerate(("B1", "B3", "B2"), start=1)
)


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
    frame = profile_views.item_map(profiles, HISTORY, PRODUCTS, embedder)
    assert frame["cluster"].tolist() == ["kettles", "stools", "stools"]
    assert frame["product"].tolist() == ["steel kettle", "red oak stool", "blue oak stool"]
    places = frame[["x", "y"]].to_numpy()
    assert np.linalg.norm(places[1] - places[2]) < np.linalg.norm(places[1] - places[0])


def test_clusters_share_out_the_behaviours_in_every_bucketing(world, embedder):
    benchmark = world.benchmark
    histories = {user: benchmark.train_period(user) for user in list(benchmark.behaviors)[:6]}
    long = {user: history for user, history in histories.items() if len(history) > 15}
    frame = profile_views.cluster_sizes(long, benchmark.products, embedder).set_index("bucketing")
    assert list(frame.index) == ["adaptive", "category", "k-means"]
    assert frame.loc["adaptive", "smallest"] >= 2
    assert frame.loc["adaptive", "clusters of a user"] == frame.loc["k-means", "clusters of a user"]


def test_the_example_user_is_one_with_clusters(profiles):
    def task(user):
        return Task(
            task_id=user, user_id=user, type="search", timestamp=1, instruction="A stool", target="B1",
            review=Review(rating=5),
        )  # fmt: skip

    of = {"a": UserProfiles("a", profiles.whole), "b": profiles}
    tasks = [task("a"), task("b")]
    assert profile_views.example_user(of, tasks, 0) == "b"
    with pytest.raises(SettingsError, match="setting example_user: found 1; expected less than 1"):
        profile_views.example_user(of, tasks, 1)


def test_where_nobody_has_clusters_anyone_is_an_example(profiles):
    of = {"a": UserProfiles("a", profiles.whole), "b": UserProfiles("b", profiles.whole)}
    tasks = [
        Task(
            task_id=user, user_id=user, type="search", timestamp=1, instruction="A stool", target="B1",
            review=Review(rating=5),
        )
        for user in of
    ]  # fmt: skip
    assert [profile_views.example_user(of, tasks, position) for position in (0, 1)] == ["a", "b"]
    with pytest.raises(SettingsError, match=r"less than 2, the number of users with a search task$"):
        profile_views.example_user(of, tasks, 2)
    reviews = [task.model_copy(update={"type": "review"}) for task in tasks]
    assert profile_views.example_user(of, reviews, 1) == "b"


def test_nobody_with_clusters_makes_an_empty_table(embedder):
    assert profile_views.cluster_sizes({}, {}, embedder).empty


def test_profiles_as_tables(profiles):
    table = profile_views.global_profile_table(profiles.whole).set_index("field")["value"]
    assert table["Price Sensitivity"] == "Other" and list(table.index[-2:]) == [
        "likes everywhere",
        "avoids everywhere",
    ]
    assert table["likes everywhere"] == "price: budget" and table["avoids everywhere"] == ""
    micro = profile_views.micro_profile_table(profiles)
    assert micro.loc[0].tolist() == ["stools", 2, "color: red, material: oak", ""]  # the largest first


def test_a_retrieval_is_told_with_the_weights_of_its_clusters(profiles, embedder):
    told = profile_views.tell_retrieval("I need a stool of oak", profiles, embedder).splitlines()
    assert told[0] == "I need a stool of oak"
    assert told[2].endswith("  stools") and told[3].endswith("  kettles")
    assert float(told[2].split()[0]) > float(told[3].split()[0])
    assert "- [history] material: oak" in told


def test_published_profiles_come_with_the_benchmark_or_from_the_file_or_not_at_all(world, tmp_path):
    benchmark = world.benchmark
    assert profile_views.published_profiles(benchmark, str(tmp_path / "nothing.json")) == {}
    file = write_personalwab(replace(benchmark, profiles={"U0001": FACTS}), tmp_path) / "user_profiles.json"
    assert profile_views.published_profiles(benchmark, str(file)) == read_profiles(file) == {"U0001": FACTS}


def test_an_update_is_told_by_the_lines_that_come_and_go():
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

    steps = (
        Step(
            action=Action(name="respond", arguments={"content": "Color?"}),
            observation=Observation(text="Blue."),
        ),
        Step(action=Action(name="stop"), observation=Observation(text="The task has ended.")),
    )
    trajectory = Trajectory(task_id="t", user_id="u", type="search", target="B1", steps=steps)
    start = ContextualProfile(lines=(red, oak))
    frame, after = profile_views.update_table(start, trajectory, "A stool", updater)
    assert frame.loc[0].tolist() == [
        1, "respond: Color?", "Blue.", "+ color: blue (stated)", "+ color: red (history)",
    ]  # fmt: skip
    assert frame.loc[1].tolist() == [2, "stop", "", "", ""] and after.lines == (blue, oak)
