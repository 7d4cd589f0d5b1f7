"""What happens within episodes, by hand: transitions and attempts."""

import pytest

from pwagents.results.episodes import BEST, EACH, action_transitions, attempts_by_number
from pwagents.schema import Action, Observation, Step, Trajectory
from pwagents.store import Episode

SEARCH, ASK, STOP = "search_product_by_query", "respond", "stop"


def step(name=SEARCH, result=0.0, error_kind=""):
    """A step whose result has the target at the rank that gives the accuracy ``result``."""
    products = [f"B{i}" for i in range(round(10 * (1 - result)))] + ["the target"]
    return Step(
        action=Action(name=name, arguments={"query": "mug"}),
        observation=Observation(text="", products=products),
        error="wrong" if error_kind else "",
        error_kind=error_kind,
    )


def record(task_id, *steps, task_type="search", outcome="scored"):
    fields = {"task_id": task_id, "user_id": "u", "type": task_type}
    trajectory = Trajectory(**fields, target="the target", steps=steps, similarities=(0.7,))
    played = trajectory if outcome == "scored" else None
    names = {"method": "m", "model": "none", "params": {}}
    return Episode(key=task_id, outcome=outcome, seconds=0.0, trajectory=played, **names, **fields)


RECORDS = [
    record("a", step(result=0.2), step(ASK), step(result=0.8), step(STOP)),
    record("b", step("buy", error_kind="unknown_function"), step(result=0.5), step(STOP)),
    record("c", step(STOP)),
    record("d", outcome="infrastructure_error"),
    record("e", step("add_product_review"), task_type="review"),
]


def test_attempts_are_averaged_by_number_and_at_best():
    frame = attempts_by_number(RECORDS).set_index(["type", "attempt", "counts"])
    assert frame.loc[("search", 1, EACH)].tolist() == pytest.approx([2, 0.35])
    assert frame.loc[("search", 2, EACH)].tolist() == pytest.approx([1, 0.8])
    assert frame.loc["review"]["result_accuracy"].tolist() == pytest.approx([0.7, 0.7])
    best = frame.xs(BEST, level="counts").loc["search"]["result_accuracy"]
    assert best.tolist() == pytest.approx([0.7 / 3, 1.3 / 3])


def test_transitions_are_shares_of_what_follows_an_action():
    counts = action_transitions(RECORDS).set_index(["type", "from", "to"])["share"].sort_index()
    first = dict.fromkeys(("search", "malformed", "stop"), 1 / 3)
    assert counts["search", "start"].to_dict() == pytest.approx(first)
    assert counts["search", "search"].to_dict() == pytest.approx({"respond": 1 / 3, "stop": 2 / 3})
    assert counts["search", "malformed", "search"] == counts["search", "stop", "end"] == 1
    assert counts["review", "review", "end"] == 1
