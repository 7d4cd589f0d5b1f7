"""Results by task type and by what tasks are like, whole or in part, and methods compared."""

import pandas as pd
import pytest

from pwagents.results.statistics import by_task, by_type_and_mean, trained_differences
from pwagents.results.tables import save_table
from pwagents.schema import TASK_TYPES


def frame_of(rows):
    return pd.DataFrame(rows, columns=["method", "type", "user_id", "task_id", "m"])


def of_types(method, values, n=4):
    """``n`` tasks of each type, each of another user, with the type's value; None: not scored."""
    return [(method, t, f"u{i}", f"{t}{i}", v) for t, v in values.items() for i in range(n)]


def test_by_task_has_a_column_for_each_task_that_was_played_and_overall_of_several():
    rows = [("a", "search", "u1", "1", 1.0), ("a", "search", "u2", "2", 0.0), ("a", "review", "u1", "3", 0.5)]
    values, cells = by_task(frame_of([*rows, ("b", "search", "u", "1", 1.0)]), {"m": "metric"})
    assert values.loc["a", ("search", "metric")] == 0.5 and values.loc["a", ("overall", "metric")] == 0.5
    assert list(values.columns) == [(t, "metric") for t in ("search", "review", "overall")]
    assert cells.loc["a", ("search", "metric")].startswith("0.500 ±")
    assert pd.isna(values.loc["b", ("overall", "metric")]), "a method that played fewer types has no overall"
    alone, _ = by_task(frame_of(rows[:2]), {"m": "metric"})
    assert list(alone.columns.get_level_values(0).unique()) == ["search"]


def test_a_mean_over_part_of_its_tasks_says_so_in_csv_html_and_latex(tmp_path):
    rows = of_types("whole", {"search": 0.9, "recommend": 0.2, "review": 0.5})
    rows += of_types("half", {"search": 0.9, "recommend": None, "review": None})
    most = of_types("most", {"search": 0.9, "recommend": 0.2, "review": 0.5})
    frame = frame_of([*rows, (*most[0][:4], None), *most[1:]])
    frame["never"] = None  # a metric that nobody has says nothing of what was scored
    means, cells = by_task(frame, {"m": "metric", "never": "steps"})
    assert means["search", "scored"].dropna().to_dict() == {"most": "3 of 4"}
    assert means["review", "scored"].dropna().to_dict() == {"half": "0 of 4"}
    assert means["overall", "scored"].dropna().to_dict() == {"half": "4 of 12", "most": "11 of 12"}
    assert pd.isna(means.loc["half", ("overall", "metric")]), "no plain mean above a complete method's"
    assert means.loc["whole", ("overall", "metric")] == pytest.approx(1.6 / 3)
    save_table(means, "t", title="T", output_dir=tmp_path, shown=cells)
    csv, html, tex = ((tmp_path / "tables" / f"t.{kind}").read_text() for kind in ("csv", "html", "tex"))
    assert "search: scored" in csv and all("3 of 4" in text for text in (csv, html, tex))
    assert all("0.900 ±0.000, 1 not scored" in text for text in (html, tex))

    table = by_type_and_mean(frame, "m").set_index(["method", "type"])
    assert ("half", "mean") not in table.index and table.loc[("most", "mean"), "n_missing"] == 1
    assert table.loc[("whole", "mean"), "n_missing"] == 0
    nobody = frame[frame["method"] == "half"].query("type != 'recommend'")
    assert by_type_and_mean(nobody, "m")["type"].tolist() == ["search", "review"], "no mean of one type"
    (row, *_) = trained_differences(frame, {"a - b": ("whole", "most")}, "m").to_dict("records")
    assert (row["n_tasks"], row["n_left_out"]) == (3, 1)


def test_the_mean_of_the_types_weighs_each_type_alike():
    values = {"search": [1.0, 0.0, 0.5, 0.9], "review": [0.2, 0.6]}
    users = {"search": ["u", "v", "v", "w"], "review": ["u", "w"]}
    rows = [
        ("a", task, user, f"{task} {i}", value)
        for task in values
        for i, (user, value) in enumerate(zip(users[task], values[task], strict=True))
    ]
    table = by_type_and_mean(frame_of([*rows, ("b", "search", "u", "search 0", 1.0)]), "m")
    assert list(zip(table["method"], table["type"], strict=True)) == [
        ("a", "search"), ("a", "review"), ("a", "mean"), ("b", "search"),
    ]  # fmt: skip
    mean = table.iloc[2]
    assert mean["mean"] == pytest.approx((0.6 + 0.4) / 2) and mean["n_tasks"] == 6 and mean["n_users"] == 3
    # Each user's share in the error, by hand: residuals over 2 types x tasks of the type.
    shares = {"u": 0.4 / 8 - 0.2 / 4, "v": (-0.6 - 0.1) / 8, "w": 0.3 / 8 + 0.2 / 4}
    error = (3 / 2 * sum(share**2 for share in shares.values())) ** 0.5
    assert mean["high"] - mean["mean"] == pytest.approx(4.302653 * error, rel=1e-5)  # Student's t, 2 degrees


def test_comparisons_of_trained_policies_are_paired_by_type_and_have_no_p():
    rows = of_types("a", dict.fromkeys(TASK_TYPES, 0.6)) + of_types("b", dict.fromkeys(TASK_TYPES, 0.5))
    pairs = {"b - a": ("b", "a")}
    table = trained_differences(frame_of(rows), pairs, "m").set_index("task")
    assert table["difference"].to_dict() == pytest.approx(dict.fromkeys([*TASK_TYPES, "overall"], -0.1))
    assert table["n_tasks"].tolist() == [4, 4, 4, 12] and not {"p", "n_left_out"} & {*table}
    searches = trained_differences(frame_of(rows).query("type == 'search'"), pairs, "m")
    assert searches["task"].tolist() == ["search"]
