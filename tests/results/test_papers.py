"""The papers' numbers: complete, consistent, as printed; and our rows below them, whose they say they are."""

import re
from pathlib import Path

import pandas as pd
import pytest

from pwagents.orion.baselines import BASELINES
from pwagents.results.papers import below_paper, load_targets, paper_table, with_prompted
from pwagents.shop.score import GRADER_VERSION

PAPERS = Path(__file__).resolve().parents[2] / "../shared/papers"
TEXTS = {"PersonalWAB": "001*.txt", "Orion": "000*.txt", "Persona2Web": "002*.txt"}
TEST_TASKS = {"search": 694, "recommend": 757, "review": 723}  # PersonalWAB's published test split
# Torn apart by the conversion of the PDF: its numbers stand on lines of their own.
TORN = ("PersonalWAB", "Table 3", "PUMA (LLaMA-7B)")
RESULTS = ("function_accuracy", "step_accuracy", "result_official", "result_final", "steps")
COLUMNS = ["method", "task_id", "user_id", "type", *RESULTS, "tokens", "usd"]
SMALL = ("small model, 0.5M parameters", "embedded world")  # backbone and data
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


def test_no_cell_is_lost_or_stands_twice():
    targets = load_targets()
    assert targets.groupby("paper").size().to_dict() == {"Orion": 177, "Persona2Web": 62, "PersonalWAB": 289}
    assert not targets.duplicated(["paper", "table", "row", "column", "task"]).any()


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


@pytest.mark.parametrize("table", ["Table 3", "Table 4", "Table 5", "Table 6"])
def test_overall_is_the_mean_weighted_by_tasks(table):
    wide = paper_table("PersonalWAB", table)
    total = sum(TEST_TASKS.values())
    for column in wide["overall"]:
        weighted = sum(wide[task][column] * n for task, n in TEST_TASKS.items()) / total
        off = (wide["overall"][column] - weighted).abs()
        assert off.max() <= 0.005, f"{column}: {off[off > 0.005].to_dict()}"


def test_what_the_summary_tells_stands_in_it():
    stated = numbers(paper_text("Persona2Web"))
    told = "paper == 'Persona2Web' and unit != 'text' and source != 'third-party notes'"
    cells = load_targets().query(told)
    for value, unit in zip(cells["value"], cells["unit"], strict=True):
        in_percent = unit == "share" and round(100 * value, 6) in stated  # "23.8%"
        assert abs(value) in stated or in_percent, value


# Ours below


def episodes(*methods):
    rows = []
    for i, method in enumerate(methods):
        for task_type in ("search", "recommend", "review"):
            for user in ("u", "v"):
                values = (1.0, 0.5, 0.4 + 0.1 * i, 0.2, 3.0, 1000.0 + (user == "v"), 0.25)
                rows.append((method, f"{user}-{task_type}", user, task_type, *values))
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.mark.parametrize(("paper", "table"), [("PersonalWAB", "Table 3"), ("Orion", "Table 2")])
def test_no_row_holds_numbers_of_both(paper, table):
    both = below_paper(episodes("PUMA", "SFT"), paper, table, *SMALL)
    printed = paper_table(paper, table)
    theirs, ours = both[both["source"] != "here"], both[both["source"] == "here"]
    assert list(theirs["row"]) == list(printed.index)
    assert (theirs.drop(columns=FACTS, level=0).to_numpy() == printed.to_numpy()).all()
    assert set(theirs["source"]) == {f"{paper}, {table}"} and set(theirs["grader"]) == {"the paper's"}
    assert list(ours["row"]) == [f"{SMALL[0]} (PUMA)", f"{SMALL[0]} (SFT)"]
    assert set(ours["n"]) == {6} and set(ours["grader"]) == {f"pwagents, version {GRADER_VERSION}"}
    assert [*both.columns.get_level_values(0)[: len(FACTS)]] == FACTS
    assert not both[["source", "row", "backbone", "data", "grader"]].isna().any(axis=None)
    costs = both[["tokens a task", "USD a task"]]
    assert costs.iloc[-1].tolist() == [1000, 0.25] and costs[: len(theirs)].isna().all(axis=None)


def test_each_paper_has_its_metrics_in_its_unit():
    row = below_paper(episodes("PUMA"), "PersonalWAB", "Table 3", "", "embedded world").iloc[-1]
    assert row["search", "function accuracy"] == 1 and row["search", "result accuracy"] == pytest.approx(0.4)
    assert (row["row", ""], row["backbone", ""], row["data", ""]) == ("PUMA", "none", "embedded world")
    row = below_paper(episodes("SFT"), "Orion", "Table 1", *SMALL).iloc[-1]  # by step, the last attempt
    assert row["search", "function accuracy"] == 50 and row["search", "result accuracy"] == pytest.approx(20)
    assert row["search", "steps"] == 3


@pytest.mark.parametrize("types", [["search"], ["search", "review"]])
def test_what_was_not_played_has_no_column_and_a_mean_over_fewer_tasks_is_not_the_papers(types):
    some = episodes("SFT").query("type in @types")
    both = below_paper(some, "Orion", "Table 1", *SMALL)
    assert [*both.drop(columns=FACTS, level=0).columns.unique(0)] == types
    assert "overall" not in below_paper(some, "Orion", "Table 2", *SMALL).columns.unique(0)


def test_orions_mean_needs_all_types_of_a_method():
    some = episodes("SFT", "PPO").query("method == 'SFT' or type != 'review'")
    rows = below_paper(some, "Orion", "Table 2", *SMALL).tail(2)["overall", "result accuracy"]
    assert rows.notna().tolist() == [True, False]


def test_orions_mean_is_over_the_types_and_the_others_over_the_tasks():
    some = episodes("SFT").query("type != 'search' or user_id == 'u'")  # one search, two of the others
    some.loc[some["type"] == "search", ["result_final", "result_official"]] = 1.0
    row = below_paper(some, "Orion", "Table 2", *SMALL).iloc[-1]
    assert row["overall", "result accuracy"] == pytest.approx(100 * (1.0 + 0.2 + 0.2) / 3)
    row = below_paper(some, "PersonalWAB", "Table 3", *SMALL).iloc[-1]
    assert row["overall", "result accuracy"] == pytest.approx((1.0 + 4 * 0.4) / 5)


def test_an_episode_without_a_score_does_not_count():
    some = episodes("PUMA", "w/o SFT")
    some.loc[0, list(RESULTS)] = None
    both = below_paper(some, "PersonalWAB", "Table 5", "", "embedded world")
    assert both["n"].tolist()[-2:] == [5, 6]
    assert both["search", "scored"].dropna().tolist() == ["1 of 2"]
    assert both["overall", "scored"].dropna().tolist() == ["5 of 6"]


def test_models_with_the_papers_prompts_stand_below_and_those_that_did_not_play_say_what_they_need():
    trained = below_paper(pd.DataFrame(), "Orion", "Table 1", "", "", ["Orion (Ours)"])
    played = pd.concat([episodes(*BASELINES).assign(model=name) for name in ("gpt-4.1", "some/other")])
    table = with_prompted(trained, played, "embedded world", "smoke").droplevel(1, axis=1)
    ours, absent = (table[table["source"] == source] for source in ("here", "not run"))
    assert ours["row"].tolist() == [f"{m} ({of})" for m in ("gpt-4.1", "some/other") for of in BASELINES]
    assert set(ours["n"]) == {6} and table["row"].iloc[15] == "Orion (Ours)"
    assert absent["backbone"].tolist() == 5 * ["DeepSeek-V3"] + 5 * ["Qwen2.5"]
    assert absent["needs"].str.contains("OPENAI_API_KEY.*06_orion_grpo.*policies: .openai:").all()
    assert len(with_prompted(trained, played.head(0), "", "")) == 16 + 15
