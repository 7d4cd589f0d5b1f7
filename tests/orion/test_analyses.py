"""What agents ask and search for, by attributes; examples are chosen by a rule and show what they say."""

import pandas as pd
import pytest

from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.orion.analyses import (
    NOTHING,
    frequent_patterns,
    gains,
    judged_actions,
    longest_dialogue,
    most_questions,
    queries,
    query_pattern,
    questions,
    sameness,
    show_task,
)
from pwagents.orion.references import KNOWS, TEACHER, play_references
from pwagents.orion.runs import OrionRuns
from pwagents.profiles.catalogue import Catalogue
from pwagents.schema import Product, Trajectory

from .small_study import call, elsewhere, step


def search(result, query, **fields):
    shown = [*(f"B{i}" for i in range(round(10 * (1 - result)))), "the target"]
    return step(call("search", query=query), "", shown, **fields)


COLOR = step(call("ask", content="Which color would you like?"), "Navy.")
BRAND = step(call("ask", content="And which brand?"), "Any.")


def record(task_id, *steps, method="m", outcome="scored"):
    given = {"task_id": task_id, "user_id": "u", "type": "search"}
    trajectory = Trajectory(**given, target="the target", steps=steps) if outcome == "scored" else None
    told = {"key": task_id, "method": method, "model": "none", "params": {}, "seconds": 0.0}
    return EpisodeRecord(**given, **told, outcome=outcome, trajectory=trajectory)


@pytest.fixture(scope="module")
def catalogue():
    products = {}
    for i in range(12):
        color, store = (("navy", "Kestrel"), ("red", "Willow"))[i % 2]
        told = {"details": {"Color": color, "Material": "wool"}, "price": 10.0 + i, "category": "Clothing"}
        title = f"{store} {color} wool jacket"
        products[f"B{i}"] = Product(parent_asin=f"B{i}", title=title, store=store, **told)
    return Catalogue(products)


@pytest.mark.parametrize(
    ("query", "pattern"),
    [
        ("navy jacket", "color + type"),
        ("navy wool jacket Kestrel premium", "brand + color + material + price + type"),
        ("jacket quickly", "other words + type"),
        ("?", NOTHING),
    ],
)
def test_a_query_is_told_by_its_attributes(catalogue, query, pattern):
    assert query_pattern(query, catalogue) == pattern


def test_the_most_frequent_patterns_of_two_methods_stand_side_by_side(catalogue):
    records = [
        record("a", COLOR, BRAND, search(0.5, "navy jacket"), search(1.0, "red jacket")),
        record("b", search(0.0, "jacket"), search(1.0, "navy", error="no")),
        record("c", outcome="not_evaluable"),
        record("a", search(0.5, "jacket"), method="n"),
    ]
    table = frequent_patterns(records, lambda t: queries(t, catalogue))
    assert table["m"].to_numpy().tolist() == [["color + type", 0.5, 1.0], ["type", 0.5, 0.0]]
    assert table["n"].iloc[0].tolist() == ["type", 1.0, 0.5]
    asked = frequent_patterns(records, lambda t: questions(t, catalogue), n=1)
    assert (asked["m", "pattern"].tolist(), asked["n", "pattern"].tolist()) == (["color, brand"], [NOTHING])


def test_who_asks_the_same_on_every_task_is_seen(catalogue):
    records = [record(name, COLOR) for name in "abc"] + [record("d", BRAND, COLOR)]
    records += [record("e", outcome="not_evaluable"), record("a", BRAND, method="n")]
    always, other = sameness(records, catalogue).to_dict("records")
    told = {"most frequent": "color", "share": 0.75, "different": 2, "questions": 1.25}
    assert always == {"method": "m"} | told and (other["most frequent"], other["share"]) == ("brand", 1)


def test_the_judge_scores_actions_alike_whatever_the_target_is(study):
    state, scores = judged_actions(study, 2)
    assert state.instruction and scores["score"].tolist() == scores["with another target"].tolist()
    by_action = scores.set_index("action")["score"]
    assert by_action["stops at once"] == -1 < by_action["asks nothing in particular"] < 0
    assert by_action["searches for what is to be avoided"] == -1


def test_examples_are_the_longest_and_a_task_is_shown_as_several_methods_played_it(study, models, tmp_path):
    role_play = models.role_play(4)
    task, longest = most_questions(study, role_play, 4)
    assert task.task_id == longest.task_id
    assert len(longest.trajectory.steps) == max(len(each.trajectory.steps) for each in role_play.kept)
    assert "respond" in longest_dialogue(models.base_text)
    played = play_references(OrionRuns(elsewhere(study, tmp_path)), 2)
    task = study.test_tasks[0]
    page = show_task(study, {name: played[name] for name in (TEACHER, KNOWS)}, task.task_id).data
    assert page.index(TEACHER) < page.index(KNOWS) and task.instruction.split(".")[0] in page


def test_gains_leave_out_what_was_not_scored():
    rows = [("a", "t1", 0.2), ("b", "t1", 0.9), ("a", "t2", 0.5), ("b", "t2", None)]
    frame = pd.DataFrame(rows, columns=["method", "task_id", "result_final"])
    assert gains(frame, "a", "b").to_dict() == {"t1": pytest.approx(0.7)}
