"""Whole runs in other worlds: the embedded shop, its people and all trainings made anew from another seed.

A world of the run's own seed is that of notebooks 05 and 06, whose models and episodes are found again.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pwagents.orion.role_play import Played
from pwagents.orion.runs import OrionRuns
from pwagents.orion.settings import AblationsNotebook
from pwagents.orion.study import make_study
from pwagents.orion.train import OrionModels


def play_worlds(models: OrionModels, settings: AblationsNotebook) -> pd.DataFrame:
    """Train base model, SFT and each of ``rl.methods`` in each of ``rl.worlds``, and let them play its tests.

    Trainings run beside each other; what was trained or played before is found.

    Args:
        models: of the run's own world.

    Returns:
        One row an episode, as of :meth:`pwagents.orion.runs.OrionRuns.frame`, with its ``world``.
    """
    worlds, methods = settings.rl.worlds, settings.rl.methods
    runs = [settings.seeded(world) for world in worlds]
    bases = models.side_by_side(_base, runs)
    # Role-plays share a file, which one process writes.
    n = settings.role_play.n_trajectories
    kept = [OrionModels(make_study(run)).role_play(n).kept for run in runs]
    tuned = models.side_by_side(_fine_tune, list(zip(runs, bases, kept, strict=True)))
    units = [(run, start, name) for run, start in zip(runs, tuned, strict=True) for name in methods]
    trained = models.side_by_side(_reinforce, units)

    frames = []
    for i, (world, run) in enumerate(zip(worlds, runs, strict=True)):
        played, own = OrionRuns(make_study(run)), trained[i * len(methods) :][: len(methods)]
        policies = {"Base": bases[i], "SFT": tuned[i], **dict(zip(methods, own, strict=True))}
        records = [played.policy(name, folder) for name, folder in policies.items()]
        frames.append(played.frame(*records).assign(world=world))
    return pd.concat(frames, ignore_index=True)


def _base(run: AblationsNotebook) -> Path:
    return OrionModels(make_study(run)).base()


def _fine_tune(unit: tuple[AblationsNotebook, Path, Sequence[Played]]) -> Path:
    run, base, kept = unit
    return OrionModels(make_study(run)).sft(base, kept)


def _reinforce(unit: tuple[AblationsNotebook, Path, str]) -> Path:
    run, start, method = unit
    config = run.rl.grpo if method == "GRPO" else run.rl.ppo
    return OrionModels(make_study(run)).reinforced(start, config, run.paid, run.rl.log_tasks)
