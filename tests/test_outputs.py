"""What `make reproduce PRESET=smoke` left: complete, and with the properties that must hold at any size.

Reads ``outputs/smoke``, or the folder that PWAGENTS_OUTPUTS names; runs nothing itself.
"""

import json
import os
from pathlib import Path

import nbformat
import pandas as pd
import pytest

FOLDER = Path(os.environ.get("PWAGENTS_OUTPUTS", Path(__file__).parents[1] / "outputs" / "smoke"))
NAMES = ("01_data", "02_profiles", "03_benchmark", "04_puma", "05_orion_sft", "06_orion_grpo")
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
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    assert sum("text/html" in output.get("data", {}) for output in outputs) >= 5
    assert f"{name} finished" in code[-1].outputs[-1].text


def test_every_table_and_figure_has_all_its_forms():
    for kind, forms in (("tables", {".csv", ".html", ".tex"}), ("figures", {".png", ".svg", ".csv"})):
        files = [path for path in (FOLDER / kind).iterdir() if path.stat().st_size > 0]
        for name in {path.stem for path in files}:
            assert {path.suffix for path in files if path.stem == name} == forms, name
        assert len(files) >= 12


def test_negative_controls_are_exactly_zero():
    gains = table("01_negative_controls").set_index(["world", "knowledge"])["gain"]
    assert gains["one interest", "knowing the right interest"] == 0
    assert gains["no drift", "updating the profile"] == 0
    assert gains["complete instructions", "asking the user"] == 0
    assert (gains["as configured"] > 0).all()


def test_the_ceiling_is_far_from_the_floor():
    means = table("01_floor_and_ceiling").set_index(["type", "method"])["mean"]
    assert means["search", "oracle"] > 0.95 and means["search", "random"] < 0.1
    assert means["recommend", "oracle"] > means["recommend", "repeat"] > means["recommend", "random"]


def test_every_episode_was_scored():
    outcomes = table("03_outcomes")
    assert set(outcomes["protocol"]) == {"leak_free", "as_published"} and len(outcomes) == 10
    assert (outcomes["scored"] > 0).all()
    assert (outcomes[["infrastructure_error", "not_evaluable"]] == 0).all(axis=None)


def test_no_memory_is_the_same_under_both_protocols():
    differences = table("03_protocols").set_index("method")["difference"]
    assert (differences["Plain, no memory"] == 0).all()


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
    for name in ("03_table_3", "03_table_4", "03_orion_table_1"):
        frame = table(name)
        assert frame[[column for column in frame if column.endswith(": here")]].isna().all(axis=None)
        assert frame[[column for column in frame if column.endswith(": paper")]].notna().all(axis=None)
    for name in ("03_methods_single_turn", "03_methods_multi_turn"):
        assert "Plumbing check" in (FOLDER / "tables" / f"{name}.html").read_text()


def test_every_method_ran_in_its_tracks_and_asking_takes_steps():
    single, multi = table("03_methods_single_turn"), table("03_methods_multi_turn").set_index("method")
    assert len(single) == 7 and len(multi) == 12
    assert (multi["overall: steps"] > 2).all() and (
        multi["overall: official"] >= multi["overall: final"]
    ).all()
    outcomes = table("03_methods_outcomes")
    assert (outcomes[["infrastructure_error", "not_evaluable"]] == 0).all(axis=None)


def test_nobody_was_led_astray_and_the_simulated_user_gave_nothing_away():
    assert (table("03_adversarial")["sum"] == 0).all()
    assert (table("03_simulator")["leak_rate"] == 0).all()


def test_profiles_tell_users_apart_and_cost_less_than_memory():
    gains = table("02_consistency_gain").set_index(["users", "evaluation"])["difference"]
    assert gains["all", "profile-behavior top-1"] > 0
    tokens = table("02_retrieval_tokens").set_index("retrieval")["tokens"]
    assert 5 * tokens["contextual profile"] < tokens["PUMA memory"]
    nearest = table("02_retrieval")["nearest"].dropna()
    assert (nearest > 0.6).all()


def test_notebooks_share_one_base_model():
    made = sorted(folder.name for folder in (FOLDER / "models").glob("base-[0-9a-f]*"))
    assert len(made) == 1, made
