"""The papers' whole tables: every printed row, and ours below with the notebook that made them."""

import pandas as pd

from pwagents.evaluation.paper import Setup, below_paper, paper_table
from pwagents.notebook.reference import REFERENCE
from pwagents.notebook.summary import COLUMNS, MADE, build_paper_table

NO_LINES = pd.DataFrame(columns=COLUMNS)


def test_every_printed_row_stands_and_says_what_it_takes(tmp_path):
    sizes = {("PersonalWAB", "Table 3"): 8, ("PersonalWAB", "Table 4"): 9, ("Orion", "Table 1"): 18}
    assert sizes.keys() == MADE.keys()
    for (paper, table), n in sizes.items():
        rows = build_paper_table(tmp_path, paper, table, NO_LINES)
        assert rows["row"].tolist() == list(paper_table(paper, table).index) and len(rows) == n
        assert (
            rows["to run it here"].str.contains(r"notebooks?[ /]0[3-6]").all() and not rows["notebook"].any()
        )


def test_ours_stand_below_once_each_with_their_notebook():
    rows = build_paper_table(REFERENCE, "Orion", "Table 1", NO_LINES)
    ours = rows[rows["source"] == "here"]
    assert ours["notebook"].tolist() == ["05", "06", "06"] and ours["row"].is_unique
    made = pd.read_csv(REFERENCE / "tables" / "06_orion_table_1.csv").set_index("row")
    column = "search: result accuracy"
    assert ours.set_index("row").loc[ours["row"].iloc[-1], column] == made.loc[ours["row"].iloc[-1], column]
    printed = rows[rows["source"] != "here"]
    theirs = below_paper(pd.DataFrame(), "Orion", "Table 1", Setup("", ""))
    assert printed[column].tolist() == theirs["search", "result accuracy"].tolist()


def test_ours_tell_what_other_pipelines_reach_where_there_are_some():
    lines = [("orion_grpo_pipelines", task, 0.5, 0.4, 0.6, 10, 5, "07") for task in ("search", "mean")]
    lines += [("orion_grpo", "search", 0.7, 0.6, 0.8, 10, 1, "06")]
    rows = build_paper_table(REFERENCE, "Orion", "Table 1", pd.DataFrame(lines, columns=COLUMNS))
    told = rows.set_index("row")["over pipelines"]
    assert told[told != ""].to_dict() == {
        "small model, 0.7M parameters (GRPO)": "search 0.500 ±0.100, mean 0.500 ±0.100, 5 seeds"
    }
