"""What tables of methods are made of: rows that are told apart, bounds, gains, outcomes."""

import pandas as pd
import pytest

from pwagents.benchmark import results
from pwagents.evaluation.episodes import EpisodeRecord
from pwagents.evaluation.paper import Setup
from pwagents.notebook.run import Run
from pwagents.schema import Action, Observation, Step, Trajectory


def record(task_id, query="mug", method="m", task_type="search", outcome="scored", seconds=1.0):
    action = Action(name="search_product_by_query", arguments={"query": query})
    step = Step(action=action, observation=Observation(text=""))
    fields = {"task_id": task_id, "user_id": "u", "type": task_type}
    return EpisodeRecord(
        key=task_id, method=method, model="none", params={}, outcome=outcome, seconds=seconds, **fields,
        trajectory=Trajectory(**fields, target="B1", steps=(step,)) if outcome == "scored" else None,
    )  # fmt: skip


def test_methods_with_the_same_episodes_are_one_row_and_the_note_names_them():
    runs = {"A": [record("1"), record("2")], "B": [record("1"), record("2", "cup")]}
    runs |= {"C": [record("1", seconds=9.0), record("2")], "D": [record("1", "cup"), record("2")]}
    rows, line = results.distinct(runs)
    assert list(rows) == ["A", "B", "D"] and rows["A"] is runs["A"]
    assert "A = C." in line and "B" not in line
    assert results.distinct(rows) == (rows, "")


def test_a_frame_of_runs_has_their_names():
    frame = results.frame_of({"A": [record("1", method="a")], "B": [record("1", method="b")]})
    assert list(frame["method"]) == ["A", "B"]


@pytest.fixture
def outcomes():
    """Two methods on two users' tasks under both protocols; only "with" gains by hindsight."""
    reached = {"without": (0.25, 0.25), "with": (0.5, 0.75)}
    rows = [
        (method, f"t{user}", f"u{user}", "search", values[protocol == "as_published"], protocol)
        for method, values in reached.items()
        for user in range(3)
        for protocol in results.PROTOCOLS
    ]
    columns = ["method", "task_id", "user_id", "type", "result_official", "protocol"]
    return pd.DataFrame(rows, columns=columns)


def test_gains_are_paired_by_task(outcomes):
    leak_free = outcomes[outcomes["protocol"] == "leak_free"]
    (gain,) = results.gains_of_memory(leak_free, "without").to_dict("records")
    assert (gain["method"], gain["task"], gain["difference"], gain["n_users"]) == ("with", "search", 0.25, 3)
    hindsight = results.gains_of_hindsight(outcomes).set_index("method")["difference"]
    assert hindsight.to_dict() == {"without": 0.0, "with": 0.25}


def test_prompting_tables_have_ours_in_rows_of_their_own():
    frame = results.frame_of({"No memory": [record("1")], "ChatShop": [record("1")]})
    frame = frame.assign(
        function_accuracy=1.0, step_accuracy=1.0, result_official=0.5, result_final=0.5, steps=1
    )
    tables = results.prompting_tables(frame, frame, Setup("gpt-4o", "embedded world"))
    shown = {table["name"]: table["data"] for table in tables}
    ours = {name: list(data.loc[data["source"] == "here", "row"]) for name, data in shown.items()}
    assert ours["table_3"] == ours["table_4"] == ["gpt-4o (No memory)"]
    assert ours["orion_table_1"] == ["gpt-4o (No memory)", "gpt-4o (ChatShop)"]
    assert [len(shown[name]) for name in ours] == [8 + 1, 9 + 1, 15 + 2]


def test_outcomes_are_a_table_where_something_was_not_scored_and_else_a_line(tmp_path, capsys):
    run = Run("03", tmp_path, None)
    frame = results.frame_of({"A": [record("1"), record("2")]})
    results.show_outcomes(run, frame, "outcomes", by=["method"])
    assert capsys.readouterr().out == "All 2 episodes were scored.\n" and not list(tmp_path.iterdir())
    frame = results.frame_of({"A": [record("1"), record("2", outcome="not_evaluable")]})
    results.show_outcomes(run, frame, "outcomes", by=["method"])
    saved = pd.read_csv(tmp_path / "tables" / "03_outcomes.csv")
    assert saved.to_dict("records") == [
        {"method": "A", "scored": 1, "infrastructure error": 0, "not evaluable": 1}
    ]


def test_seconds_of_some_tasks():
    runs = {"A": [record("1", seconds=2.0), record("2", seconds=4.0)]}
    wanted = [type("T", (), {"task_id": "2"})]
    assert list(results.seconds_per_task(runs, wanted)["seconds"]) == [4.0]
