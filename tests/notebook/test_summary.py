"""Notebook 10: lines of what other notebooks stored, none of what they did not; the papers' whole tables."""

import re

import pandas as pd
import pytest

from pwagents.errors import DataError
from pwagents.report.reference import REFERENCE
from pwagents.results.drawing import draw_figure, save_figure
from pwagents.results.figures import plot_intervals
from pwagents.results.papers import paper_table

from .notebooks import cells_of

COLUMNS = ("method", "type", "mean", "low", "high", "n_tasks")


def store(folder, figure, *rows, columns=COLUMNS, backbone="small"):
    stamp = f"{figure} · preset: laptop · backbone: {backbone}"
    frame = pd.DataFrame(rows, columns=columns)
    save_figure(plot_intervals, figure, frame, output_dir=folder, stamp=stamp, label="method")


def summarize(folder):
    """Run the notebook's cells up to the papers' tables; return what they define."""
    given = {"preset": "smoke", "output_dir": str(folder)}
    names = {"display": lambda shown: None}
    for cell in cells_of("10_summary"):
        if cell.cell_type == "code" and cell.id not in ("sum-parameters", "sum-finish"):
            exec(re.sub(r"globals\(\)", repr(given), cell.source), names)
    return names


@pytest.fixture
def folder(tmp_path):
    """What notebooks 04 to 06 left; 03 did not run, and SFT in one world alone."""
    tasks = {"mean": (0.5, 12), "search": (0.4, 5), "recommend": (0.3, 4), "review": (0.8, 3)}
    puma = [("PUMA", task, mean, mean - 0.1, mean + 0.1, n, 1) for task, (mean, n) in tasks.items()]
    others = [
        ("Simple rules", "search", 0.123456789, 0.1, 0.2, 5, 1),
        ("Base", "search", 0.9, 0.9, 0.9, 5, 1),
    ]
    seeds = [
        ("PUMA, over seeds", "search", 0.7, 0.6, 0.8, 9, 1),
        ("w/o DPO, over seeds", "search", 0.6, 0.5, 0.7, 9, 5),
    ]
    named = {"columns": (*COLUMNS, "n_seeds"), "backbone": "small, 0.7M"}
    store(tmp_path, "04_variants", *puma, *others, *seeds, **named)
    store(tmp_path, "05_results", ("SFT", "search", 0.6, 0.5, 0.7, 9))
    store(tmp_path, "06_results", ("GRPO", "search", 0.7, 0.65, 0.75, 9, 1), columns=(*COLUMNS, "n_missing"))
    worlds = [("SFT", "search", 0.6, None, None, 9, 1), ("GRPO", "search", 0.75, 0.65, 0.85, 9, 2)]
    store(tmp_path, "06_worlds", *worlds, columns=(*COLUMNS, "n_seeds"))
    (tmp_path / "tables").mkdir()
    return tmp_path


def test_a_line_a_number_in_the_order_of_methods_and_tasks(folder):
    found = summarize(folder)
    lines = pd.read_csv(folder / "tables" / "10_summary.csv")
    puma = [("puma", task, 4, 1) for task in ("search", "recommend", "review", "mean")]
    expected = [("instruction", "search", 4, 1), *puma, ("puma_sft_pipelines", "search", 4, 5)]
    expected += [(f"orion_{method}", "search", n, 1) for method, n in (("sft", 5), ("grpo", 6))]
    # A single pipeline, or world, says nothing of the method.
    expected += [("orion_grpo_worlds", "search", 6, 2)]
    rows = lines[["name", "task", "notebook", "n_seeds"]]
    assert list(rows.itertuples(index=False, name=None)) == expected
    assert lines["value"].iloc[0] == 0.123457 and lines["n_tasks"].iloc[-1] == 9
    assert found["backbones"] == "small, 0.7M; small"
    # A mean over part of its tasks says so.
    assert lines["n_missing"].tolist() == [0] * 7 + [1, 0]
    assert "0.700 ±0.050, 1 not scored" in set(found["wide"]["search"])
    dots = draw_figure(folder / "figures" / "10_summary.parquet").axes[0].get_lines()
    hollow = [dot for dot in dots if dot.get_marker() == "o" and dot.get_markerfacecolor() == "white"]
    assert {float(x) for dot in hollow for x in dot.get_xdata()} == {0.7}


def test_without_stored_numbers_there_is_no_summary(tmp_path):
    with pytest.raises(DataError, match=r"04_variants.* found none; expected the numbers of notebooks"):
        summarize(tmp_path)


def test_every_printed_row_stands_once_and_ours_below_it_with_what_other_seeds_reach(folder):
    names = summarize(folder)
    for paper, table in names["MADE"]:
        rows = names["paper_table_with_ours"](paper, table)
        assert rows["row"].tolist() == list(paper_table(paper, table).index) and not rows["notebook"].any()
        assert rows["to run it here"].str.contains(r"(?:notebooks?[ /]|ONLY='?)0[3-6]").all()
    names["folder"] = REFERENCE
    rows = names["paper_table_with_ours"]("Orion", "Table 1")
    ours = rows[rows["source"] == "here"].set_index("row")
    made = pd.read_csv(REFERENCE / "tables" / "06_orion_table_1.csv").set_index("row")
    column = "search: result accuracy"
    assert ours[column].to_dict() == made.loc[made["source"] == "here", column].to_dict()
    over = {name.rpartition("(")[2][:-1]: text for name, text in ours["over seeds or worlds"].items()}
    assert over == {"SFT": "", "GRPO": "search 0.750 ±0.100, 2 worlds", "PPO": ""}
    assert ours["notebook"].tolist() == ["05", "06", "06"]
