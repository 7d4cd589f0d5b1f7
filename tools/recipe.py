"""Choose how policies are trained by rewards: once, on validation tasks of world 0, the development world.

    .venv/bin/python tools/recipe.py FOLDER

trains GRPO from the fine-tuned model with each configuration below, lets the policies of the last step play
all validation tasks greedily, and writes ``recipe.csv`` beside this file, which notebook 06 shows. The one
with the highest mean of the returns of the three kinds of tasks stands in ``params/laptop.yaml``; worlds 5 to
9, where results are from, had no part in it. A run that was stopped goes on where it was.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from pwagents.llm.local_model import LocalModel
from pwagents.lm.base import base_folder
from pwagents.lm.launch import side_by_side
from pwagents.orion.experiment import policy_folder
from pwagents.orion.study import make_study
from pwagents.orion.train import fine_tuned, game_of, make_conversations, reinforced
from pwagents.settings import load_settings

CONSTANT, LINEAR = "constant_with_warmup", "linear"
# Updates a batch, schedule, learning rate; a warm-up of five steps in all.
CONFIGURATIONS = [
    (4, LINEAR, 2e-4),
    (4, CONSTANT, 2e-4),
    (1, LINEAR, 2e-4),
    (1, CONSTANT, 2e-4),
    (4, CONSTANT, 5e-5),
    (1, CONSTANT, 5e-4),
    (1, LINEAR, 5e-4),
    (1, CONSTANT, 1e-3),
]
COLUMNS = ["updates a batch", "schedule", "learning rate", "mean of kinds", "search", "recommend", "review"]
COLUMNS += ["return", "low", "high"]  # of all tasks, with its 95% interval over users


def train(settings, tuned: Path, configuration: tuple) -> dict:
    """Train with one configuration (none: not at all), and return its row of the table."""
    folder, row = tuned, {"updates a batch": 0}
    if configuration:
        names = ("minibatches", "lr_scheduler_type", "learning_rate")
        settings = settings.changed(rl=dict(zip(names, configuration, strict=True)))
        folder = reinforced(settings, tuned)
        row = dict(zip(("updates a batch", "schedule", "learning rate"), configuration, strict=True))
    game = replace(game_of(settings, settings.rl.grpo), log_tasks=0)
    model = LocalModel(policy_folder(folder)).loaded
    measured = game.evaluate(model.model, model.tokenizer)
    returns = {name: value for name, value in measured.items() if name.startswith("return_")}
    row |= {"mean of kinds": sum(returns.values()) / len(returns), "return": measured["return"]}
    row |= {"low": measured["return"] - 1.96 * measured["error"]}
    row |= {"high": measured["return"] + 1.96 * measured["error"]}
    return row | {name.removeprefix("return_"): value for name, value in returns.items()}


def main(folder: Path) -> None:
    """Train with all configurations, two beside each other, and write the table."""
    import pandas as pd  # after the library, which sets how numpy and torch compute

    settings = load_settings("06_orion_grpo", {"preset": "laptop", "seed": 0, "output_dir": str(folder)})
    study = make_study(settings)
    print(f"{len(study.train_tasks):,} train tasks, {len(study.validation_tasks):,} validation tasks")
    base = base_folder(settings.base, "orion", folder / "models")
    kept = make_conversations(study, settings.role_play.n_trajectories).kept
    tuned = fine_tuned(study, base, kept, settings.sft)
    configurations = [(), *CONFIGURATIONS]
    rows = side_by_side(partial(train, settings, tuned), configurations, settings.base, one_by_one=False)
    table = pd.DataFrame(rows)[COLUMNS]
    table.to_csv(Path(__file__).with_suffix(".csv"), index=False, float_format="%.6g")
    print(table.round(3).to_string())


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
