"""Tables of trained agents, by hand."""

import math

import pandas as pd
import pytest

from pwagents.data.synthetic.words import TaskTruth
from pwagents.data.synthetic.world import Truth
from pwagents.evaluation.metrics import grade
from pwagents.evaluation.records import EpisodeRecord
from pwagents.orion.views import (
    NOTHING,
    by_seed,
    frequent_patterns,
    profile_effect,
    queries,
    query_pattern,
    questions,
    with_ambiguity,
)
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.schema import Action, Observation, Product, Review, Step, Task, Trajectory
from pwagents.tasks.ambiguity import WordIndex

SEARCH, ASK = "search_product_by_query", "respond"


def step(name, result=None, error="", **arguments):
    action = Action(name=name, arguments=arguments)
    observation = Observation(text="")
    attempt = {"attempt": result is not None, "result_accuracy": result or 0.0}
    return Step(action=action, observation=observation, error=error, **attempt)


def record(task_id, steps, method="m", outcome="scored", user_id="u"):
    trajectory = Trajectory(task_id=task_id, user_id=user_id, type="search", steps=tuple(steps))
    return EpisodeRecord(
        key=task_id, task_id=task_id, user_id=user_id, type="search", method=method, model="none", params={},
        outcome=outcome, seconds=0.0, trajectory=trajectory if outcome == "scored" else None,
        grade=grade(trajectory) if outcome == "scored" else None,
    )  # fmt: skip


def frame(values, type_="search"):
    """Rows of (method, user, task) -> result accuracy; all else is 1."""
    keys = ["method", "user_id", "task_id"]
    rows = [dict(zip(keys, key, strict=True)) | {"result_final": value} for key, value in values.items()]
    return pd.DataFrame(rows).assign(type=type_, step_accuracy=1.0, steps=2.0)


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


def task(task_id, instruction, target):
    review = Review(rating=5)
    return Task(
        task_id=task_id, user_id="u", type="search", timestamp=1, instruction=instruction, target=target,
        review=review,
    )  # fmt: skip


def test_ambiguity_goes_from_what_says_most_to_what_says_least(catalogue):
    tasks = [task("vague", "I want a jacket", "B0"), task("clear", "The jacket with id B0", "B0")]
    wants = {"kind": "incomplete", "interest": "coats", "wants": {}, "stated": (), "in_history": ()}
    truth = Truth({}, {}, {"vague": TaskTruth(**wants, in_head=("color", "style"))})
    episodes = frame({("m", "u", "vague"): 0.0, ("m", "u", "clear"): 1.0})
    found = with_ambiguity(episodes, tasks, WordIndex(catalogue.products), truth)
    assert found[["task_id", "fitting"]].to_numpy().tolist() == [["clear", "1 to 3"], ["vague", "4 to 12"]]
    assert math.isnan(found["untold"][0]) and found["untold"][1] == 2
    assert with_ambiguity(episodes, tasks, WordIndex(catalogue.products), None)["untold"].isna().all()


def test_seeds_are_shown_and_pooled_by_task():
    rows = {("m", "u", "a"): 0.0, ("m", "v", "b"): 1.0}, {("m", "u", "a"): 1.0, ("m", "v", "b"): 1.0}
    both = pd.concat([frame(values).assign(seed=seed) for seed, values in enumerate(rows)])
    (row,) = by_seed(both, "result_final").to_dict("records")
    assert (row["seed 0"], row["seed 1"], row["mean"]) == (0.5, 1.0, 0.75)
    assert row["sd"] == pytest.approx(0.5 / 2**0.5)
    # tasks' means .5 and 1 of two users: standard error .25, t with 1 degree of freedom
    assert row["high"] - row["mean"] == pytest.approx(12.7062 * 0.25, rel=1e-4)


def test_the_gain_with_the_own_profile_is_compared_with_that_with_anothers():
    results = {
        "own": {"SFT": (0.4, 0.6), "RL": (0.8, 1.0)},
        "another user's": {"SFT": (0.3, 0.5), "RL": (0.4, 0.6)},
    }
    played = pd.concat(
        frame({(m, f"u{i}", f"t{i}"): v for m, values in runs.items() for i, v in enumerate(values)}).assign(
            profiles=profiles
        )
        for profiles, runs in results.items()
    )
    effect = profile_effect(played, "SFT", "RL", "result_final")
    assert effect["difference"].tolist() == pytest.approx([0.1, 0.4, 0.4, 0.0, 0.1, 0.3])
    assert set(effect["n_tasks"]) == {2}


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
        record("a", [step(SEARCH, 0.2, query="jacket")], method="n"),
    ]
    table = frequent_patterns(records, lambda t: queries(t, catalogue))
    assert table["m"].to_numpy().tolist() == [["color + type", 0.5, 1.0], ["type", 0.5, 1.0]]
    assert table["n"].iloc[0].tolist() == ["type", 1.0, 0.2]
    asked = frequent_patterns(records, lambda t: questions(t, OfflineUpdater(catalogue)), n=1)
    assert asked["m", "pattern"].tolist() == ["color, brand"]
    assert asked["n", "pattern"].tolist() == [NOTHING]
