"""What notebooks 05 to 08 would ask of language models, told before they do."""

import pytest

from pwagents.notebook.settings import load_settings
from pwagents.orion.costs import ablations_cost, rl_cost, sft_cost, sweep_cost
from pwagents.orion.sensitivity import SensitivityNotebook
from pwagents.orion.settings import AblationsNotebook, GrpoNotebook, SftNotebook

PLAYERS = {"teacher": "openai:gpt-4o-mini", "judge": "openai:gpt-4o-mini"}
NOTEBOOKS = {
    "05_orion_sft": (SftNotebook, sft_cost),
    "06_orion_grpo": (GrpoNotebook, rl_cost),
    "07_ablations": (AblationsNotebook, ablations_cost),
    "08_sensitivity": (SensitivityNotebook, sweep_cost),
}


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def asked(notebook, **changes):
    """Rows of the estimate, by role."""
    flat = {"preset": "smoke", "source": "", "data_dir": "", "output_dir": "", "seed": None}
    kind, cost = NOTEBOOKS[notebook]
    table = cost(load_settings(notebook, kind, flat | {"stored_runs_only": False} | changes))
    return {row["role"]: row for row in table.to_dict("records")}


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_players_without_a_language_model_cost_nothing(notebook):
    assert not asked(notebook)


def test_fine_tuning_asks_the_teacher_and_reinforcement_learning_the_judge():
    rows = asked("05_orion_sft", players=PLAYERS)
    assert [*rows] == ["teacher"] and rows["teacher"]["calls"] == (2 * 20 + 40) * 4
    rows = asked("06_orion_grpo", players=PLAYERS)
    assert [*rows] == ["judge"] and rows["judge"]["US dollars"] > 0
    assert rows["judge"]["calls"] == (2 * 3 + 3) * 8 * 4


def test_evaluations_of_a_training_ask_those_who_are_in_every_episode():
    players = {"updater": "openai:gpt-4o-mini"}
    rows = [asked("06_orion_grpo", players=players, rl={"eval_steps": steps}) for steps in (0, 3)]
    without, with_log = (each["updater"]["calls"] for each in rows)
    # Two trainings, before and after, on 16 tasks, four steps each.
    assert with_log - without == 2 * 2 * 16 * 4


def test_ablations_have_all_pipelines_their_parts_and_the_variants():
    rl = {"seeds": [0, 1, 2], "methods": ["GRPO"], "variants": [{"name": "a turn", "credit": "turn"}]}
    rows = asked("07_ablations", players=PLAYERS, rl=rl)
    assert rows["teacher"]["calls"] == 2 * 3 * 20 * 4
    assert rows["judge"]["calls"] == (3 + 3 * 3 + 1) * 3 * 8 * 4  # GRPO and three parts of three pipelines


def test_sensitivity_asks_in_the_test_alone():
    rows = asked("08_sensitivity", players={"updater": "openai:gpt-4o-mini"})
    assert rows["updater"]["calls"] == 40 * (12 + 2 * 4 + 2) * 4 and rows["updater"]["US dollars"] > 0
