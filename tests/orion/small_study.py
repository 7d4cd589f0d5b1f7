"""A study small enough for tests: short histories, so that no profile needs an embedding."""

from pathlib import Path

from pwagents.lm.small import make_small_model, make_tokenizer
from pwagents.orion.study import Study, make_study

DATA = {
    "source": "synthetic",
    "data_dir": "",
    "n_users": 8,
    "n_products": 240,
    "history": [6, 14],
    "interests": [2, 3],
    "drift": 0.5,
    "completeness": 0.2,
}
SHOP = {
    "search_engine": "bm25",
    "observation": "compact",
    "max_tokens": 48,
    "recommender": {"epochs": 1, "batch_size": 32},
    "rec_dates": 2,
}
TINY = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def small_study(folder: Path, **changes) -> Study:
    """Eight users held out, 24 to train on, searches alone; ``changes`` replace arguments."""
    known = {
        "output_dir": folder,
        "seed": 0,
        "data": DATA,
        "shop": SHOP,
        "roles": {},
        "task_types": ["search"],
        "training_users": 24,
        "eval_tasks": 8,
    }
    return make_study(**(known | changes))


def save_tiny_model(folder: Path, seed: int = 1) -> Path:
    """A random model of the small tokenizer; it has no idea."""
    tokenizer = make_tokenizer()
    make_small_model(tokenizer, seed, TINY).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
