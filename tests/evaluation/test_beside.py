"""The papers' tables with ours beside: the right row, the right column, and nothing invented."""

import pandas as pd
import pytest

from pwagents.evaluation import tables
from pwagents.evaluation.paper import beside, orion_table_1, table_3, table_4

METRICS = ("function_accuracy", "step_accuracy", "result_official", "result_final", "steps")
COLUMNS = ["method", "task_id", "user_id", "type", *METRICS]
NOTHING = pd.DataFrame(columns=COLUMNS)


def episodes(*methods):
    rows = []
    for i, method in enumerate(methods):
        for task_type in ("search", "recommend", "review"):
            for user in ("u", "v"):
                values = (1.0, 0.5, 0.4 + 0.1 * i, 0.2, 3.0)
                rows.append((method, f"{user}-{task_type}", user, task_type, *values))
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.mark.parametrize(("table", "rows"), [(table_3, 8), (table_4, 9), (orion_table_1, 15)])
def test_what_was_not_run_stays_empty(table, rows, tmp_path):
    frame = table(NOTHING, "gpt-4o")
    here = frame.xs("here", axis=1, level=1)
    assert len(frame) == rows and here.isna().all(axis=None)
    assert frame.xs("paper", axis=1, level=1).notna().all(axis=None)
    tables.save_table(frame, "t", title="T", output_dir=tmp_path, missing="not run")
    assert (tmp_path / "tables" / "t.html").read_text().count("not run") == here.size


def test_a_backbone_of_the_paper_fills_its_rows_and_another_gets_its_own():
    frame = table_3(episodes("No memory", "ReAct", "ChatShop"), "gpt-4o")
    filled = frame.xs("here", axis=1, level=1).dropna()
    assert list(filled.index) == ["No Memory (gpt-4o)", "ReAct (gpt-4o)"] and len(frame) == 8
    assert frame.loc["ReAct (gpt-4o)", ("search, result accuracy", "here")] == pytest.approx(0.5)
    assert frame.loc["ReAct (gpt-4o)", ("search, result accuracy", "paper")] == 0.605
    other = table_3(episodes("No memory"), "qwen")
    assert list(other.index[8:]) == ["No Memory (qwen)"]
    assert other.loc["No Memory (qwen)"].xs("paper", level=1).isna().all()


def test_table_4_takes_the_appendix_at_its_word_on_the_backbone():
    frame = table_4(episodes("No memory", "PUMA (prompted)"), "gpt-4o-mini")
    filled = frame.xs("here", axis=1, level=1).dropna(how="all")
    assert list(filled.index) == ["No Memory", "PUMA (gpt-4o-mini)"]
    assert filled.loc["No Memory", "overall, steps"] == 3.0


def test_orions_rows_are_in_percent_by_step_and_by_the_last_attempt():
    frame = orion_table_1(episodes("No memory", "Chain of thought"), "deepseek-v3")
    row = frame.loc["DeepSeek-V3 (CoT)"]
    assert row["search, function accuracy", "here"] == 50.0
    assert row["search, result accuracy", "here"] == pytest.approx(20.0)
    assert row["search, steps", "paper"] == 7.2
    assert len(frame) == 15 and "Orion (Ours)" not in frame.index


def test_papers_numbers_and_ours_stand_side_by_side():
    table = beside(
        episodes("PUMA", "w/o SFT"), "PersonalWAB", "Table 5", {"PUMA": "PUMA", "w/o SFT": "w/o SFT"}
    )
    cell = table.loc["PUMA", "search, result accuracy"]
    assert cell["paper"] == 0.652 and cell["here"] == pytest.approx(0.4)
    assert table.loc["w/o SFT", ("overall, result accuracy", "here")] == pytest.approx(0.5)
    assert table.loc["w/o DPO", "search, result accuracy"].isna()["here"]
    assert list(table.index) == ["PUMA", "w/o Task-specific Memory", "w/o SFT", "w/o DPO"]


def test_a_row_that_the_paper_lacks_stands_alone():
    table = beside(episodes("PUMA"), "PersonalWAB", "Table 6", {"PUMA": "96 (small model)"})
    row = table.loc["96 (small model)", "search, function accuracy"]
    assert row["here"] == 1 and pd.isna(row["paper"])


SEARCHES = episodes("SFT").query("type == 'search'").assign(result_final=[0.5, 1.0])


def test_orions_rows_stand_beside_ours_in_percent():
    table = beside(SEARCHES, "Orion", "Table 1", {"SFT": "Qwen2.5-7B-Instruct (SFT)"}, others=False)
    assert list(table.index) == ["Qwen2.5-7B-Instruct (SFT)"]
    row = table.iloc[0]
    assert row["search, result accuracy", "here"] == 75.0
    assert row["search, result accuracy", "paper"] == 55.5
    assert row["search, function accuracy", "paper"] == 90.5
    assert pd.isna(row["review, steps", "here"])


@pytest.mark.parametrize("types", [["search"], ["search", "review"]])
def test_a_mean_over_fewer_tasks_is_not_set_beside_the_papers(types):
    ours = episodes("SFT")
    rows = {"SFT": "w/o RL (SFT only)"}
    row = beside(ours[ours["type"].isin(types)], "Orion", "Table 2", rows, others=False).iloc[0]
    assert row["overall, result accuracy", "paper"] == 34.7
    assert pd.isna(row["overall, result accuracy", "here"])
    row = beside(ours, "Orion", "Table 2", rows, others=False).iloc[0]
    assert row["overall, result accuracy", "here"] == pytest.approx(20.0)
