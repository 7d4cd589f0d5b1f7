"""Settings of notebook 04 by the real loading path: what a preset is, what is refused before any work."""

import pytest

from pwagents.errors import SettingsError
from pwagents.notebook.settings import load_settings, preset_values
from pwagents.puma.settings import PumaNotebook

GROUPS = ("data", "shop", "players", "base", "study", "identify", "sft", "dpo")
FLAT = {"preset": "laptop", "source": "", "data_dir": "", "output_dir": "", "seed": None}


def load(**parameters):
    given = {**FLAT, "stored_runs_only": False, **{group: {} for group in GROUPS}, **parameters}
    return load_settings("04_puma", PumaNotebook, given)


def test_all_trainings_take_the_runs_seed():
    loaded = load(seed=7)
    assert {loaded.identify.seed, loaded.sft.seed, loaded.dpo.seed} == {7}


def test_the_paper_preset_has_the_papers_values():
    values = preset_values("04_puma", PumaNotebook, "paper")
    assert values["study"]["memory_lengths"] == [256, 512] and values["study"]["memory_tokens"] == 768
    assert (values["dpo"]["candidates"], values["dpo"]["temperature"]) == (10, 1.5)
    assert (values["dpo"]["trainer"]["learning_rate"], values["dpo"]["trainer"]["beta"]) == (5e-5, 0.1)
    assert [values[step]["trainer"]["num_train_epochs"] for step in ("sft", "identify")] == [10, 1]
    assert values["sft"]["lora"] == values["dpo"]["lora"] == [16, 32]


def test_variants_of_preferences_are_changes_of_dpo():
    strict = {"name": "strict", "trainer": {"beta": 0.5}, "candidates": 3}
    varied = load(dpo={"variants": [strict]}).dpo.varied["strict"]
    assert (varied.training.trainer["beta"], varied.candidates, varied.variants) == (0.5, 3, ())
    assert varied.trainer["learning_rate"] == 5e-5
    for wrong, told in (
        ([{"trainer": {"beta": 0.5}}], "a name for each of variants"),
        ([{"name": "x", "trainer": {"beta": 0.1}}], "change something, as 'x' does not"),
    ):
        with pytest.raises(SettingsError, match=told):
            load(dpo={"variants": wrong})


def test_a_pipeline_has_one_seed_for_all_of_its_trainings():
    seeded = load().seeded(3)
    assert {seeded.seed, seeded.identify.seed, seeded.sft.seed, seeded.dpo.seed} == {3}
    load(dpo={"variants": [{"name": "other seed", "seed": 3}]}).seeded(3)
    for wrong in ([0, 0], [-1], []):
        with pytest.raises(SettingsError, match=r"study\.seeds"):
            load(study={"seeds": wrong})


def test_a_base_model_is_the_small_one_or_a_folder_with_a_model(tmp_path):
    assert load().base.backbone == "small model, 0.7M parameters"
    with pytest.raises(SettingsError, match=r"base\.model: expected small"):
        load(base={"model": "nowhere"})
    (tmp_path / "config.json").write_text("{}")
    assert load(base={"model": str(tmp_path)}).base.backbone == tmp_path.name
