"""A tiny model in a folder, rows to learn from, and trainings of it that can be killed."""

import random
from pathlib import Path

from pwagents.lm.dpo import prefer
from pwagents.lm.settings import DpoSettings, SftSettings
from pwagents.lm.sft import fine_tune
from pwagents.lm.small import make_small_model, make_tokenizer

SIZE = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = ["mat", "yoga", "red", "mug", "lamp", "navy", "soft", "wool"]
STEPS = {"per_device_train_batch_size": 4, "learning_rate": 1e-2, "save_steps": 10}


def save_base(folder: Path) -> Path:
    tokenizer = make_tokenizer(WORDS)
    make_small_model(tokenizer, 0, SIZE).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def texts(count: int = 60) -> list[dict[str, str]]:
    """Prompts of some words, completed by the same words."""
    draw = random.Random(0)
    said = [" ".join(draw.choices(WORDS, k=draw.randrange(1, 6))) for _ in range(count)]
    return [{"prompt": f"{words} : ", "completion": words} for words in said]


def pairs(count: int = 20) -> list[dict[str, str]]:
    """Prompts whose own words are preferred to others."""
    return [
        {"prompt": row["prompt"], "chosen": row["completion"], "rejected": "soft lamp"}
        for row in texts(count)
    ]


def sft(**fields) -> SftSettings:
    return SftSettings(seed=3, trainer=STEPS | {"max_steps": 40} | fields)


def dpo(**fields) -> DpoSettings:
    return DpoSettings(lora=(4, 8), trainer=STEPS | {"max_steps": 20} | fields)


def train_sft(base: Path, folder: Path, **fields):
    return fine_tune(base, texts(), sft(**fields), folder)


def train_dpo(base: Path, folder: Path, **fields):
    return prefer(base, pairs(), dpo(**fields), folder)
