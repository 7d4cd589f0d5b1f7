"""Settings of trainings: TRL's fields by TRL's names, what decides the weights, what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from pwagents.lm.settings import DpoSettings, SftSettings, deciding
from pwagents.lm.trainer import trl_config
from pwagents.settings import meaning


@pytest.mark.parametrize("group", [SftSettings, DpoSettings])
def test_trls_fields_reach_trl_and_what_is_not_set_has_its_default(group):
    import trl

    given = {"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "gradient_accumulation_steps": 3}
    made = trl_config(group(trainer=given), Path("x"), [], chance="fine-tuning", log_steps=10)
    plain = getattr(trl, group.CONFIG)(output_dir="x", use_cpu=True, bf16=False)
    ours = {"logging_steps", "save_steps", "save_total_limit", "seed", "logging_first_step", "output_dir"}
    ours |= {"logging_nan_inf_filter", "disable_tqdm", "activation_checkpointing", "gradient_checkpointing"}
    different = {name for name, value in made.to_dict().items() if value != plain.to_dict()[name]}
    assert different - ours == set(given)
    assert all(getattr(made, name) == value for name, value in given.items())
    # Seeds that reference results were made with: another one is another training.
    assert made.seed == 3608728275


def test_a_checkpoint_gets_a_row_of_the_log_to_itself():
    fields = {"save_steps": 33, "logging_steps": 10}
    assert trl_config(SftSettings(trainer=fields), Path("x"), [], chance="", log_steps=5).save_steps == 40


@pytest.mark.parametrize(
    ("group", "wrong", "line"),
    [
        (SftSettings, {"learning_rat": 1}, "no field of TRL's SFTConfig .* Did you mean 'learning_rate'?"),
        (SftSettings, {"beta": 0.1}, "'beta' is no field of TRL's SFTConfig"),
        (SftSettings, {"output_dir": "x"}, "'output_dir' is no field .* that can be set here"),
        (SftSettings, {"learning_rate": "high"}, "learning_rate: Input should be a valid number"),
        (DpoSettings, {"betta": 0.1}, "DPOConfig .* Did you mean 'beta'?"),
    ],
)
def test_what_trl_does_not_have_is_refused_by_name(group, wrong, line):
    with pytest.raises(ValueError, match=line):
        group(trainer=wrong)


def test_numbers_that_yaml_takes_for_text_are_numbers():
    assert SftSettings(trainer={"learning_rate": "1e-4"}).trainer["learning_rate"] == 1e-4


def test_bfloat16_where_only_an_adapter_is_trained():
    kinds = [
        SftSettings(trainer={"bf16": bf16}, lora=lora) for bf16 in (False, True) for lora in (None, (4, 8))
    ]
    assert [kind.weights for kind in kinds] == ["float32", "float32", "float32", "bfloat16"]


def test_what_decides_the_weights():
    settings = SftSettings(lora=[16, 32], trainer={"max_steps": 3})
    aside = {"max_steps": 3, "report_to": "none", "save_steps": 7}
    assert deciding(replace(settings, sharding="ddp", trainer=aside)) == deciding(settings)
    for decides in ({"seed": 1}, {"n_gpus": 2}, {"lora": (4, 8)}, {"trainer": {"max_steps": 5}}):
        assert deciding(replace(settings, **decides)) != deciding(settings)


@pytest.mark.parametrize("group", [SftSettings, DpoSettings])
def test_every_setting_says_what_it_means(group):
    assert all(meaning(group, name) for name in group.__pydantic_fields__)
