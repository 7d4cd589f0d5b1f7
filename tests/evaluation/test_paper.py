"""The papers' numbers: complete, consistent, and (where the papers' texts are at hand) as printed."""

import re
from pathlib import Path

import pytest

from pwagents.evaluation.paper import load_targets, paper_table, target

PAPERS = Path(__file__).resolve().parents[2] / "../shared/papers"
TEXTS = {"PersonalWAB": "001*.txt", "Orion": "000*.txt"}
TEST_TASKS = {"search": 694, "recommend": 757, "review": 723}  # PersonalWAB's published test split
# Torn apart by the conversion of the PDF: its numbers stand on lines of their own.
TORN = ("PersonalWAB", "Table 3", "PUMA (LLaMA-7B)")


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


@pytest.mark.parametrize(
    ("paper", "table", "shape"),
    [
        ("PersonalWAB", "Table 1", (15, 3)),
        ("PersonalWAB", "Table 2", (8, 3)),
        ("PersonalWAB", "Table 3", (8, 8)),
        ("PersonalWAB", "Table 4", (9, 12)),
        ("PersonalWAB", "Table 5", (4, 8)),
        ("PersonalWAB", "Table 6", (3, 8)),
        ("Orion", "Table 1", (18, 9)),
        ("Orion", "Table 2", (5, 3)),
        ("Persona2Web", "summary", (1, 3)),
    ],
)
def test_tables_are_complete(paper, table, shape):
    wide = paper_table(paper, table)
    assert wide.shape == shape
    assert (paper, table) == ("PersonalWAB", "Table 2") or not wide.isna().any().any()


def test_no_cell_twice_and_all_have_a_unit():
    targets = load_targets()
    assert not targets.duplicated(["paper", "table", "row", "column", "task"]).any()
    assert set(targets["unit"]) == {"text", "count", "tokens", "behaviours", "share", "percent", "steps"}
    shares = targets.loc[targets["unit"] == "share", "value"]
    assert shares.map(lambda share: 0 <= share <= 1).all()


def test_every_row_of_numbers_is_a_line_of_the_paper():
    targets = load_targets()
    for (paper, table, row), cells in targets[targets["unit"] != "text"].groupby(["paper", "table", "row"]):
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


def test_the_torn_row_agrees_with_table_5():
    torn = paper_table("PersonalWAB", "Table 3").loc["PUMA (LLaMA-7B)"]
    assert torn.to_dict() == paper_table("PersonalWAB", "Table 5").loc["PUMA"].to_dict()


@pytest.mark.parametrize(
    ("full", "average"),
    [
        ("Orion (Ours)", "Orion (Full Model)"),
        ("Qwen2.5-7B-Instruct (SFT)", "w/o RL (SFT only)"),
    ],
)
def test_orion_table_2_is_the_mean_over_tasks_of_table_1(full, average):
    tasks, overall = paper_table("Orion", "Table 1").loc[full], paper_table("Orion", "Table 2").loc[average]
    for column, value in overall["overall"].items():
        assert tasks[:, column].mean() == pytest.approx(value, abs=0.051)


def test_target_finds_one_cell():
    assert target("PersonalWAB", "Table 3", "PUMA (LLaMA-7B)", "result_accuracy", "search") == 0.652
    assert target("PersonalWAB", "Table 1", "RUSS", "interaction type") == "Multi-turn"
    assert target("PersonalWAB", "Table 2", "Products", "all") == 8236


def test_unknown_cells_and_tables_are_named():
    with pytest.raises(KeyError, match="Table 9"):
        paper_table("Orion", "Table 9")
    with pytest.raises(KeyError, match="nobody"):
        target("Orion", "Table 1", "nobody", "steps", "search")


def test_callers_cannot_change_the_targets():
    targets = load_targets()
    targets["value"] = 0
    assert target("Orion", "Table 2", "w/o PD", "steps", "overall") == 6.4
