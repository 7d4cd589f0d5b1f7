"""What agents ask and search for, told by attributes."""

import pytest

from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.orion.analyses import NOTHING, frequent_patterns, queries, query_pattern, questions, sameness
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.update import OfflineUpdater
from pwagents.schema import Action, Observation, Product, Step, Trajectory

SEARCH, ASK = "search_product_by_query", "respond"


def step(name, result=None, error="", **arguments):
    action = Action(name=name, arguments=arguments)
    shown = [f"B{i}" for i in range(round(10 * (1 - (result or 0.0))))] + ["the target"]
    return Step(action=action, observation=Observation(text="", products=shown), error=error)


def record(task_id, steps, method="m", outcome="scored", user_id="u"):
    trajectory = Trajectory(
        task_id=task_id, user_id=user_id, type="search", target="the target", steps=tuple(steps)
    )
    return EpisodeRecord(
        key=task_id, task_id=task_id, user_id=user_id, type="search", method=method, model="none", params={},
        outcome=outcome, seconds=0.0, trajectory=trajectory if outcome == "scored" else None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def catalogue():
    colors, stores = ["navy", "red"], ["Kestrel", "Willow"]
    products = [
        Product(
            parent_asin=f"B{i}",
            title=f"{stores[i % 2]} {colors[i % 2]} wool jacket",
            category="Clothing",
            price=10.0 + i,
            store=stores[i % 2],
            details={"Color": colors[i % 2], "Material": "wool"},
        )
        for i in range(12)
    ]
    return Catalogue({product.parent_asin: product for product in products})


def test_a_query_is_told_by_its_attributes(catalogue):
    assert query_pattern("navy jacket", catalogue) == "color + type"
    assert (
        query_pattern("navy wool jacket Kestrel premium", catalogue)
        == "brand + color + material + price + type"
    )
    assert query_pattern("jacket quickly", catalogue) == "other words + type"
    assert query_pattern("?", catalogue) == NOTHING


def test_the_most_frequent_patterns_of_two_methods_stand_side_by_side(catalogue):
    asks = [step(ASK, content="Which color would you like?"), step(ASK, content="And which brand?")]
    records = [
        record("a", [*asks, step(SEARCH, 0.5, query="navy jacket"), step(SEARCH, 1.0, query="red jacket")]),
        record("b", [step(SEARCH, 0.0, query="jacket"), step(SEARCH, 1.0, error="no", query="navy")]),
        record("c", [], outcome="not_evaluable"),
        record("a", [step(SEARCH, 0.5, query="jacket")], method="n"),
    ]
    table = frequent_patterns(records, lambda t: queries(t, catalogue))
    assert table["m"].to_numpy().tolist() == [["color + type", 0.5, 1.0], ["type", 0.5, 0.0]]
    assert table["n"].iloc[0].tolist() == ["type", 1.0, 0.5]
    asked = frequent_patterns(records, lambda t: questions(t, OfflineUpdater(catalogue)), n=1)
    assert asked["m", "pattern"].tolist() == ["color, brand"]
    assert asked["n", "pattern"].tolist() == [NOTHING]


def test_who_asks_the_same_on_every_task_is_seen(catalogue):
    color, brand = step(ASK, content="Which color would you like?"), step(ASK, content="And which brand?")
    records = [record(name, [color]) for name in "abc"] + [record("d", [brand, color])]
    records += [record("e", [], outcome="not_evaluable"), record("a", [brand], method="n")]
    always, other = sameness(records, OfflineUpdater(catalogue)).to_dict("records")
    assert always == {
        "method": "m", "most frequent": "color", "share": 0.75, "different": 2, "questions": 1.25,
    }  # fmt: skip
    assert other["most frequent"] == "brand" and other["share"] == 1
