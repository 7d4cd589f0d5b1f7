"""SmolLM2's recipe: what its table counts, and that its settings are ones that the notebooks take."""

import pytest
import smollm2
from smollm2 import ORION, PUMA, TUNING, from_reference, load, share_copied, table

from pwagents.evaluation.records import EpisodeRecord
from pwagents.lm.small import make_small_model
from pwagents.orion.base import base_tokenizer
from pwagents.orion.settings import SftNotebook
from pwagents.puma.settings import PumaNotebook
from pwagents.puma.study import NO_DPO
from pwagents.schema import Action, Observation, Step, Trajectory


def episode(task_id, *ids, result=0.0):
    action = Action(name="get_recommendations_by_history", arguments={"product_sequence": list(ids)})
    shown = [f"B{i}" for i in range(round(10 * (1 - result)))] + ["the target"]
    step = Step(action=action, observation=Observation(text=".", products=shown))
    told = {"task_id": task_id, "user_id": "U1", "type": "recommend"}
    trajectory = Trajectory(steps=(step,), target="the target", **told)
    made = {"key": task_id, "method": "m", "model": "x", "params": {}, "outcome": "scored", "seconds": 1.0}
    return EpisodeRecord(**made, **(told | EpisodeRecord.details(task_of(told), trajectory)))


def task_of(told):
    from types import SimpleNamespace

    return SimpleNamespace(**told)


def test_copied_are_the_ids_that_stand_in_the_memory_of_their_own_task():
    records = [episode("a", "B1", "B2"), episode("b", "B1"), episode("a search", "B9")]
    assert share_copied(records, {"a": {"B1", "B2"}, "b": {"B3"}}) == "2 of 3"
    assert share_copied([], {}) == "0 of 0"
    odd = episode("a", "B1")
    for value in (None, 3, [["B1"]]):
        odd.trajectory.steps[0].action.arguments["product_sequence"] = value
        assert share_copied([odd], {"a": {"B1"}}) == "0 of 0"


def test_each_model_has_a_row_of_its_own():
    good = [episode("a", "B1", result=1.0), episode("b", "B1", result=1.0)]
    shown = table({"SmolLM2": good, "small": [episode("a")], "nobody": []})
    assert list(shown.index) == ["SmolLM2", "small"]
    assert list(shown["tasks"]) == [2, 1]
    assert shown.loc["SmolLM2", "recommend: result"].startswith("1.00")


@pytest.mark.parametrize(
    ("notebook", "kind", "changes"), [("04_puma", PumaNotebook, PUMA), ("05_orion_sft", SftNotebook, ORION)]
)
def test_its_settings_are_the_notebooks(notebook, kind, changes, tmp_path, monkeypatch):
    monkeypatch.setattr("pwagents.lm.base_settings.gguf_file", lambda: tmp_path)
    assert load(notebook, kind, tmp_path, changes).base.backbone == "SmolLM2-135M-Instruct"


def test_the_small_models_rows_are_of_the_same_data_or_none():
    assert from_reference("04_puma", "04_puma", NO_DPO, "other data", []) == []
    (row,) = {
        row["data_hash"]
        for row in smollm2.read_lines(smollm2.REFERENCE / "timings" / "journal.jsonl")
        if row["notebook"] == "04_puma"
    }
    tasks = [task_of({"task_id": "U0001-28378091-search"}), task_of({"task_id": "no task"})]
    (found,) = from_reference("04_puma", "04_puma", NO_DPO, row, tasks)
    assert found.task_id == "U0001-28378091-search" and found.grade.steps == 1


TINY = {
    "data": {"n_users": 12, "n_products": 120, "history": [5, 12]},
    "shop": {"recommender": {"epochs": 1}},
}
STEPS = TUNING | {"max_steps": 2}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The recipe with a random model in a small world."""
    model, tokenizer = tmp_path / "model", base_tokenizer()
    make_small_model(tokenizer, 0).save_pretrained(model)
    tokenizer.save_pretrained(model)
    monkeypatch.setattr(smollm2, "PRESET", "smoke")
    given = TINY | {"base": {"model": str(model)}}
    study = {
        "training_users": 8,
        "train_tasks": 12,
        "memory_tokens": 300,
        "test_tasks": 4,
        "max_call_tokens": 4,
    }
    monkeypatch.setattr(smollm2, "PUMA", given | {"study": study, "identify": STEPS, "sft": STEPS})
    study = {"training_users": 8, "eval_tasks": 2}
    play = {"turn_tokens": 4, "episode_tokens": 12}
    roles = {"n_trajectories": 3, "scaling": []}
    monkeypatch.setattr(
        smollm2, "ORION", given | {"study": study, "role_play": roles, "sft": STEPS, "play": play}
    )


@pytest.mark.parametrize("recipe", [smollm2.puma, smollm2.orion])
def test_it_runs_from_data_to_table(recipe, tiny, tmp_path):
    found = recipe(tmp_path)
    assert found["tasks"].iloc[0] > 0 and list((tmp_path / "models").glob("*sft*"))
    assert found.isna().sum().sum() == 0, "the small model has played other data, so it has no row"
