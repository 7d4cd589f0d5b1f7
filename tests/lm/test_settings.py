"""Settings of trainings: what TRL's trainers make of them, what decides the weights, what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pwagents.lm.dpo import dpo_arguments
from pwagents.lm.settings import DpoSettings, SftSettings, deciding
from pwagents.lm.sft import sft_arguments
from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.settings import meaning

MANY = {
    "learning_rate": 1e-4,
    "per_device_train_batch_size": 3,
    "seed": 5,
    "bf16": True,
    "report_to": "tensorboard",
}
# In each training's settings -> in TRL's configuration, what differs from TRL's own defaults.
TOLD = {
    "sft as it is": (
        SftSettings(),
        {
            "learning_rate": 0.002,
            "warmup_steps": 0.05,
            "activation_checkpointing": False,
            "gradient_checkpointing": False,
            "dataset_kwargs": {"skip_prepare_dataset": True},
            "logging_first_step": True,
            "logging_nan_inf_filter": False,
            "max_length": None,
            "save_steps": 100,
            "save_total_limit": 1,
            "seed": 3608728275,
        },
    ),
    "sft": (
        SftSettings(
            **MANY,
            max_steps=7,
            gradient_accumulation_steps=2,
            warmup_steps=3,
            lr_scheduler_type="cosine",
            weight_decay=0.1,
            optim="adamw_bnb_8bit",
            save_steps=33,
        ),
        {
            "dataset_kwargs": {"skip_prepare_dataset": True},
            "gradient_accumulation_steps": 2,
            "learning_rate": 0.0001,
            "logging_first_step": True,
            "logging_nan_inf_filter": False,
            "lr_scheduler_type": "cosine",
            "max_length": None,
            "max_steps": 7,
            "optim": "adamw_bnb_8bit",
            "per_device_train_batch_size": 3,
            "report_to": ["tensorboard"],
            "save_steps": 40,
            "save_total_limit": 1,
            "seed": 4064635995,
            "warmup_steps": 3,
            "weight_decay": 0.1,
        },
    ),
    "dpo as it is": (
        DpoSettings(),
        {
            "activation_checkpointing": False,
            "gradient_accumulation_steps": 16,
            "gradient_checkpointing": False,
            "learning_rate": 5e-05,
            "logging_first_step": True,
            "logging_nan_inf_filter": False,
            "logging_steps": 5,
            "max_length": None,
            "num_train_epochs": 5.0,
            "per_device_train_batch_size": 1,
            "save_steps": 100,
            "save_total_limit": 1,
            "seed": 196280244,
        },
    ),
    "dpo": (
        DpoSettings(**MANY, num_train_epochs=2, gradient_accumulation_steps=2, beta=0.3, save_steps=33),
        {
            "beta": 0.3,
            "gradient_accumulation_steps": 2,
            "learning_rate": 0.0001,
            "logging_first_step": True,
            "logging_nan_inf_filter": False,
            "logging_steps": 5,
            "max_length": None,
            "num_train_epochs": 2,
            "per_device_train_batch_size": 3,
            "report_to": ["tensorboard"],
            "save_steps": 35,
            "save_total_limit": 1,
            "seed": 3842447606,
        },
    ),
    "grpo as it is": (
        GrpoSettings(max_steps=9),
        {
            "activation_checkpointing": False,
            "generation_batch_size": 64,
            "gradient_accumulation_steps": 4,
            "gradient_checkpointing": False,
            "learning_rate": 0.0005,
            "logging_steps": 1,
            "lr_scheduler_type": "constant",
            "max_completion_length": 8192,
            "max_steps": 9,
            "per_device_train_batch_size": 16,
            "save_steps": 25,
            "save_total_limit": 1,
            "seed": 3713902822,
            "shuffle_dataset": False,
            "steps_per_generation": 4,
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_max_model_length": 8192,
        },
    ),
    "grpo": (
        GrpoSettings(
            **MANY | {"per_device_train_batch_size": 7},
            max_steps=9,
            prompts_per_step=6,
            num_generations=4,
            lr_scheduler_type="linear",
            warmup_steps=2,
            temperature=0.6,
            epsilon=0.3,
            beta=0.05,
            entropy_coef=0.01,
            max_grad_norm=0.5,
            save_steps=0,
            loss_type="grpo",
            optim="adamw_bnb_8bit",
            vllm_gpu_memory_utilization=0.4,
            vllm_max_model_length=4096,
        ),
        {
            "beta": 0.05,
            "entropy_coef": 0.01,
            "epsilon": 0.3,
            "generation_batch_size": 24,
            "gradient_accumulation_steps": 4,
            "learning_rate": 0.0001,
            "logging_steps": 1,
            "loss_type": "grpo",
            "max_completion_length": 4096,
            "max_grad_norm": 0.5,
            "max_steps": 9,
            "num_generations": 4,
            "optim": "adamw_bnb_8bit",
            "per_device_train_batch_size": 6,
            "report_to": ["tensorboard"],
            "save_steps": 1,
            "save_total_limit": 1,
            "save_strategy": "no",
            "seed": 1390048185,
            "shuffle_dataset": False,
            "steps_per_generation": 4,
            "temperature": 0.6,
            "vllm_gpu_memory_utilization": 0.4,
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_max_model_length": 4096,
            "warmup_steps": 2,
        },
    ),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="written for a machine without GPUs")
@pytest.mark.parametrize(("settings", "expected"), TOLD.values(), ids=TOLD)
def test_the_trainers_get_these_settings_and_trls_defaults_for_the_rest(settings, expected):
    from pwagents.rl.grpo_trainer import grpo_arguments

    to_trl = {"SftSettings": sft_arguments, "DpoSettings": dpo_arguments, "GrpoSettings": grpo_arguments}
    made = to_trl[type(settings).__name__](settings, Path("x"))
    plain = type(made)(output_dir="x", use_cpu=True, bf16=False, disable_tqdm=True).to_dict()
    assert {name: value for name, value in made.to_dict().items() if value != plain[name]} == expected


def test_bfloat16_where_only_an_adapter_is_trained():
    kinds = [SftSettings(bf16=bf16, lora=lora) for bf16 in (False, True) for lora in (None, (4, 8))]
    assert [kind.weights for kind in kinds] == ["float32", "float32", "float32", "bfloat16"]
    assert [kind.gradient_checkpointing for kind in kinds] == [False, False, True, True]


def test_what_decides_the_weights():
    settings = SftSettings(lora=[16, 32])
    aside = {"report_to": "trackio", "save_steps": 7, "sharding": "ddp"}
    assert deciding(replace(settings, **aside)) == deciding(settings)
    assert deciding(settings)["lora"] == [16, 32]
    for decides in ({"seed": 1}, {"n_gpus": 2}, {"bf16": True}, {"max_steps": 5}):
        assert deciding(replace(settings, **decides)) != deciding(settings)


@pytest.mark.parametrize("group", [SftSettings, DpoSettings, GrpoSettings, PpoSettings])
def test_every_setting_says_what_it_means(group):
    assert all(meaning(group, name) for name in group.__pydantic_fields__)


@pytest.mark.parametrize(
    ("group", "wrong"),
    [
        (SftSettings, {"batch_size": 8}),
        (SftSettings, {"optim": "sgd"}),
        (DpoSettings, {"lora": None}),
        (DpoSettings, {"sharding": "fsdp"}),
        (GrpoSettings, {"num_generations": 1}),
        (GrpoSettings, {"credit": "token"}),
        (GrpoSettings, {"temperature": 0.0}),
        (PpoSettings, {"optim": "adamw_bnb_8bit"}),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(group, wrong):
    needed = {"max_steps": 1} if group in (GrpoSettings, PpoSettings) else {}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        group(**needed, **wrong)
