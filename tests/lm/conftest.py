"""What the tests of trainings share: a tiny model in a folder, rows to learn from, trainings of it."""

import random
from pathlib import Path

import pandas as pd
import pytest
import yaml

from base_model.small import make_small_model, make_tokenizer
from pwagents.lm.train import fine_tune, prefer
from pwagents.settings import DpoSettings, SftSettings

CIRCUMSTANCES = yaml.safe_load(Path(__file__).with_name("circumstances.yaml").read_text("utf-8"))
SIZE = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = ["mat", "yoga", "red", "mug", "lamp", "navy", "soft", "wool"]
# Checkpoints after 10 steps, each after a row of the log.
STEPS = {"per_device_train_batch_size": 4, "learning_rate": 1e-2, "save_steps": 9}


def save_base(folder: Path) -> Path:
    tokenizer = make_tokenizer(WORDS)
    make_small_model(tokenizer, 0, SIZE).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def texts(count: int = 60) -> list[dict[str, str]]:
    """Prompts of some words, completed by the same words."""
    draw = random.Random(0)
    chosen = [" ".join(draw.choices(WORDS, k=draw.randrange(1, 6))) for _ in range(count)]
    return [{"prompt": f"{words} : ", "completion": words} for words in chosen]


def pairs(count: int = 20) -> list[dict[str, str]]:
    """Prompts whose own words are preferred to others."""
    rows = texts(count)
    return [{"prompt": r["prompt"], "chosen": r["completion"], "rejected": "soft lamp"} for r in rows]


def sft(**fields) -> SftSettings:
    return SftSettings(seed=3, trainer=STEPS | {"max_steps": 40} | fields)


def dpo(**fields) -> DpoSettings:
    return DpoSettings(lora=(4, 8), trainer=STEPS | {"max_steps": 20} | fields)


def log_of(train, *given, **options) -> pd.DataFrame:
    """Train, and return the log; the folder is the last of what is given."""
    train(*given, **options)
    return pd.read_csv(given[-1] / "log.csv")


def train_sft(base: Path, folder: Path, **fields):
    return log_of(fine_tune, base, texts(), sft(**fields), folder)


def train_dpo(base: Path, folder: Path, **fields):
    return log_of(prefer, base, pairs(), dpo(**fields), folder)


TRAININGS = {"sft": train_sft, "dpo": train_dpo}


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder of models: ``base``; ``sft``, trained from it as a whole; ``dpo``, an adapter on it."""
    folder = tmp_path_factory.mktemp("outputs") / "models"
    save_base(folder / "base")
    for name, train in TRAININGS.items():
        train(folder / "base", folder / name)
    return folder


@pytest.fixture(scope="session")
def base(models):
    return models / "base"
