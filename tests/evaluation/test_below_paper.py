"""The papers' tables with ours below: whose each row is, the right column and unit, and nothing invented."""

import numpy as np
import pandas as pd
import pytest

from pwagents.evaluation.metrics import GRADER_VERSION
from pwagents.evaluation.paper import Setup, below_paper, paper_table, rank_rows

METRICS = ("function_accuracy", "step_accuracy", "result_official", "result_final", "steps")
COLUMNS = ["method", "task_id", "user_id", "type", *METRICS, "tokens", "usd"]
NOTHING = pd.DataFrame(columns=COLUMNS)
SMALL = Setup("small model, 0.5M parameters", "embedded world")
FACTS = ["source", "row", "backbone", "data", "n", "grader", "tokens a task", "USD a task"]
TABLES = [
    ("PersonalWAB", "Table 3"),
    ("PersonalWAB", "Table 4"),
    ("PersonalWAB", "Table 5"),
    ("PersonalWAB", "Table 6"),
    ("Orion", "Table 1"),
    ("Orion", "Table 2"),
]


def episodes(*methods):
    rows = []
    for i, method in enumerate(methods):
        for task_type in ("search", "recommend", "review"):
            for user in ("u", "v"):
                values = (1.0, 0.5, 0.4 + 0.1 * i, 0.2, 3.0, 1000.0 + (user == "v"), 0.25)
                rows.append((method, f"{user}-{task_type}", user, task_type, *values))
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_no_row_holds_numbers_of_both(paper, table):
    both = below_paper(episodes("PUMA", "SFT"), paper, table, SMALL)
    printed = paper_table(paper, table)
    theirs, ours = both[both["source"] != "here"], both[both["source"] == "here"]
    assert list(theirs["row"]) == list(printed.index)
    assert (theirs.drop(columns=FACTS, level=0).to_numpy() == printed.to_numpy()).all()
    assert set(theirs["source"]) == {f"{paper}, {table}"} and set(theirs["grader"]) == {"the paper's"}
    assert list(ours["row"]) == [f"{SMALL.backbone} (PUMA)", f"{SMALL.backbone} (SFT)"]
    assert not set(ours["row"]) & set(printed.index)
    assert set(ours["n"]) == {6} and set(ours["grader"]) == {f"pwagents, version {GRADER_VERSION}"}
    assert [*both.columns.get_level_values(0)[: len(FACTS)]] == FACTS
    assert not both[["source", "row", "backbone", "data", "grader"]].isna().any(axis=None)
    headings = {heading for column in both.columns for heading in column}
    assert not headings & {"paper", "here"}, "no column beside another one's"


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_without_episodes_there_are_the_papers_rows_alone(paper, table):
    both = below_paper(NOTHING, paper, table, SMALL)
    assert len(both) == len(paper_table(paper, table)) and "here" not in set(both["source"])


def test_printed_rows_tell_their_backbones():
    def backbones(paper, table):
        both = below_paper(NOTHING, paper, table, SMALL)
        return dict(zip(both["row"], both["backbone"], strict=True))

    assert backbones("PersonalWAB", "Table 3")["PUMA (LLaMA-7B)"] == "LLaMA-7B"
    table_4 = backbones("PersonalWAB", "Table 4")
    assert (table_4["ReAct"], table_4["PUMA (gpt-4o)"]) == ("gpt-4o-mini", "gpt-4o")
    assert set(backbones("PersonalWAB", "Table 5").values()) == {"LLaMA-7B"}
    orion = backbones("Orion", "Table 1")
    assert orion["DeepSeek-V3 (CoT)"] == "DeepSeek-V3"
    assert orion["Orion (Ours)"] == orion["Qwen2.5-7B-Instruct (SFT)"] == "Qwen2.5-7B-Instruct"
    assert set(backbones("Orion", "Table 2").values()) == {"Qwen2.5-7B-Instruct"}


def test_the_size_of_the_papers_test_is_told_where_it_is_known():
    assert set(below_paper(NOTHING, "PersonalWAB", "Table 3", SMALL)["n"]) == {2174}
    assert below_paper(NOTHING, "Orion", "Table 1", SMALL)["n"].isna().all()


def test_personalwab_has_shares_of_the_best_attempt():
    row = below_paper(episodes("PUMA"), "PersonalWAB", "Table 3", SMALL).iloc[-1]
    assert row["search", "function accuracy"] == 1 and row["search", "result accuracy"] == pytest.approx(0.4)
    assert row["overall", "result accuracy"] == pytest.approx(0.4)


def test_orion_is_in_percent_by_step_and_by_the_last_attempt():
    row = below_paper(episodes("SFT"), "Orion", "Table 1", SMALL).iloc[-1]
    assert row["search", "function accuracy"] == 50.0
    assert row["search", "result accuracy"] == pytest.approx(20.0) and row["search", "steps"] == 3.0


def test_rows_without_a_model_have_none_as_their_backbone():
    row = below_paper(episodes("Plain agent"), "PersonalWAB", "Table 3", Setup("", "embedded world")).iloc[-1]
    assert (row["row", ""], row["backbone", ""], row["data", ""]) == ("Plain agent", "none", "embedded world")


def test_what_a_task_cost_is_told_of_our_rows():
    costs = below_paper(episodes("PUMA"), "PersonalWAB", "Table 3", SMALL)[["tokens a task", "USD a task"]]
    assert costs.iloc[-1].tolist() == [1000, 0.25] and costs.iloc[:-1].isna().all(axis=None)


def test_some_of_the_printed_rows():
    printed = ["PUMA (gpt-4o)", "PUMA (LLaMA-7B)"]
    assert list(below_paper(NOTHING, "PersonalWAB", "Table 3", SMALL, printed)["row"]) == printed


@pytest.mark.parametrize("types", [["search"], ["search", "review"]])
def test_what_was_not_played_has_no_column_and_a_mean_over_fewer_tasks_is_not_the_papers(types):
    some = episodes("SFT").query("type in @types")
    both = below_paper(some, "Orion", "Table 1", SMALL)
    assert [*both.drop(columns=FACTS, level=0).columns.unique(0)] == types
    overall = below_paper(some, "Orion", "Table 2", SMALL)
    assert overall.drop(columns=FACTS, level=0).empty or "overall" not in overall.columns.unique(0)


def test_the_order_of_rows_is_told_from_the_numbers_themselves():
    both = below_paper(episodes("PUMA", "w/o SFT"), "PersonalWAB", "Table 5", Setup("", "embedded world"))
    theirs, ours = rank_rows(both, "overall", "result accuracy").splitlines()
    expected = "PUMA 0.406, w/o DPO 0.399, w/o Task-specific Memory 0.373, w/o SFT 0.054"
    assert theirs == f"PersonalWAB, Table 5, result accuracy, overall, best first: {expected}"
    assert ours == "here, result accuracy, overall, best first: w/o SFT 0.5, PUMA 0.4"
    alone = below_paper(episodes("PUMA").query("type == 'search'"), "PersonalWAB", "Table 5", SMALL)
    assert rank_rows(alone, "overall", "result accuracy") == "result accuracy, overall: not played here"


def test_an_episode_without_a_score_does_not_count():
    some = episodes("SFT")
    some.loc[0, list(METRICS)] = None
    assert below_paper(some, "Orion", "Table 1", SMALL)["n"].iloc[-1] == 5
    graded_by_result_alone = episodes("a reference").assign(function_accuracy=np.nan, steps=np.nan)
    row = below_paper(graded_by_result_alone, "PersonalWAB", "Table 3", SMALL).iloc[-1]
    assert row["n", ""] == 6 and row["search", "result accuracy"] == pytest.approx(0.4)
