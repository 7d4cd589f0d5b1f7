"""Transitions, attempts, problems, costs and their figures, by hand."""

import pytest

from pwagents.benchmark.sessions import (
    action_transitions,
    attempts_by_number,
    costs,
    plot_attempts,
    plot_transitions,
    problem_counts,
)
from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.notebook.figures import write_figure
from pwagents.schema import Action, Observation, Step, Trajectory, Usage

SEARCH, ASK, STOP = "search_product_by_query", "respond", "stop"


def step(name, result=None, error_kind="", usage=None, user_usage=None):
    shown = [f"B{i}" for i in range(round(10 * (1 - (result or 0.0))))] + ["the target"]
    return Step(
        action=Action(name=name, usage=usage),
        observation=Observation(text="", products=shown),
        error="wrong" if error_kind else "",
        error_kind=error_kind,
        user_usage=user_usage,
    )


def record(task_id, steps, task_type="search", method="m", outcome="scored"):
    trajectory = Trajectory(
        task_id=task_id,
        user_id="u",
        type=task_type,
        target="the target",
        steps=tuple(steps),
        similarities=(0.7,),
    )
    return EpisodeRecord(
        key=task_id, task_id=task_id, user_id="u", type=task_type, method=method, model="none", params={},
        outcome=outcome, seconds=0.0, trajectory=trajectory if outcome == "scored" else None,
    )  # fmt: skip


@pytest.fixture
def records():
    cost = Usage(calls=1, prompt_tokens=100, completion_tokens=10, usd=0.5)
    return [
        record(
            "a", [step(SEARCH, 0.2, usage=cost), step(ASK, user_usage=cost), step(SEARCH, 0.8), step(STOP)]
        ),
        record("b", [step("buy", error_kind="unknown_function"), step(SEARCH, 0.5, usage=cost), step(STOP)]),
        record("c", [step(STOP)]),
        record("d", [], outcome="infrastructure_error"),
        record("e", [step("add_product_review", 0.7)], "review"),
    ]


def test_transitions_count_from_start_to_end(records):
    frame = action_transitions(records).set_index(["type", "from", "to"])
    assert frame.loc[("search", "start", "search"), "count"] == 1
    assert frame.loc[("search", "start", "malformed"), "share"] == pytest.approx(1 / 3)
    assert frame.loc[("search", "search", "stop"), "share"] == pytest.approx(2 / 3)
    assert frame.loc[("search", "stop", "end"), "count"] == 3
    assert frame.loc[("review", "review", "end"), "share"] == 1.0
    assert frame.groupby(level=["type", "from"])["share"].sum().tolist() == pytest.approx([1.0] * 7)


def test_attempts_fare_one_by_one_and_at_best(records):
    frame = attempts_by_number(records).set_index(["type", "attempt"])
    assert frame.loc[("search", 1)].tolist() == pytest.approx([2, 0.35, 0.7 / 3])
    assert frame.loc[("search", 2)].tolist() == pytest.approx([1, 0.8, 1.3 / 3])
    assert frame.loc[("review", 1)].tolist() == pytest.approx([1, 0.7, 0.7])


def test_problems_are_counted_by_kind(records):
    (row,) = problem_counts({"m": records}).to_dict("records")
    assert (row["method"], row["steps"]) == ("m", 9)
    assert row["unknown function"] == 1 and row["empty"] == 0


def test_costs_are_means_of_a_scored_task(records):
    (row,) = costs({"m": records}).to_dict("records")
    assert (row["tasks"], row["calls"], row["US dollars"]) == (4, 0.5, 0.25)
    assert (row["prompt tokens"], row["user's tokens"], row["user's US dollars"]) == (50.0, 27.5, 0.125)


def test_there_is_no_table_of_nothing():
    """No call went wrong, no model was asked: a table would hold zeros alone."""
    runs = {"m": [record("a", [step(SEARCH, 0.2), step(STOP)])]}
    assert problem_counts(runs).empty and costs(runs).empty


def test_nothing_scored_gives_empty_tables():
    nothing = [record("d", [], outcome="not_evaluable")]
    for table in (action_transitions, attempts_by_number):
        assert table(nothing).empty and len(table(nothing).columns)
    assert problem_counts({"m": nothing}).empty and costs({"m": nothing}).empty
    for plot, table in ((plot_attempts, attempts_by_number), (plot_transitions, action_transitions)):
        (text,) = plot(table(nothing)).axes[0].texts
        assert text.get_text().startswith("no ")


def test_figures_are_written(records, tmp_path):
    transitions, attempts = action_transitions(records), attempts_by_number(records)
    write_figure(plot_transitions(transitions), tmp_path / "transitions.svg")
    write_figure(plot_attempts(attempts), tmp_path / "attempts.svg")
    assert len(list(tmp_path.iterdir())) == 2
