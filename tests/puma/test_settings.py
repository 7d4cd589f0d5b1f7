"""Settings of notebook 04 by the real loading path: what a preset is, what is refused before any work."""

import pytest

from pwagents.errors import SettingsError
from pwagents.notebook.settings import load_settings, settings_values
from pwagents.puma.settings import NO_DPO, PLUS, PUMA, PumaNotebook

GROUPS = ("data", "shop", "players", "base", "study", "identify", "sft", "dpo")
GIVEN = {"preset": "laptop", "source": "", "data_dir": "", "output_dir": "", "seed": None}
GIVEN |= {"stored_runs_only": False, **{group: {} for group in GROUPS}}
SCRIPTS = {  # as the published scripts have it, or the paper where it says so
    "study": {"protocol": "published", "labels": "published", "pad_counts": True, "memory_tokens": 768}
    | {"memory_lengths": [256, 512], "max_new_tokens": 256},
    "shop": {"max_tokens": 512},
    "players": {"label_writer": "openai:gpt-4o-mini"},
    "sft": {"lora": [16, 32]},
    "dpo": {"candidates": 10, "temperature": 1.5, "pairs": "every_task", "held_out": 0.0, "variants": []}
    | {"lora": [16, 32]},
}
TRAINERS = {
    "sft": {"num_train_epochs": 10, "max_length": 1280},
    "dpo": {"num_train_epochs": 5, "max_length": 1024, "learning_rate": 5e-5, "beta": 0.1},
}


def load(**parameters):
    return load_settings("04_puma", PumaNotebook, GIVEN | parameters)


def test_the_paper_preset_has_the_scripts_values():
    values = settings_values("04_puma", PumaNotebook, {"preset": "paper"})
    assert all(values[group].items() >= expected.items() for group, expected in SCRIPTS.items())
    assert all(values[group]["trainer"].items() >= fields.items() for group, fields in TRAINERS.items())
    assert {"embed_tokens", "lm_head", "norm"} < set(values["sft"]["modules_to_save"])
    assert values["identify"] == values["sft"]


def test_few_variants_are_puma_and_puma_plus_and_all_has_each_part_by_itself():
    few, every = (load(study={"variants": variants}).methods() for variants in ("few", "all"))
    assert list(few) == [PUMA, PLUS, NO_DPO]
    puma, plus = few[PUMA], few[PLUS]
    assert (puma.memory, puma.ids, puma.hint) == ("paper", "asin", "none")
    assert (plus.memory, plus.ids, plus.hint) == ("interest", "number", "recurring")
    switched = [name for name in every if name.startswith("PUMA + ")]
    assert switched == ["PUMA + interest memory", "PUMA + numbers for ids", "PUMA + recurring word"]
    for method in every.values():  # but for PUMA+, each row changes PUMA in one thing, or is without training
        different = [name for name in vars(puma) if getattr(method, name) != getattr(puma, name)]
        assert len(different) <= 1 or method == plus or not (method.sft or method.dpo)
    assert every["PUMA, 64 tokens"].memory_tokens == 64
    assert every["PUMA, published labels"].labels == "published"


def test_variants_of_preferences_are_two_at_most_and_chosen_on_tasks_held_out():
    strict = {"name": "strict", "trainer": {"beta": 0.5}}
    varied = load(dpo={"variants": [strict]}).dpo.varied
    assert list(varied) == ["as set", "strict"]
    assert varied["strict"].trainer == {**varied["as set"].trainer, "beta": 0.5}
    for wrong, told in (
        ({"variants": [{**strict, "name": str(i)} for i in range(3)]}, "two variants at most"),
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
