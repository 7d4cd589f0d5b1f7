"""The prompt baselines of Orion's Table 1 on Orion's own tasks, through any chat model.

The paper names five and their three backbones (5.1), and prints no prompt. So the agents are those of
notebook 03, in our words (:data:`pwagents.agents.methods.METHODS`). What each knows of its user, beside what
is asked and answered:

- Raw and CoT: nothing, as nothing is said of it (5.1).
- ReAct: the latest behaviours, as in PersonalWAB (A.2), on whose benchmark Orion's tasks are built (5.1).
- ChatShop: nothing; it stands for agents that are not personalized (5.1).
- PUMA: its task-specific memory, told to the same model: "Personalized Prompting" (5.1; PersonalWAB, 5.1).

None has Orion's contextual profile: prompt-based methods have static ones at most (5.2).
"""

import json

import pandas as pd

from pwagents.agents.chat import Setup
from pwagents.agents.methods import METHODS
from pwagents.embedding import Embedder
from pwagents.results.papers import ORION
from pwagents.schema import Task, Trajectory
from pwagents.store import Episode, Store, episodes
from pwagents.results.episodes import records_frame
from pwagents.llm.make import Models
from pwagents_old.orion.settings import GrpoNotebook
from pwagents_old.orion.study import Study

FILE = "runs/orion_baselines.jsonl"  # of the episodes, in the output folder


def play_baselines(study: Study, settings: GrpoNotebook) -> pd.DataFrame:
    """Play each baseline with each of ``players.policies`` on the test tasks, as far as it is not stored.

    Returns:
        One row an episode (:func:`pwagents.results.episodes.records_frame`), of these models and of those
        with which earlier runs played all of the same tasks.

    Raises:
        InfrastructureError: some episode could not be played. All others are stored.
    """
    players, store = settings.players, study.output_dir / FILE
    models = Models(players, study.output_dir / "runs" / "replies.sqlite")
    embedder = Embedder(study.output_dir / "cache", settings.shop.max_tokens, batch_size=64)
    for model in map(models, players.policies):
        setup = Setup(model, study.benchmark.products, embedder=embedder, seed=study.seed)
        for method in ORION:
            agent = METHODS[method](setup)

            def solve(task: Task, agent=agent) -> Trajectory:
                episode = study.start(task)
                episode.update = None  # no baseline reads the profile
                return episode.play(agent)

            params = {**study.facts, "policy": players.facts()}
            options = {"workers": players.workers, "stored_only": settings.stored_runs_only}
            names = {"method": method, "model": model.name}
            episodes(store, study.test_tasks, solve, params, **names, **options)

    # All whole runs in the file that this study's facts decided; of a model's, the last.
    facts, ids = json.loads(json.dumps(study.facts)), {task.task_id for task in study.test_tasks}
    runs: dict[tuple[str, str, str], dict[str, Episode]] = {}
    for record in Store(store, Episode).read():
        own = {name: value for name, value in record.params.items() if name != "policy"}
        if own == facts and record.outcome != "infrastructure_error":
            run = record.model, record.method, json.dumps(record.params["policy"])
            runs.setdefault(run, {})[record.task_id] = record
    whole = {run[:2]: played for run, played in runs.items() if ids <= {*played}}
    return records_frame([played[task.task_id] for played in whole.values() for task in study.test_tasks])
