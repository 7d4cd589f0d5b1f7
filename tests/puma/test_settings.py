"""Settings of notebook 04 by the real loading path: what a preset is, what is refused before any work."""

import pytest

from pwagents.errors import SettingsError
from pwagents.notebook.settings import load_settings, settings_values
from pwagents.puma.settings import NO_DPO, PLUS, PUMA, PumaNotebook

GROUPS = ("data", "shop", "players", "base", "study", "identify", "sft", "dpo")
FLAT = {"preset": "laptop", "source": "", "data_dir": "", "output_dir": "", "seed": None}


def load(**parameters):
    given = {**FLAT, "stored_runs_only": False, **{group: {} for group in GROUPS}, **parameters}
    return load_settings("04_puma", PumaNotebook, given)


def test_the_paper_preset_has_the_scripts_values():
    values = settings_values("04_puma", PumaNotebook, {"preset": "paper"})
    study, sft, dpo = (values[group] for group in ("study", "sft", "dpo"))
    assert (study["protocol"], study["labels"], study["pad_counts"]) == ("published", "published", True)
    assert study["memory_lengths"] == [256, 512] and study["memory_tokens"] == 768
    assert study["max_new_tokens"] == 256 and values["shop"]["max_tokens"] == 512
    assert (dpo["candidates"], dpo["temperature"], dpo["pairs"]) == (10, 1.5, "every_task")
    assert (dpo["held_out"], dpo["variants"]) == (0.0, [])
    assert (dpo["trainer"]["learning_rate"], dpo["trainer"]["beta"]) == (5e-5, 0.1)
    assert (sft["trainer"]["num_train_epochs"], dpo["trainer"]["num_train_epochs"]) == (10, 5)
    assert (sft["trainer"]["max_length"], dpo["trainer"]["max_length"]) == (1280, 1024)
    assert sft["lora"] == dpo["lora"] == [16, 32] and values["identify"] == sft
    assert {"embed_tokens", "lm_head", "norm"} < set(sft["modules_to_save"])


def test_few_variants_are_puma_and_puma_plus_and_all_has_each_part_by_itself():
    few, every = (load(study={"variants": variants}).methods() for variants in ("few", "all"))
    assert list(few) == [PUMA, PLUS, NO_DPO]
    puma, plus = few[PUMA], few[PLUS]
    assert (puma.memory, puma.ids, puma.hint) == ("paper", "asin", "none")
    assert (plus.memory, plus.ids, plus.hint) == ("interest", "number", "recurring")
    switched = {name: method for name, method in every.items() if name.startswith("PUMA + ")}
    assert list(switched) == ["PUMA + interest memory", "PUMA + numbers for ids", "PUMA + recurring word"]
    for method in every.values():  # but for PUMA+, each row changes PUMA in one thing, or is without training
        different = [name for name in vars(puma) if getattr(method, name) != getattr(puma, name)]
        assert len(different) <= 1 or method == plus or not (method.sft or method.dpo)
    assert (
        every["PUMA, 64 tokens"].memory_tokens == 64 and every["PUMA, published labels"].labels == "published"
    )


def test_variants_of_preferences_are_two_at_most_and_chosen_on_tasks_held_out():
    varied = load(dpo={"variants": [{"name": "strict", "trainer": {"beta": 0.5}}]}).dpo.varied
    assert list(varied) == ["as set", "strict"]
    assert varied["strict"].trainer == {**varied["as set"].trainer, "beta": 0.5}
    three = [{"name": str(beta), "trainer": {"beta": beta}} for beta in (0.2, 0.3, 0.4)]
    for wrong, told in (
        ({"variants": three}, "two variants at most"),
        ({"held_out": 0.0}, "expected held_out above 0"),
        ({"variants": [{"trainer": {"beta": 0.5}}]}, "a name for each of variants"),
    ):
        with pytest.raises(SettingsError, match=told):
            load(dpo=wrong)


def test_all_trainings_take_the_runs_seed_and_a_whole_run_has_one_seed():
    for loaded in (load(seed=7), load().seeded(7)):
        assert {loaded.seed, loaded.identify.seed, loaded.sft.seed, loaded.dpo.seed} == {7}
    for wrong in ([0, 0], [-1], []):
        with pytest.raises(SettingsError, match=r"study\.seeds"):
            load(study={"seeds": wrong})
