"""Notebook 03's analyses by hand: rows, gains, transitions, attempts, problems, costs."""

import pandas as pd
import pytest

from pwagents.notebook import Run
from pwagents.schema import Action, Observation, Step, Trajectory, Usage
from pwagents.store import Episode
from pwagents_old.benchmark import analyses_03 as analyses

SEARCH, ASK, STOP = "search_product_by_query", "respond", "stop"


def step(name=SEARCH, result=0.0, query="mug", error_kind="", usage=None, user_usage=None):
    """A step whose result has the target at the rank that is worth ``result``."""
    products = [f"B{i}" for i in range(round(10 * (1 - result)))] + ["the target"]
    return Step(
        action=Action(name=name, arguments={"query": query}, usage=usage),
        observation=Observation(text="", products=products),
        error="wrong" if error_kind else "",
        error_kind=error_kind,
        user_usage=user_usage,
    )


def record(task_id, *steps, task_type="search", method="m", outcome="scored", seconds=0.0):
    fields = {"task_id": task_id, "user_id": "u", "type": task_type}
    trajectory = Trajectory(**fields, target="the target", steps=steps, similarities=(0.7,))
    return Episode(
        key=task_id, method=method, model="none", params={}, outcome=outcome, seconds=seconds, **fields,
        trajectory=trajectory if outcome == "scored" else None,
    )  # fmt: skip


def test_gains_are_paired_by_task():
    reached = {"without": (0.25, 0.25), "with": (0.5, 0.75)}  # only "with" gains by hindsight
    rows = [
        (method, f"t{user}", f"u{user}", "search", values[protocol == "published"], protocol)
        for method, values in reached.items()
        for user in range(3)
        for protocol in analyses.PROTOCOLS
    ]
    columns = ["method", "task_id", "user_id", "type", "result_official", "protocol"]
    outcomes = pd.DataFrame(rows, columns=columns)
    (gain,) = analyses.gains_of_memory(outcomes.query("protocol == 'leak_free'"), "without").to_dict(
        "records"
    )
    assert (gain["method"], gain["task"], gain["difference"], gain["n_users"]) == ("with", "search", 0.25, 3)
    hindsight = analyses.gains_of_hindsight(outcomes).set_index("method")["difference"]
    assert hindsight.to_dict() == {"without": 0.0, "with": 0.25}


def test_outcomes_are_a_table_where_something_was_not_scored_and_else_a_line(tmp_path, capsys):
    run, scored = Run("03", tmp_path, None), [record("1", step()), record("2", step())]
    run.show_outcomes(analyses.frame_of({"A": scored}), "outcomes", by=["method"])
    assert capsys.readouterr().out == "All 2 episodes were scored.\n" and not list(tmp_path.iterdir())
    partly = [*scored, record("3", outcome="not_evaluable")]
    run.show_outcomes(analyses.frame_of({"A": partly}), "outcomes", by=["method"])
    (saved,) = pd.read_csv(tmp_path / "tables" / "03_outcomes.csv").to_dict("records")
    assert (saved["scored"], saved["infrastructure error"], saved["not evaluable"]) == (2, 0, 1)
    ended = {"end": "refused", "message": "no"}  # scored, yet 0 for a reason that the table must tell
    refused = scored[0].model_copy(update={"trajectory": scored[0].trajectory.model_copy(update=ended)})
    run.show_outcomes(analyses.frame_of({"A": [refused], "B": scored}), "outcomes", by=["method"])
    saved = pd.read_csv(tmp_path / "tables" / "03_outcomes.csv").set_index("method")
    assert saved["scored"].tolist() == [1, 2] and saved["of these refused by its model"].tolist() == [1, 0]
    run.show_outcomes(analyses.frame_of({"A": scored}), "outcomes", by=["method"])  # what failed was mended
    assert not list((tmp_path / "tables").iterdir())


@pytest.fixture
def records():
    cost = Usage(calls=1, prompt_tokens=100, completion_tokens=10, usd=0.5)
    return [
        record("a", step(result=0.2, usage=cost), step(ASK, user_usage=cost), step(result=0.8), step(STOP)),
        record("b", step("buy", error_kind="unknown_function"), step(result=0.5, usage=cost), step(STOP)),
        record("c", step(STOP)),
        record("d", outcome="infrastructure_error"),
        record("e", step("add_product_review"), task_type="review"),
    ]


def test_problems_are_counted_by_kind_and_costs_are_means_of_a_scored_task(records):
    (problems,) = analyses.problem_counts({"m": records}).to_dict("records")
    assert (problems["steps"], problems["unknown function"], problems["empty"]) == (9, 1, 0)
    (row,) = analyses.costs({"m": records}).to_dict("records")
    assert (row["tasks"], row["calls"], row["US dollars"]) == (4, 0.5, 0.25)
    assert (row["prompt tokens"], row["user's tokens"], row["user's US dollars"]) == (50.0, 27.5, 0.125)
