"""The papers' numbers: complete, consistent, and (where the papers' texts are at hand) as printed."""

import re
from pathlib import Path

import pytest

from pwagents.evaluation.paper import load_targets, paper_table

PAPERS = Path(__file__).resolve().parents[2] / "../shared/papers"
TEXTS = {"PersonalWAB": "001*.txt", "Orion": "000*.txt", "Persona2Web": "002*.txt"}
TEST_TASKS = {"search": 694, "recommend": 757, "review": 723}  # PersonalWAB's published test split
# Torn apart by the conversion of the PDF: its numbers stand on lines of their own.
TORN = ("PersonalWAB", "Table 3", "PUMA (LLaMA-7B)")


def target(paper, table, row, column, task=""):
    return paper_table(paper, table).loc[row, (task, column)]


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
        ("PersonalWAB", "Figure 7", (2, 3)),
        ("Persona2Web", "Browser-Use, level 2", (15, 3)),
        ("Persona2Web", "AgentOccam, level 2", (3, 3)),
        ("Persona2Web", "levels", (3, 2)),
        ("Persona2Web", "history against profile", (2, 2)),
        ("Persona2Web", "meta-evaluation", (3, 4)),
    ],
)
def test_tables_are_complete(paper, table, shape):
    wide = paper_table(paper, table)
    assert wide.shape == shape
    with_gaps = paper == "Persona2Web" or (table in ("Table 2", "Figure 7") and paper == "PersonalWAB")
    assert with_gaps or not wide.isna().any().any()


def test_no_cell_twice_and_all_have_a_unit():
    targets = load_targets()
    assert not targets.duplicated(["paper", "table", "row", "column", "task"]).any()
    assert set(targets["unit"]) == {"text", "count", "tokens", "behaviours", "share", "percent", "steps"} | {
        "seconds",
        "correlation",
    }
    shares = targets.loc[targets["unit"] == "share", "value"]
    assert shares.map(lambda share: 0 <= share <= 1).all()


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


def test_callers_cannot_change_the_targets():
    targets = load_targets()
    targets["value"] = 0
    assert target("Orion", "Table 2", "w/o PD", "steps", "overall") == 6.4


def test_every_value_names_its_source():
    sources = load_targets().groupby("paper")["source"].unique().map(set)
    assert sources["PersonalWAB"] == sources["Orion"] == {"paper"}
    notes = {"third-party notes", "summary; setting by third-party notes"}
    assert sources["Persona2Web"] == {"summary"} | notes


def test_persona2web_is_complete():
    cells = load_targets().query("paper == 'Persona2Web' and unit != 'text'")
    assert cells["table"].value_counts().to_dict() == {
        "Browser-Use, level 2": 26,
        "AgentOccam, level 2": 6,
        "levels": 4,
        "history against profile": 4,
        "meta-evaluation": 10,
        "stability": 2,
        "benchmark": 7,
    }


@pytest.mark.parametrize(
    ("table", "row", "column", "value"),
    [
        ("Browser-Use, level 2", "GPT-4.1 (on-demand)", "P_avg", 0.767),
        ("Browser-Use, level 2", "GPT-4.1 (no history)", "SR", 0.0),
        ("Browser-Use, level 2", "Llama-3.3-70B (pre-execution)", "Intent", 0.197),
        ("AgentOccam, level 2", "o3 (on-demand)", "SR", 0.07),
        ("levels", "level 1", "mean SR", 0.163),
        ("history against profile", "explicit profile", "SR", 0.25),
        ("meta-evaluation", "outcome", "Intent, accuracy", 0.70),
        ("stability", "three months", "change of SR", -10),
        ("benchmark", "history records", "number", 102_568),
    ],
)
def test_persona2web_by_hand(table, row, column, value):
    assert target("Persona2Web", table, row, column) == value


def test_the_times_of_figure_7():
    assert target("PersonalWAB", "Figure 7", "PUMA", "seconds") == 2.8
    assert target("PersonalWAB", "Figure 7", "GPT-based methods", "seconds (least)") == 6.5
    assert target("PersonalWAB", "Figure 7", "GPT-based methods", "seconds (most)") == 6.9
    assert {2.8, 6.5, 6.9} <= set(numbers(paper_text("PersonalWAB")))


def test_what_the_summary_tells_stands_in_it():
    told = numbers(paper_text("Persona2Web"))
    cells = load_targets().query(
        "paper == 'Persona2Web' and unit != 'text' and source != 'third-party notes'"
    )
    for value, unit in zip(cells["value"], cells["unit"], strict=True):
        in_percent = unit == "share" and round(100 * value, 6) in told  # "23.8%"
        assert abs(value) in told or in_percent, value


def test_the_mean_of_level_2_conflicts_with_its_rows_as_the_module_says():
    rows = paper_table("Persona2Web", "Browser-Use, level 2")
    with_history = rows[~rows.index.str.endswith("(no history)")]
    (rates,) = (with_history[column] for column in with_history if column[1] == "SR")
    assert len(rates) == 10 and abs(rates.mean() - 0.078) > 0.01
