"""Tables beside the papers' numbers and the reference: what is the same, what is noise, what fails."""

import json
import shutil

import pandas as pd
import pytest

from pwagents import check

PRINTED = {
    "source": "PersonalWAB, Table 3", "row": "Last Memory (gpt-4o)", "backbone": "gpt-4o",
    "data": "the data of PersonalWAB", "grader": "the paper's", "search: result accuracy": 0.626,
}  # fmt: skip
OURS = {
    "source": "here", "row": "gpt-4o (Last memory)", "backbone": "gpt-4o", "data": "PersonalWAB's files",
    "grader": "pwagents, version 1", "tokens a task": 900.0, "USD a task": 0.01,
    "search: result accuracy": 0.63,
}  # fmt: skip


@pytest.fixture
def save(tmp_path):
    """Writes a table of a preset, or of the reference, in which the noise of seeds was measured."""
    (tmp_path / "reference" / "tables").mkdir(parents=True)
    for name in ("04_noise_floor", "07_noise_floor", "07_seeds"):
        shutil.copy(check.REFERENCE / "tables" / f"{name}.csv", tmp_path / "reference" / "tables")

    def write(folder, name, *rows):
        path = tmp_path / folder / "tables" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(path, index=False)
        return path

    return write


@pytest.fixture
def verdicts(tmp_path):
    """What each compared cell of a preset is, with its column."""

    def run(preset="laptop"):
        cells = check.check_tables(tmp_path / preset, tmp_path / "reference")
        return [(cell.column, cell.verdict) for cell in cells]

    return run


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """``command(preset)``: the exit code, and what is printed."""
    monkeypatch.setattr(check, "REFERENCE", tmp_path / "reference")

    def run(preset="laptop"):
        monkeypatch.setattr("sys.argv", ["check", str(tmp_path / preset)])
        code, said = check.main(), capsys.readouterr()
        return code, said.out + said.err

    return run


def results(*values, **more):
    return [{"method": "Plain", "result": value, **more} for value in values]


GAIN = {"comparison": "b", "task": "search", "difference": 0.5}
OTHER = GAIN | {"comparison": "a", "difference": 0.9}  # which only a full run makes
AS_IT_IS = [("comparison", "OK"), ("task", "OK"), ("difference", "OK")]
SEVERAL = [{"row": name, "over seeds or worlds": "mean .5"} for name in ("a", "b")]
EMPTY = [{**row, "over seeds or worlds": None} for row in SEVERAL]


@pytest.mark.parametrize(
    ("table", "ours", "theirs", "expected"),
    [
        ("03_x", results(0.5), results(0.5), [("method", "OK"), ("result", "OK")]),
        ("03_x", results(0.51), results(0.5), [("method", "OK"), ("result", "noise")]),
        ("03_x", results(0.6), results(0.5), [("method", "OK"), ("result", "FAIL")]),
        # Large numbers in proportion, counts exactly.
        ("02_x", [{"tokens": 1001.0, "n_tasks": 840}], [{"tokens": 1000.0, "n_tasks": 839}],
         [("tokens", "noise"), ("n_tasks", "FAIL")]),
        # Another text fails, unless it comes of a training; another grader always.
        ("02_x", [{"label": "color"}], [{"label": "brand"}], [("label", "FAIL")]),
        ("06_x", [{"a": "b", "p": 0.9}], [{"a": "c", "p": 0.1}], [("a", "noise"), ("p", "noise")]),
        ("06_x", [{"grader": "version 2"}], [{"grader": "version 1"}], [("grader", "FAIL")]),
        # Rows and columns that are missing.
        ("02_x", [{"a": 1}], 2 * [{"a": 1, "b": 2}], [("rows", "FAIL")]),
        ("02_x", 2 * [{"a": 1}], 2 * [{"a": 1, "b": 2}], 2 * [("a", "OK"), ("b", "FAIL")]),
        # What only a full run makes is passed over, the others are matched by name.
        ("04_x", [GAIN], [OTHER, GAIN | {"variant": 1.0}], AS_IT_IS),
        ("06_x", [GAIN], [OTHER, GAIN], AS_IT_IS),
        ("05_x", [{"trajectories": 400, "x": 0.5}], [{"trajectories": n, "x": n / 800} for n in (1, 400)],
         [("trajectories", "OK"), ("x", "OK")]),
        ("04_x", [OTHER, GAIN | {"difference": 0.7}], [OTHER, GAIN],
         [*AS_IT_IS, *AS_IT_IS[:2], ("difference", "FAIL")]),
        ("04_x", [GAIN | {"comparison": "c"}], [OTHER, GAIN], [("rows", "FAIL")]),  # unknown to the reference
        # So is the column of real data, where they are not at hand; what is made here is still compared.
        ("01_realism", [{"measure": "words", "made": 1.5}], [{"measure": "words", "made": 1.0, "real": 3.0}],
         [("measure", "OK"), ("made", "FAIL")]),
        ("10_x", [SEVERAL[0], EMPTY[1]], SEVERAL,
         [("row", "OK"), ("over seeds or worlds", "OK"), ("row", "OK"), ("over seeds or worlds", "noise")]),
        ("10_x", EMPTY, SEVERAL, 2 * [("row", "OK")]),
    ],
)  # fmt: skip
def test_a_table_is_compared_with_the_reference(save, verdicts, table, ours, theirs, expected):
    save("laptop", table, *ours)
    save("reference", table, *theirs)
    # What is not made here, such as 04_noise_floor, is passed over.
    assert verdicts() == expected


@pytest.mark.parametrize(
    ("table", "name", "column", "beyond"),
    [
        ("06_x", {"method": "GRPO"}, "search: result accuracy", 0.213771),  # as 07_noise_floor has it
        ("08_x", {"value": 5, "type": "mean"}, "x", 0.0544904),  # trained as GRPO is
        ("06_x", {"row": "small (SFT)", "backbone": "small"}, "review: function accuracy", 0.0776478),
        ("06_x", {"comparison": "GRPO - SFT", "task": "search"}, "low", (0.213771**2 + 0.198803**2) ** 0.5),
        ("06_x", {"comparison": "SFT - Teacher", "task": "search"}, "low", 0.198803),
        ("06_x", {"method": "SFT, sampled"}, "search: return", 0.482526 - 0.310416),  # over seeds
        ("06_x", {"method": "PPO"}, "overall: questions", 0.0544904),
        ("05_scaling", {"trajectories": 100, "type": "recommend"}, "x", 0.0646288),
        ("04_x", {"row": "small (64 tokens)", "backbone": "small"}, "review: x", 0.113305),
        ("10_x", {"name": "puma_sft_pipelines", "task": "review"}, "x", 0.109651),
        # Nothing was measured between seeds that never recommend rightly, and nothing was trained.
        ("05_x", {"method": "Base", "type": "recommend"}, "x", 0.02),
        ("06_x", {"method": "Teacher", "type": "search"}, "x", 0.02),
        ("05_ladder", {"method": "2 questions"}, "search: x", 0.02),
    ],
)
def test_what_was_trained_is_noise_as_far_as_seeds_differ(save, verdicts, table, name, column, beyond):
    usual = 5 if "questions" in column else 0.5  # counts in proportion
    save("reference", table, *2 * [name | {column: usual}])
    save("laptop", table, *(name | {column: usual + max(1, usual) * by * beyond} for by in (0.99, 1.01)))
    assert [verdict for each, verdict in verdicts() if each == column] == ["noise", "FAIL"]


def test_a_papers_row_must_be_what_the_paper_prints(save, verdicts):
    save("smoke", "03_single_turn_with_paper", PRINTED, PRINTED | {"search: result accuracy": 0.627})
    assert verdicts("smoke") == [("search: result accuracy", "OK"), ("search: result accuracy", "FAIL")]


def cell_named(words):
    return {"backbone": f"gpt-4o, {words}", "row": f"gpt-4o, {words} (Last memory)"}


# Orion's GRPO is "Orion (Ours)" in its paper.
QWEN = {"backbone": "Qwen2.5-7B-Instruct", "search: result accuracy": 62.5}
ORION = PRINTED | QWEN | {"source": "Orion, Table 1", "row": "Orion (Ours)"}


@pytest.mark.parametrize(
    ("printed", "other", "expected"),
    [
        (PRINTED, {}, ["OK"]),
        (PRINTED, {"search: result accuracy": 0.6}, ["noise"]),
        (PRINTED, {"search: result accuracy": 0.4}, ["FAIL"]),
        (PRINTED, {"backbone": "small model"}, []),
        (PRINTED, cell_named("as published, 10 items"), ["OK"]),  # one of several of notebook 03
        (PRINTED, cell_named("leak-free"), []),
        (PRINTED, {"data": "embedded world"}, []),
        (PRINTED, {"row": "gpt-4o (Careful)"}, []),
        (PRINTED, {"search: scored": "9 of 10", "search: result accuracy": 0.9}, ["part"]),
        (ORION, QWEN | {"row": "Qwen2.5-7B-Instruct (GRPO)"}, ["OK"]),
    ],
)
def test_ours_is_compared_with_the_papers_row_of_the_same_method_model_and_data(
    save, verdicts, printed, other, expected
):
    save("paper", "03_table_3", printed, OURS | other)
    assert [verdict for _, verdict in verdicts("paper")] == ["OK", *expected]


def test_quoted_cells_and_rows_of_ours_are_counted_apart(save, command):
    save("paper", "03_table_3", PRINTED, OURS, OURS | {"backbone": "small model"})
    assert "1 of 1 quoted cells are as the papers print them; 1 of our rows can be" in command("paper")[1]
    save("paper", "03_table_3", PRINTED | {"search: result accuracy": 0.7})
    assert "0 of 1 quoted cells are as the papers print them; 0 of our rows can be" in command("paper")[1]


def test_a_mean_over_part_of_its_tasks_is_compared_with_nothing(save, verdicts, command):
    save("laptop", "03_references", {"method": "a", "mean": 0.9, "n_missing": 3})
    save("reference", "03_references", {"method": "a", "mean": 0.5, "n_missing": 0})
    assert verdicts() == [("method", "OK"), ("mean", "part"), ("n_missing", "part")]
    save("laptop", "04_x", {"method": "a", "mean": 0.9})
    save("reference", "04_x", {"method": "a", "mean": 0.5, "n_missing": 1})
    assert [verdict for _, verdict in verdicts()] == 2 * ["OK", "part", "part"]
    code, said = command()
    assert code == 0 and "0.9, expected 0.5 (over part of the tasks: not compared)" in said


def test_it_prints_what_is_not_as_expected_and_fails_by_its_exit_code(save, command):
    code, said = command()
    assert code == 1 and "expected what `make reproduce` leaves" in said
    save("laptop", "03_x", {"method": "Plain", "result": 0.5, "steps": 2.0})
    save("reference", "03_x", {"method": "Plain", "result": 0.51, "steps": 2.0})
    code, said = command()
    assert code == 0 and said.splitlines()[:3] == [
        "OK    2  noise    1  FAIL    0  03_x, against the reference",
        "    noise  Plain | result: 0.5, expected 0.51",
        "OK    2  noise    1  FAIL    0  cells in all",
    ]
    save("reference", "03_x", {"method": "Last", "result": 0.5, "steps": 2.0})
    code, said = command()
    assert code == 1 and "FAIL   Plain | method: Plain, expected Last" in said
    save("smoke", "01_x", {"a": 1})
    code, said = command("smoke")
    assert code == 0 and "There is no reference for smoke" in said and "Never begun: 00_tour" in said


def journal(folder, *rows):
    """Write a journal's rows; the last to start need not be the last written, and the clock ran back."""
    (folder / "timings").mkdir(exist_ok=True)
    rows = [
        {"notebook": name, "status": status, "started": str(9 - i), "rows_before": i, "tables": tables}
        for i, (name, status, *tables) in enumerate(rows)
    ]
    lines = [json.dumps(row) + "\n" for row in reversed(rows)]
    (folder / "timings" / "journal.jsonl").write_text("".join(lines))


DATA, PROFILES = ("01_data", "finished", "01_x"), ("02_profiles", "finished", "02_y")
BENCHMARK, TRIED = ("03_benchmark", "finished", "03_z"), ("03_benchmark", "unfinished", "03_z")
EVALUATE = ("evaluate", "finished", "evaluate_a")


@pytest.mark.parametrize(
    ("rows", "partial", "code", "says"),
    [
        ([DATA, PROFILES, BENCHMARK, EVALUATE], "", 0, "Never begun: 00_tour, 04_puma"),
        ([TRIED, DATA, PROFILES, BENCHMARK], "", 0, "Never begun: 00_tour, 04_puma"),
        ([DATA, PROFILES, TRIED], "", 2, "03_benchmark began and did not finish"),
        # Killed: it left a table and no row, or the notebook as far as it came.
        ([DATA, PROFILES], "", 2, "03_benchmark began and did not finish"),
        ([DATA, PROFILES, BENCHMARK], "04_puma", 2, "04_puma began and did not finish"),
        ([DATA, (*PROFILES, "02_gone"), BENCHMARK], "", 2, "02_gone is missing"),
    ],
)
def test_notebooks_that_did_not_finish_and_missing_tables_end_with_2(
    save, command, tmp_path, rows, partial, code, says
):
    for name in ("01_x", "02_y", "03_z"):
        save("smoke", name, {"a": 1})
    folder = tmp_path / "smoke"
    journal(folder, *rows)
    if partial:
        place = folder / "notebooks" / ".partial" / f"{partial}.ipynb"
        place.parent.mkdir(parents=True)
        place.touch()
    found, said = command("smoke")
    assert found == code and says in said
    assert ("began" in said) == ("began" in says) and ("is missing" in said) == ("missing" in says)


def test_a_table_of_the_reference_must_be_made_where_its_notebook_ran(save, command):
    for name in ("02_one", "03_x"):
        save("laptop", name, {"a": 1})
    for name in ("02_one", "02_two", "03_x", "03_worlds", "05_results"):  # 03_worlds: a full run's alone
        save("reference", name, {"a": 1})
    code, said = command()
    assert code == 2 and "02_two is in the reference and no longer made" in said
    assert "03_worlds" not in said and "05_results" not in said


def test_the_reference_agrees_with_itself():
    assert {cell.verdict for cell in check.check_tables(check.REFERENCE, check.REFERENCE)} <= {"OK"}
