"""The summary: lines of what notebooks stored, none of what they did not; and the papers' whole tables."""

import pandas as pd
import pytest

from pwagents.errors import DataError
from pwagents.results.drawing import save_figure
from pwagents.results.figures import plot_intervals
from pwagents.results.papers import below_paper, paper_table
from pwagents_old.notebook import summary
from pwagents_old.notebook.reference import REFERENCE

NO_LINES = pd.DataFrame(columns=summary.COLUMNS)


def store(folder, figure, rows, backbone="", columns=("method", "type", "mean", "low", "high", "n_tasks")):
    stamp = f"{figure} · preset: laptop" + (f" · backbone: {backbone}" if backbone else "")
    frame = pd.DataFrame(rows, columns=columns)
    save_figure(plot_intervals, figure, frame, output_dir=folder, stamp=stamp, label="method")


@pytest.fixture
def folder(tmp_path):
    """What notebooks 04 and 06 left; 03 and 05 did not run."""
    tasks = {"mean": (0.5, 12), "search": (0.4, 5), "recommend": (0.3, 4), "review": (0.8, 3)}
    puma = [("PUMA", task, mean, mean - 0.1, mean + 0.1, n) for task, (mean, n) in tasks.items()]
    rules = [("Simple rules", "search", 0.123456789, 0.1, 0.2, 5), ("Base", "search", 0.9, 0.9, 0.9, 5)]
    store(tmp_path, "04_variants", puma + rules, "small, 0.7M")
    store(tmp_path, "06_results", [("GRPO", "search", 0.7, 0.65, 0.75, 1000)], "small, 0.5M")
    return tmp_path


def test_a_line_a_number_in_the_order_of_methods_and_tasks(folder):
    lines = summary.read_summary(folder)
    assert lines.columns.tolist() == list(summary.COLUMNS)
    found = list(zip(lines["name"], lines["task"], lines["notebook"], strict=True))
    puma = [("puma", task, "04") for task in ("search", "recommend", "review", "mean")]
    assert found == [("instruction", "search", "04"), *puma, ("orion_grpo", "search", "06")]
    path = summary.write_summary(lines, folder)
    assert path == folder / "summary.csv"
    first, second, *_ = path.read_text().splitlines()
    assert first == "name,task,value,low,high,n_tasks,n_seeds,notebook"
    assert second == "instruction,search,0.123457,0.1,0.2,5,1,04"


def test_where_several_pipelines_were_trained_a_line_says_how_many(folder):
    columns = ("method", "type", "mean", "low", "high", "n_tasks", "n_seeds")
    rows = [("PUMA", "search", 0.5, 0.4, 0.6, 9, 1), ("PUMA, over seeds", "search", 0.7, 0.6, 0.8, 9, 1)]
    store(
        folder,
        "04_variants",
        [*rows, ("w/o DPO, over seeds", "search", 0.6, 0.5, 0.7, 9, 5)],
        columns=columns,
    )
    store(folder, "07_pipelines", [("GRPO", "search", 0.7, 0.6, 0.8, 9, 5)], columns=columns)
    lines = summary.read_summary(folder)
    made = lines[lines["name"].str.endswith("_pipelines")]
    rows = made[["name", "notebook", "n_seeds", "n_tasks"]].to_numpy().tolist()
    assert rows == [["puma_sft_pipelines", "04", 5, 9], ["orion_grpo_pipelines", "07", 5, 9]]
    assert lines.loc[lines["name"] == "puma", ["value", "n_seeds"]].to_numpy().tolist() == [[0.5, 1]]


def test_a_mean_over_part_of_its_tasks_is_marked_in_all_forms(folder):
    columns = ("method", "type", "mean", "low", "high", "n_tasks", "n_missing")
    store(folder, "06_results", [("GRPO", "search", 0.7, 0.65, 0.75, 9, 1)], columns=columns)
    lines = summary.read_summary(folder)
    assert lines["n_missing"].tolist() == [0] * 5 + [1]
    assert "0.700 ±0.050, 1 not scored" in set(summary.tabulate_summary(lines)["search"])
    figure = summary.plot_summary(lines)
    dots = [line for line in figure.axes[0].get_lines() if line.get_marker() == "o"]
    hollow = {float(x) for dot in dots if dot.get_markerfacecolor() == "white" for x in dot.get_xdata()}
    assert hollow == {0.7}


def test_without_stored_numbers_there_is_no_summary_but_the_reference_by_hand(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"04_variants.* found none; expected the numbers of notebooks"):
        summary.read_summary(tmp_path)
    store(tmp_path / "reference", "06_results", [("GRPO", "search", 0.7, 0.65, 0.75, 1000)], "small, 0.5M")
    monkeypatch.setattr(summary, "REFERENCE", tmp_path / "reference")
    monkeypatch.setattr(summary, "project_path", lambda _: tmp_path)
    assert list(summary.read_summary(tmp_path)["name"]) == ["orion_grpo"]
    assert summary.name_backbones(tmp_path) == "small, 0.5M"


def test_every_printed_row_stands_and_says_what_it_takes(tmp_path):
    for paper, table in (("PersonalWAB", "Table 3"), ("PersonalWAB", "Table 4"), ("Orion", "Table 1")):
        rows = summary.build_paper_table(tmp_path, paper, table, NO_LINES)
        assert rows["row"].tolist() == list(paper_table(paper, table).index) and not rows["notebook"].any()
        assert rows["to run it here"].str.contains(r"(?:notebooks?[ /]|ONLY=)0[3-6]").all()


def test_ours_stand_below_once_each_with_their_notebook_and_what_other_pipelines_reach():
    lines = [("orion_grpo_pipelines", task, 0.5, 0.4, 0.6, 10, 5, "07") for task in ("search", "mean")]
    lines += [("orion_grpo", "search", 0.7, 0.6, 0.8, 10, 1, "06")]
    lines = pd.DataFrame(lines, columns=summary.COLUMNS)
    rows = summary.build_paper_table(REFERENCE, "Orion", "Table 1", lines)
    ours = rows[rows["source"] == "here"]
    assert ours["notebook"].tolist() == ["05", "06", "06"] and ours["row"].is_unique
    made = pd.read_csv(REFERENCE / "tables" / "06_orion_table_1.csv").set_index("row")
    column, last = "search: result accuracy", ours["row"].iloc[-1]
    assert ours.set_index("row").loc[last, column] == made.loc[last, column]
    theirs = below_paper(pd.DataFrame(), "Orion", "Table 1", "", "")
    assert rows.loc[rows["source"] != "here", column].tolist() == theirs["search", "result accuracy"].tolist()
    over = rows.set_index("row")["over pipelines"]
    assert over[over != ""].to_dict() == {
        "small model, 0.7M parameters (GRPO)": "search 0.500 ±0.100, mean 0.500 ±0.100, 5 seeds"
    }
