"""What `make reproduce PRESET=smoke` left: complete, and with the properties that must hold at any size.

Reads ``outputs/smoke``, or the folder that PWAGENTS_OUTPUTS names; runs nothing itself.
"""

import json
import os
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from pwagents.schema import TASK_TYPES

FOLDER = Path(os.environ.get("PWAGENTS_OUTPUTS", Path(__file__).parents[1] / "outputs" / "smoke"))
TRAINED = ("04_puma", "05_orion_sft", "06_orion_grpo", "07_ablations", "08_sensitivity")
NAMES = ("01_data", "02_profiles", "03_benchmark", *TRAINED, "09_persona2web")
pytestmark = pytest.mark.skipif(
    not all((FOLDER / "notebooks" / f"{name}.ipynb").exists() for name in NAMES),
    reason=f"no finished smoke run in {FOLDER}; make reproduce PRESET=smoke",
)


def table(name):
    return pd.read_csv(FOLDER / "tables" / f"{name}.csv")


@pytest.mark.parametrize("name", NAMES)
def test_notebook_ran_to_its_end_and_shows_what_it_made(name):
    notebook = nbformat.read(FOLDER / "notebooks" / f"{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert all(cell.execution_count for cell in code)
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if "Warning" in output.get("text", "")]
    assert not [output for output in outputs if output.get("data", {}).get("text/plain") == "None"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert sum("text/html" in output.get("data", {}) for output in outputs) >= 5
    assert f"{name} finished" in code[-1].outputs[-1].text


def outputs_of(name):
    """What the cells of a notebook left."""
    path = FOLDER / "notebooks" / f"{name}.ipynb"
    if not path.exists():
        pytest.skip(f"no finished {name} in {FOLDER}")
    cells = nbformat.read(path, as_version=4).cells
    return [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]


def test_the_tour_plays_by_itself_where_nobody_sits_at_the_keyboard():
    outputs = outputs_of("00_tour")
    assert not [output for output in outputs if output.output_type == "error"]
    shown = " ".join(output.get("data", {}).get("text/html", "") for output in outputs)
    players = ("with the simulated user", "you, the agent", "SFT", "GRPO", "MyAgent")
    assert all(player in shown for player in players)
    assert "00_tour finished" in outputs[-1].text


def test_every_table_and_figure_has_all_its_forms():
    forms_of = {"tables": {".csv", ".html", ".tex"}, "figures": {".png", ".svg", ".csv", ".parquet"}}
    for kind, forms in forms_of.items():
        files = [path for path in (FOLDER / kind).iterdir() if path.stat().st_size > 0]
        for name in {path.stem for path in files}:
            assert {path.suffix for path in files if path.stem == name} == forms, name
        assert len(files) >= 12


def test_every_figure_says_what_made_it():
    for path in (FOLDER / "figures").glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        facts = [f"{path.stem} ·", "preset: smoke", "source: "] + ["backbone: "] * ("04" <= path.stem < "09")
        assert all(fact in text for fact in facts), path.name


def test_negative_controls_are_exactly_zero():
    gains = table("01_negative_controls").set_index(["world", "knowledge"])["gain"]
    assert gains["one interest", "knowing the right interest"] == 0
    assert gains["no drift", "updating the profile"] == 0
    assert gains["complete instructions", "asking the user"] == 0
    assert (gains["as configured"] > 0).all()


def test_statistics_stand_below_the_papers_and_count_what_may_be_seen():
    here = table("01_statistics").set_index(["source", "split"])
    paper = here.loc["PersonalWAB, Table 2"]
    assert len(here) == 4 and paper["Products"].tolist() == [8236, 8236]
    ours = here.iloc[-2:].droplevel("source")
    assert ours["Avg. profile tokens"].isna().all() and paper["Products that are a target"].isna().all()
    assert ours["Avg. behavior length"]["train"] < ours["Avg. behavior length"]["test"]


def test_the_oracle_is_far_from_chance():
    searches = pd.read_csv(FOLDER / "figures" / "01_ladder.csv").set_index("method")["mean"]
    assert searches["oracle query"] > 0.95 and searches["random"] < 0.1
    means = pd.read_csv(FOLDER / "figures" / "03_single_turn.csv").set_index(["type", "method"])["mean"]
    by_rule = {rule: means["recommend", f"Reference: {rule}"] for rule in ("oracle", "repeat", "random")}
    assert by_rule["oracle"] > by_rule["repeat"] > by_rule["random"]


def test_no_training_has_a_p_from_tasks_alone():
    """One seed each: differences of these policies. What other trainings would give, seeds alone can tell."""
    for name in ("05_tests", "06_tests"):
        assert "p" not in table(name), name


def printed(name):
    """All that the cells of a notebook printed."""
    return "".join(output.get("text", "") for output in outputs_of(name))


def test_every_episode_was_scored():
    """Five memories, two protocols and the published world, 60 tasks; then eleven methods on 30 tasks."""
    said = printed("03_benchmark")
    assert "All 900 episodes were scored." in said and "All 330 episodes were scored." in said


def test_notebooks_ran_on_the_same_data():
    """Those that train read further users beside; the two on Orion the same ones."""
    rows = [json.loads(line) for line in (FOLDER / "timings" / "journal.jsonl").read_text().splitlines()]
    last = {row["notebook"]: row for row in rows}
    assert {row["status"] for row in last.values()} == {"finished"}
    hashes = {name: last[name]["data_hash"] for name in NAMES}
    assert hashes["01_data"] == hashes["02_profiles"] == hashes["03_benchmark"]
    assert hashes["05_orion_sft"] == hashes["06_orion_grpo"]
    assert all(row["peak_memory_mb"] > 0 and row["versions"]["torch"] for row in last.values())


def test_the_offline_policy_stays_out_of_the_papers_tables():
    assert "no language model is asked" in printed("03_benchmark")
    assert "Code check" in (FOLDER / "tables" / "03_methods_multi_turn.html").read_text()
    assert "source" not in table("03_methods_multi_turn")


def test_every_method_was_played_and_asking_takes_steps():
    multi = table("03_methods_multi_turn").set_index("method")
    # Methods that differ in their prompt alone are one row; RecMind's memory is longer than the last 20.
    assert len(multi) == 6 and (multi["overall: steps"] > 2).all()
    assert (multi["overall: official"] >= multi["overall: final"]).all()


def test_the_oracle_solves_every_web_task_and_nobody_does_without_a_history():
    level_2 = table("09_level_2").set_index(["agent", "access"])
    success, found = level_2["task: SR"], level_2["website: found"]
    assert success["oracle", "not used"] == 1 and success["offline agent", "no history"] == 0
    assert found["offline agent", "no history"] == 0 and found["oracle", "not used"] == 1


def test_the_summary_says_what_the_notebooks_tables_say():
    assert "10_summary finished" in printed("10_summary")
    lines = table("10_summary")
    assert list(lines) == ["name", "task", "value", "low", "high", "n_tasks", "n_seeds", "notebook"]
    pipelines = lines["name"].str.endswith(("_pipelines", "_worlds"))
    assert lines.loc[~pipelines, "name"].nunique() == 13 and (lines.loc[~pipelines, "n_seeds"] == 1).all()
    assert (lines.loc[pipelines, "n_seeds"] > 1).all()
    variants = pd.read_csv(FOLDER / "figures" / "04_variants.csv")["method"]
    trained = [4] * int(variants.str.endswith("over seeds").any())
    trained += [6] * int(pd.read_csv(FOLDER / "figures" / "06_worlds.csv")["n_seeds"].gt(1).any())
    assert sorted(lines.loc[pipelines, "notebook"].unique()) == trained
    assert lines["value"].between(lines["low"], lines["high"]).all()
    values = lines.set_index(["name", "task"])["value"]
    trained = table("04_single_turn").set_index("row")
    trained.index = trained.index.str.replace(r"^small model, 0.7M parameters \((.*)\)$", r"\1", regex=True)
    ours = {"puma": "PUMA", "puma_sft": "w/o DPO", "plain": "Plain agent"}
    for name, method in (ours | {"puma_no_memory": "PUMA, memory taken away"}).items():
        three = [values[name, task] for task in TASK_TYPES]
        assert three == [trained.loc[method, f"{task}: result accuracy"] for task in TASK_TYPES], name
        assert values[name, "mean"] == pytest.approx(sum(three) / 3, abs=1e-5), name
    references = {"search": "instruction alone", "recommend": "repeat", "review": "same product"}
    for task, rule in references.items():
        of_rule = trained.loc[f"Reference: {rule}"]
        assert values["instruction", task] == of_rule[f"{task}: result accuracy"], task
    searches = table("06_results").set_index("method")["search: result accuracy"]
    orion = {f"orion_{method.lower()}": method for method in ("SFT", "PPO", "GRPO")}
    for name, method in (orion | {"base": "Base", "teacher": "Teacher"}).items():
        assert values[name, "search"] == searches[method], name
    given = table("03_recommender").set_index("method")["result accuracy"]
    for part in ("whole history", "right interest"):
        assert values[f"recommender_{part.replace(' ', '_')}", "recommend"] == given[part]
