"""Settings of trainings: TRL's fields by TRL's names, what decides the weights, what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from pwagents.lm import settings as module
from pwagents.lm.settings import DpoSettings, SftSettings, deciding
from pwagents.lm.trainer import trl_config

from .conftest import CIRCUMSTANCES


@pytest.mark.parametrize("group", [SftSettings, DpoSettings])
def test_trls_fields_reach_trl_and_what_is_not_set_has_its_default(group):
    import trl

    given = {"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "gradient_accumulation_steps": 3}
    written = {**given, "learning_rate": "1e-4"}  # YAML takes it for text
    made = trl_config(group(trainer=written), Path("x"), [], chance="fine-tuning", log_steps=10)
    plain = getattr(trl, group.CONFIG)(output_dir="x", use_cpu=True, bf16=False)
    ours = {"logging_steps", "save_steps", "save_total_limit", "seed", "logging_first_step", "output_dir"}
    ours |= {"logging_nan_inf_filter", "disable_tqdm", "activation_checkpointing", "gradient_checkpointing"}
    different = {name for name, value in made.to_dict().items() if value != plain.to_dict()[name]}
    assert different - ours == set(given)
    assert all(getattr(made, name) == value for name, value in given.items())
    # Seeds that reference results were made with: another one is another training.
    assert made.seed == 3608728275


@pytest.mark.parametrize(("group", "fields", "line"), CIRCUMSTANCES["fields"])
def test_what_trl_does_not_have_is_refused_by_name(group, fields, line):
    with pytest.raises(ValueError, match=line):
        getattr(module, group)(trainer=fields)


def test_what_decides_the_weights():
    settings = SftSettings(lora=[16, 32], trainer={"max_steps": 3})
    aside = {"max_steps": 3, "report_to": "none", "save_steps": 7}
    assert deciding(replace(settings, sharding="ddp", trainer=aside)) == deciding(settings)
    for decides in ({"seed": 1}, {"n_gpus": 2}, {"lora": (4, 8)}, {"trainer": {"max_steps": 5}}):
        assert deciding(replace(settings, **decides)) != deciding(settings)
