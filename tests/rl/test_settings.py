"""Settings of reinforcement learning: what TRL's trainer makes of them, what is refused."""

from pathlib import Path

import pytest
import torch

from pwagents.rl.settings import GrpoSettings, PpoSettings
from pwagents.settings import meaning

MANY = {"learning_rate": 1e-4, "seed": 5, "bf16": True, "report_to": "tensorboard"}
# The settings, and in TRL's configuration what differs from TRL's own defaults.
TOLD = {
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
            **MANY,
            per_device_train_batch_size=7,
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
def test_the_trainer_gets_these_settings_and_trls_defaults_for_the_rest(settings, expected):
    from pwagents.rl.grpo_trainer import grpo_arguments

    made = grpo_arguments(settings, Path("x"))
    plain = type(made)(output_dir="x", use_cpu=True, bf16=False, disable_tqdm=True).to_dict()
    assert {name: value for name, value in made.to_dict().items() if value != plain[name]} == expected


@pytest.mark.parametrize("group", [GrpoSettings, PpoSettings])
def test_every_setting_says_what_it_means(group):
    assert all(meaning(group, name) for name in group.__pydantic_fields__)


@pytest.mark.parametrize(
    ("group", "wrong"),
    [
        (GrpoSettings, {"num_generations": 1}),
        (GrpoSettings, {"credit": "token"}),
        (GrpoSettings, {"temperature": 0.0}),
        (PpoSettings, {"optim": "adamw_bnb_8bit"}),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(group, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        group(max_steps=1, **wrong)
