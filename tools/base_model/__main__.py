"""Make both base models again, each with its card: ``python -m base_model [FOLDER]``."""

import sys
from pathlib import Path

import pandas as pd

from base_model.dialogues import dialogue_text
from base_model.exercises import ExerciseText
from base_model.pretrain import LOG, Text, content_hash, small_base
from pwagents.llm.make import Models
from pwagents.lm.base import SHIPPED
from pwagents.orion.study import load_world
from pwagents.puma.study import load_worlds
from pwagents.settings import load_settings

SEED = 0  # of the world, the text and the first weights
CARD = """\
---
license: mit
language: en
library_name: transformers
---

# {name}

A Qwen2 of {size:,} parameters with {layers} layers and a vocabulary of {words:,} tokens, in float32. The
trainings of {trainings} start from it in presets smoke and laptop, in every world and with every seed.

- **Trained on** text made up on the spot ({kinds}), in {steps:,} steps of AdamW. No user, product or task of
  synthetic world {seed} occurs in it, and no text of others. Made-up products have the same words, so that
  now and then one has the title, or the id, of a product of another world. The text teaches the form of calls
  and to copy what a prompt says; what to search for, recommend, write or ask it does not teach.
- **At the end** it predicts {right:.0%} of the copied tokens of held-out texts.
- **Text**: `{text}`, the content hash of its first examples.
- **Made again** by `PYTHONPATH=tools .venv/bin/python -m base_model`.
"""


def texts(output_dir: str) -> dict[str, Text]:
    """Return what each model reads, by the name of its folder: for world 0 of preset laptop."""
    given = {"preset": "laptop", "seed": SEED, "output_dir": output_dir}
    settings = load_settings("05_orion_sft", given)
    models = Models(settings.players, settings.output_dir / "replies.sqlite")
    orion = load_world(settings, models)[0].products
    puma = load_worlds(load_settings("04_puma", given)).products
    return {"orion": dialogue_text(orion, SEED), "puma": ExerciseText(puma, SEED)}


def write_card(folder: Path, text: Text) -> None:
    """Write the card of the model in a folder, which is named "orion" or "puma", and remove its log."""
    from transformers import AutoModelForCausalLM

    model, log = AutoModelForCausalLM.from_pretrained(folder), pd.read_csv(folder / LOG)
    trainings, kinds = {
        "orion": ("Orion (notebooks 05 to 08)", "dialogues in the agent's format"),
        "puma": ("PUMA (notebook 04)", "prompts with completions"),
    }[folder.name]
    card = CARD.format(
        name=f"Small base model of {trainings.partition(' ')[0]}",
        trainings=trainings,
        kinds=kinds,
        size=model.num_parameters(),
        layers=model.config.num_hidden_layers,
        words=model.config.vocab_size,
        steps=int(log.groupby("lesson")["step"].max().sum()),
        right=log["query_accuracy"].iloc[-1],
        text=content_hash(text),
        seed=SEED,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / LOG).unlink()


def main(folder: Path = SHIPPED) -> None:
    """Make both models and their cards in a folder."""
    for name, text in texts("outputs/base_model").items():
        small_base(folder / name, text, SEED)
        write_card(folder / name, text)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
