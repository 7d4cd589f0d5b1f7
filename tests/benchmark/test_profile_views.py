"""The map of a user's items, an update told step by step, and what searches gain by profiles."""

import numpy as np
import pytest

from pwagents.benchmark.profile_views import (
    item_map,
    plot_item_map,
    plot_search_gain,
    search_with_profiles,
    update_table,
)
from pwagents.evaluation.figures import save_figure
from pwagents.evaluation.statistics import summarise
from pwagents.profiles.types import (
    Cluster,
    ContextualProfile,
    GlobalProfile,
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
from pwagents.web.search import Bm25Engine

PRODUCTS = {
    asin: Product(parent_asin=asin, title=title, category="Home")
    for asin, title in [("B1", "red oak stool"), ("B2", "blue oak stool"), ("B3", "steel kettle")]
}


@pytest.fixture
def profiles():
    facts = UserProfile(**dict.fromkeys(UserProfile.model_fields, "Other"))
    clusters = (Cluster("stools", (0, 2), np.zeros(384)), Cluster("kettles", (1,), np.zeros(384)))
    return UserProfiles("u", GlobalProfile(facts=facts), clusters, ())


def test_the_map_places_every_behaviour_near_those_like_it(profiles, tmp_path):
    history = [
        Behavior(parent_asin=asin, timestamp=i, review=Review(rating=5))
        for i, asin in enumerate(("B1", "B3", "B2"), start=1)
    ]
    vectors = {"B1": np.eye(384)[0], "B2": np.eye(384)[0] + 0.1 * np.eye(384)[1], "B3": np.eye(384)[2]}
    frame = item_map(profiles, history, vectors, PRODUCTS)
    assert frame["cluster"].tolist() == ["stools", "stools", "kettles"]
    assert frame["product"].tolist() == ["red oak stool", "blue oak stool", "steel kettle"]
    places = frame[["x", "y"]].to_numpy()
    assert np.linalg.norm(places[0] - places[1]) < 0.2 < np.linalg.norm(places[0] - places[2])
    save_figure(plot_item_map(frame), "map", frame, output_dir=tmp_path)
    assert (tmp_path / "figures" / "map.png").stat().st_size > 0


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
    trajectory = Trajectory(task_id="t", user_id="u", type="search", steps=steps)
    start = ContextualProfile(lines=(red, oak))
    frame, after = update_table(start, trajectory, "A stool", updater)
    assert frame.loc[0].tolist() == [
        1, "respond: Color?", "Blue.", "+ color: blue (stated)", "+ color: red (history)",
    ]  # fmt: skip
    assert frame.loc[1].tolist() == [2, "stop", "", "", ""] and after[-1].lines == (blue, oak)


def test_a_value_that_matters_pays_and_one_that_is_said_is_not_said_twice(tmp_path):
    engine = Bm25Engine({asin: product.title for asin, product in PRODUCTS.items()})
    task = Task(
        task_id="t", user_id="u", type="search", timestamp=1, instruction="an oak stool", target="B2",
        review=Review(rating=5),
    )  # fmt: skip
    told = {"right": [["oak", "blue"]], "wrong": [["red"]]}
    frame = search_with_profiles(engine, [task], told, added=(0, 1))
    values = frame.set_index(["method", "added"])["result_accuracy"]
    assert values["right", 0] == values["wrong", 0] == values["wrong", 1] == 0.9
    assert values["right", 1] == 1.0
    summary = summarise(frame, by=["method", "added"], metrics=["result_accuracy"])
    save_figure(plot_search_gain(summary), "gain", summary, output_dir=tmp_path)
