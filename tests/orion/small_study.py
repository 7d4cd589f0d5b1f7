"""A study small enough for tests: short histories, so that no profile needs an embedding."""

from copy import copy
from dataclasses import replace
from pathlib import Path

from pwagents.lm.dialogues import dialogue_tokenizer
from pwagents.lm.small import make_small_model
from pwagents.orion.agent import RULES
from pwagents.orion.reward import RewardSettings
from pwagents.orion.settings import OrionSettings
from pwagents.orion.study import Study, make_study

GROUPS = {
    "data": {
        "source": "synthetic",
        "n_users": 8,
        "n_products": 240,
        "history": (6, 14),
        "interests": (2, 3),
        "drift": 0.5,
        "completeness": 0.2,
    },
    "shop": {"max_tokens": 48, "recommender": {"epochs": 1, "batch_size": 32}, "rec_dates": 2},
    "players": {"shown": 2},
    "study": {"training_users": 24, "eval_tasks": 8},
    "base": {},
    "role_play": {"success_rank": 10},
    "sft": {"trainer": {"max_steps": 20, "per_device_train_batch_size": 4, "learning_rate": 1e-2}},
    "play": {"turn_tokens": 12, "episode_tokens": 200, "batch_size": 3},
}
REWARD = RewardSettings(success_rank=10, alignment_weight=0.5)
TINY = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def small_settings(folder: Path, seed: int = 0, stored_runs_only: bool = False, **groups) -> OrionSettings:
    """Eight users held out, 24 to train on, searches alone; ``groups`` hold what is different."""
    changed = {name: group | groups.get(name, {}) for name, group in GROUPS.items()}
    return OrionSettings(
        preset="small", output_dir=folder, seed=seed, stored_runs_only=stored_runs_only, **changed
    )


def small_study(folder: Path, **changes) -> Study:
    """The study of :func:`small_settings`."""
    return make_study(small_settings(folder, **changes))


def elsewhere(study: Study, folder: Path, **changes) -> Study:
    """The same study with its results in another folder; ``changes`` are of its settings."""
    moved = copy(study)
    moved.output_dir, moved.settings = folder, replace(study.settings, **changes)
    return moved


def save_tiny_model(folder: Path, seed: int = 1) -> Path:
    """A random model of the small tokenizer; it has no idea."""
    tokenizer = dialogue_tokenizer(RULES)
    make_small_model(tokenizer, seed, TINY).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
