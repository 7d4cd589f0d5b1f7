"""What agents ask and search for, by attributes; examples are chosen by a rule and show what they say."""

import pandas as pd
import pytest

from pwagents.orion.analyses import (
    NOTHING,
    frequent_patterns,
    gains,
    queries,
    questions,
    sameness,
)
from pwagents.schema import Review, Task

from . import small_study
from .small_study import call, step


def search(result, query, **fields):
    shown = [*(f"B{i}" for i in range(round(10 * (1 - result)))), "the target"]
    return step(call("search", query), "", shown, **fields)


COLOR = step(call("ask", "Which color would you like?"), "Navy.")
BRAND = step(call("ask", "And which brand?"), "Any.")


def record(task_id, *steps, **told):
    given = {"task_id": task_id, "user_id": "u", "type": "search", "timestamp": 1, "instruction": "go"}
    task = Task(**given, target="the target", review=Review(rating=5))
    return small_study.record(task, steps, **told)


def test_the_most_frequent_patterns_of_two_methods_stand_side_by_side(catalogue):
    records = [
        record("a", COLOR, BRAND, search(0.5, "navy towel"), search(1.0, "white towel")),
        record("b", search(0.0, "towel"), search(1.0, "navy", error="no")),
        record("c", outcome="not_evaluable"),
        record("a", search(0.5, "navy cotton towel Willow premium"), method="n"),
        record("b", search(0.5, "?"), search(0.5, "towel quickly"), method="n"),
    ]
    table = frequent_patterns(records, lambda t: queries(t, catalogue))
    assert table["m"].dropna().to_numpy().tolist() == [["color + type", 0.5, 1.0], ["type", 0.5, 0.0]]
    assert table["n"]["pattern"].tolist() == [
        "brand + color + material + price + type",
        NOTHING,
        "other words + type",
    ]
    asked = frequent_patterns(records, lambda t: questions(t, catalogue), n=1)
    assert (asked["m", "pattern"].tolist(), asked["n", "pattern"].tolist()) == (["color, brand"], [NOTHING])


def test_who_asks_the_same_on_every_task_is_seen(catalogue):
    records = [record(name, COLOR) for name in "abc"] + [record("d", BRAND, COLOR)]
    records += [record("e", outcome="not_evaluable"), record("a", BRAND, method="n")]
    always, other = sameness(records, catalogue).to_dict("records")
    told = {"most frequent": "color", "share": 0.75, "different": 2, "questions": 1.25}
    assert always == {"method": "m"} | told and (other["most frequent"], other["share"]) == ("brand", 1)


def test_gains_leave_out_what_was_not_scored():
    rows = [("a", "t1", 0.2), ("b", "t1", 0.9), ("a", "t2", 0.5), ("b", "t2", None)]
    frame = pd.DataFrame(rows, columns=["method", "task_id", "result_final"])
    assert gains(frame, "a", "b").to_dict() == {"t1": pytest.approx(0.7)}
