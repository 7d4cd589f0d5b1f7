"""The papers' numbers: complete, consistent, as printed; and our rows below them, whose they say they are."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pwagents.evaluation.metrics import GRADER_VERSION
from pwagents.evaluation.paper import Setup, below_paper, load_targets, paper_table, rank_rows

PAPERS = Path(__file__).resolve().parents[2] / "../shared/papers"
TEXTS = {"PersonalWAB": "001*.txt", "Orion": "000*.txt", "Persona2Web": "002*.txt"}
TEST_TASKS = {"search": 694, "recommend": 757, "review": 723}  # PersonalWAB's published test split
# Torn apart by the conversion of the PDF: its numbers stand on lines of their own.
TORN = ("PersonalWAB", "Table 3", "PUMA (LLaMA-7B)")
TABLES = [("PersonalWAB", f"Table {i}") for i in (3, 4, 5, 6)] + [("Orion", "Table 1"), ("Orion", "Table 2")]
RESULTS = ("function_accuracy", "step_accuracy", "result_official", "result_final", "steps")
COLUMNS = ["method", "task_id", "user_id", "type", *RESULTS, "tokens", "usd"]
NOTHING = pd.DataFrame(columns=COLUMNS)
SMALL = Setup("small model, 0.5M parameters", "embedded world")
FACTS = ["source", "row", "backbone", "data", "n", "grader", "tokens a task", "USD a task"]


def paper_text(paper):
    found = sorted(PAPERS.glob(TEXTS[paper])) if PAPERS.is_dir() else []
    if not found:
        pytest.skip(f"the text of the {paper} paper is not at hand ({PAPERS})")
    return found[0].read_text(encoding="utf-8")


def numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def same_name(printed, row):
    """Whether a printed row name is ``row``, without citation number, bold marks and spaces."""
    return re.sub(r"\[\d+\]|</?b>|\s", "", printed) == re.sub(r"\s", "", row)


def target(paper, table, row, column, task=""):
    return paper_table(paper, table).loc[row, (task, column)]


@pytest.mark.parametrize(
    ("paper", "table", "shape", "n_cells"),
    [
        ("PersonalWAB", "Table 1", (15, 3), 45),
        ("PersonalWAB", "Table 2", (8, 3), 13),
        ("PersonalWAB", "Table 3", (8, 8), 64),
        ("PersonalWAB", "Table 4", (9, 12), 108),
        ("PersonalWAB", "Table 5", (4, 8), 32),
        ("PersonalWAB", "Table 6", (3, 8), 24),
        ("PersonalWAB", "Figure 7", (2, 3), 3),
        ("Orion", "Table 1", (18, 9), 162),
        ("Orion", "Table 2", (5, 3), 15),
        ("Persona2Web", "summary", (1, 3), 3),
        ("Persona2Web", "Browser-Use, level 2", (15, 3), 26),
        ("Persona2Web", "AgentOccam, level 2", (3, 3), 6),
        ("Persona2Web", "levels", (3, 2), 4),
        ("Persona2Web", "history against profile", (2, 2), 4),
        ("Persona2Web", "meta-evaluation", (3, 4), 10),
        ("Persona2Web", "stability", (2, 2), 2),
        ("Persona2Web", "benchmark", (7, 2), 7),
    ],
)
def test_tables_are_complete(paper, table, shape, n_cells):
    wide = paper_table(paper, table)
    assert wide.shape == shape and wide.notna().sum().sum() == n_cells


def test_no_cell_twice_and_all_have_a_unit_a_source_and_a_tolerance():
    targets = load_targets()
    assert not targets.duplicated(["paper", "table", "row", "column", "task"]).any()
    units = {"text", "count", "tokens", "behaviours", "share", "percent", "steps", "seconds", "correlation"}
    assert set(targets["unit"]) == units
    assert targets.loc[targets["unit"] == "share", "value"].between(0, 1).all()
    sources = targets.groupby("paper")["source"].unique().map(set)
    assert sources["PersonalWAB"] == sources["Orion"] == {"paper"}
    assert sources["Persona2Web"] == {
        "summary", "third-party notes", "summary; setting by third-party notes",
    }  # fmt: skip
    assert all(each["ok"] <= each["noise"] for each in targets["tolerance"])
    targets["value"] = 0
    assert target("Orion", "Table 2", "w/o PD", "steps", "overall") == 6.4, "callers cannot change them"


def test_a_row_of_methods_names_the_command_that_makes_it_here(project_root):
    targets = load_targets()
    methods = targets[targets["table"].isin(["Table 3", "Table 4", "Table 5", "Table 6"])]
    methods = pd.concat([methods, targets.query("paper == 'Orion' or table.str.contains('level 2')")])
    notebooks = methods["command"].str.extract(r"notebooks?[ /](\d\d)")[0]
    assert notebooks.notna().all() and set(notebooks) == {"03", "04", "05", "06", "07", "09"}
    for name in set(methods["command"].str.extract(r"(notebooks/\w+\.ipynb)")[0].dropna()):
        assert (Path(project_root) / name).exists()
    assert (
        methods["command"].str.match(r"make reproduce(-full)? PRESET=paper|papermill .*-p preset paper").all()
    )


def test_every_row_of_numbers_is_a_line_of_the_paper():
    targets = load_targets()
    targets = targets[(targets["unit"] != "text") & targets["table"].str.startswith("Table")]
    for (paper, table, row), cells in targets.groupby(["paper", "table", "row"]):
        values = cells["value"].tolist()
        text = paper_text(paper)
        if (paper, table, row) == TORN:
            assert set(values) <= set(numbers(text))
        else:
            lines = [line for line in text.splitlines() if numbers(line)[-len(values) :] == values]
            # Table 2 names its rows in part by a heading beside them.
            if (paper, table) != ("PersonalWAB", "Table 2"):
                lines = [line for line in lines if same_name(line.split("\t")[0], row)]
            assert lines, (paper, table, row)


def test_text_cells_stand_beside_their_row_in_the_paper():
    targets = load_targets()
    cells = targets[(targets["paper"] == "PersonalWAB") & (targets["unit"] == "text")]
    cells = cells[cells["row"] != "PersonalWAB"]  # its line is torn apart in the text
    lines = [line.split("\t") for line in paper_text("PersonalWAB").splitlines() if "\t" in line]
    for row, group in cells.groupby("row"):
        kinds = group.set_index("column")["value"]
        expected = [kinds["interaction type"], kinds["environment type"]]
        assert any(line[0].startswith(row) and line[1:3] == expected for line in lines), row


@pytest.mark.parametrize("table", ["Table 3", "Table 4", "Table 5", "Table 6"])
def test_overall_is_the_mean_weighted_by_tasks(table):
    wide = paper_table("PersonalWAB", table)
    total = sum(TEST_TASKS.values())
    for column in wide["overall"]:
        weighted = sum(wide[task][column] * n for task, n in TEST_TASKS.items()) / total
        off = (wide["overall"][column] - weighted).abs()
        assert off.max() <= 0.005, f"{column}: {off[off > 0.005].to_dict()}"


def test_rows_that_stand_in_two_tables_agree():
    torn = paper_table("PersonalWAB", "Table 3").loc["PUMA (LLaMA-7B)"]
    assert torn.to_dict() == paper_table("PersonalWAB", "Table 5").loc["PUMA"].to_dict()
    pairs = {"Orion (Ours)": "Orion (Full Model)", "Qwen2.5-7B-Instruct (SFT)": "w/o RL (SFT only)"}
    for full, average in pairs.items():  # Orion's Table 2 is the mean over tasks of Table 1
        tasks = paper_table("Orion", "Table 1").loc[full]
        for column, value in paper_table("Orion", "Table 2").loc[average]["overall"].items():
            assert tasks[:, column].mean() == pytest.approx(value, abs=0.051)


@pytest.mark.parametrize(
    ("paper", "table", "row", "column", "task", "value"),
    [
        ("PersonalWAB", "Table 3", "PUMA (LLaMA-7B)", "result_accuracy", "search", 0.652),
        ("PersonalWAB", "Table 1", "RUSS", "interaction type", "", "Multi-turn"),
        ("PersonalWAB", "Table 2", "Products", "all", "", 8236),
        ("PersonalWAB", "Figure 7", "PUMA", "seconds", "", 2.8),
        ("PersonalWAB", "Figure 7", "GPT-based methods", "seconds (least)", "", 6.5),
        ("Persona2Web", "Browser-Use, level 2", "GPT-4.1 (on-demand)", "P_avg", "", 0.767),
        ("Persona2Web", "Browser-Use, level 2", "GPT-4.1 (no history)", "SR", "", 0.0),
        ("Persona2Web", "AgentOccam, level 2", "o3 (on-demand)", "SR", "", 0.07),
        ("Persona2Web", "levels", "level 1", "mean SR", "", 0.163),
        ("Persona2Web", "history against profile", "explicit profile", "SR", "", 0.25),
        ("Persona2Web", "meta-evaluation", "outcome", "Intent, accuracy", "", 0.70),
        ("Persona2Web", "stability", "three months", "change of SR", "", -10),
        ("Persona2Web", "benchmark", "history records", "number", "", 102_568),
    ],
)
def test_some_by_hand(paper, table, row, column, task, value):
    assert target(paper, table, row, column, task) == value


def test_what_the_summary_tells_stands_in_it():
    stated = numbers(paper_text("Persona2Web"))
    cells = load_targets().query(
        "paper == 'Persona2Web' and unit != 'text' and source != 'third-party notes'"
    )
    for value, unit in zip(cells["value"], cells["unit"], strict=True):
        in_percent = unit == "share" and round(100 * value, 6) in stated  # "23.8%"
        assert abs(value) in stated or in_percent, value


# --- ours below --------------------------------------------------------------------------------------


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
    assert set(ours["n"]) == {6} and set(ours["grader"]) == {f"pwagents, version {GRADER_VERSION}"}
    assert [*both.columns.get_level_values(0)[: len(FACTS)]] == FACTS
    assert not both[["source", "row", "backbone", "data", "grader"]].isna().any(axis=None)
    costs = both[["tokens a task", "USD a task"]]
    assert costs.iloc[-1].tolist() == [1000, 0.25] and costs[: len(theirs)].isna().all(axis=None)
    alone = below_paper(NOTHING, paper, table, SMALL)
    assert len(alone) == len(printed) and "here" not in set(alone["source"])


def test_printed_rows_tell_their_backbones_and_the_size_of_the_test_where_it_is_told():
    def facts(paper, table):
        return below_paper(NOTHING, paper, table, SMALL).set_index("row").droplevel(1, axis=1)

    assert facts("PersonalWAB", "Table 3").loc["PUMA (LLaMA-7B)", "backbone"] == "LLaMA-7B"
    table_4 = facts("PersonalWAB", "Table 4")["backbone"]
    assert (table_4["ReAct"], table_4["PUMA (gpt-4o)"]) == ("gpt-4o-mini", "gpt-4o")
    orion = facts("Orion", "Table 1")
    assert orion.loc["DeepSeek-V3 (CoT)", "backbone"] == "DeepSeek-V3" and orion["n"].isna().all()
    assert orion.loc["Orion (Ours)", "backbone"] == "Qwen2.5-7B-Instruct"
    assert set(facts("PersonalWAB", "Table 3")["n"]) == {2174}
    printed = ["PUMA (gpt-4o)", "PUMA (LLaMA-7B)"]
    assert list(below_paper(NOTHING, "PersonalWAB", "Table 3", SMALL, printed)["row"]) == printed


def test_each_paper_has_its_metrics_in_its_unit():
    row = below_paper(episodes("PUMA"), "PersonalWAB", "Table 3", Setup("", "embedded world")).iloc[-1]
    assert row["search", "function accuracy"] == 1 and row["search", "result accuracy"] == pytest.approx(0.4)
    assert (row["row", ""], row["backbone", ""], row["data", ""]) == ("PUMA", "none", "embedded world")
    row = below_paper(episodes("SFT"), "Orion", "Table 1", SMALL).iloc[-1]  # by step, the last attempt
    assert row["search", "function accuracy"] == 50 and row["search", "result accuracy"] == pytest.approx(20)
    assert row["search", "steps"] == 3


@pytest.mark.parametrize("types", [["search"], ["search", "review"]])
def test_what_was_not_played_has_no_column_and_a_mean_over_fewer_tasks_is_not_the_papers(types):
    some = episodes("SFT").query("type in @types")
    both = below_paper(some, "Orion", "Table 1", SMALL)
    assert [*both.drop(columns=FACTS, level=0).columns.unique(0)] == types
    assert "overall" not in below_paper(some, "Orion", "Table 2", SMALL).columns.unique(0)


def test_an_episode_without_a_score_does_not_count_and_its_mean_has_no_rank():
    some = episodes("PUMA", "w/o SFT")
    some.loc[0, list(RESULTS)] = None
    both = below_paper(some, "PersonalWAB", "Table 5", Setup("", "embedded world"))
    assert both["n"].tolist()[-2:] == [5, 6]
    assert both["search", "scored"].dropna().tolist() == ["1 of 2"]
    assert both["overall", "scored"].dropna().tolist() == ["5 of 6"]
    theirs, ours = rank_rows(both, "overall", "result accuracy").splitlines()
    expected = "PUMA 0.406, w/o DPO 0.399, w/o Task-specific Memory 0.373, w/o SFT 0.054"
    assert theirs == f"PersonalWAB, Table 5, result accuracy, overall, best first: {expected}"
    assert ours == "here, result accuracy, overall, best first: w/o SFT 0.5"
    assert rank_rows(both, "review", "steps") == "steps, review: not played here"
    by_result_alone = episodes("a reference").assign(function_accuracy=np.nan, steps=np.nan)
    row = below_paper(by_result_alone, "PersonalWAB", "Table 3", SMALL).iloc[-1]
    assert row["n", ""] == 6 and row["search", "result accuracy"] == pytest.approx(0.4)
