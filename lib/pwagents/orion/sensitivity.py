"""How much a trained policy's results depend on what is around it (Orion, 5.4, and beyond).

The policy stays as it is; it plays the test tasks again with other profiles, histories, worlds and users.
Departure: the paper does not say whether the policies of its Figure 4 were trained anew for each value.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import field_validator

from pwagents.evaluation.breakdowns import by_type_and_mean, trained_differences
from pwagents.evaluation.records import EpisodeRecord
from pwagents.orion.runs import OrionRuns, episodes_frame
from pwagents.orion.settings import OrionSettings, ReinforcedNotebook
from pwagents.orion.study import Study, make_study
from pwagents.profiles.build import ALPHA, L_C
from pwagents.schema import Behavior, Benchmark
from pwagents.seeds import rng
from pwagents.settings import Names, Numbers, Shares, settings

# The embedded world, and each of its difficulties taken away: what answers it must then be worth nothing.
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "one interest": {"interests": (1, 1)},
    "no drift": {"drift": 0.0},
    "complete instructions": {"completeness": 1.0},
}
# Orion, and Orion without a part of it at the test: changes of players, and of what is known.
PARTS: Mapping[str, Mapping[str, Any]] = {
    "whole": {},
    "w/o micro-profiles": {"alpha": 10**6},
    "w/o update": {"updater": "none"},
    "w/o asking": {"user": "none"},
}
FEW = 10  # users to train on


@dataclass(frozen=True)
class Known:
    """What profiles are made of, and how; as it stands, the paper's and the rest of the project's.

    Attributes:
        alpha: no interest clusters for histories of at most so many behaviours.
        l_c: behaviours of a cluster that its micro-profile is made from, at most.
        clusters: whose micro-profiles are retrieved for an instruction.
        last: behaviours of each history that are known, the last; 0: all.
        noise: share of each history that is somebody else's, as where a family has one account.
    """

    alpha: int = ALPHA
    l_c: int = L_C
    clusters: int = 1
    last: int = 0
    noise: float = 0.0

    @property
    def changes(self) -> dict[str, float]:
        """What is not as it stands, for keys."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


AS_IT_STANDS = Known()


@settings
class SweepSettings:
    """What notebook 08 varies: fields of :class:`Known`, users and worlds."""

    alpha: Numbers
    """Clustering thresholds; Orion's Figure 4."""
    l_c: Numbers
    """Behaviours that a micro-profile is made from, at most; Orion's Figure 4."""
    clusters: Numbers
    """Clusters retrieved for an instruction."""
    last: Numbers
    """Behaviours known of each history, the last."""
    noise: Shares
    """Shares of each history that are somebody else's."""
    users: Names
    """Simulated users (``players.user``)."""
    worlds: Names
    """The embedded world as it is, and without one of its difficulties each."""

    @field_validator("worlds")
    @classmethod
    def _check_worlds(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := set(names) - WORLDS.keys():
            raise ValueError(f"{', '.join(WORLDS)}; not {', '.join(sorted(unknown))}")
        return names


@settings
class SensitivityNotebook(ReinforcedNotebook):
    """Notebook 08."""

    sweep: SweepSettings


def play_knowing(study: Study, method: str, policy: Path, known: Known) -> list[EpisodeRecord]:
    """Episodes of a policy on the test tasks where ``known`` is what agents know of their users."""
    if known == AS_IT_STANDS:
        return OrionRuns(study).policy(method, policy)
    histories = benchmark_known(study.benchmark, known, study.seed)
    found = study.retrieve("test", histories, known.clusters, alpha=known.alpha, l_c=known.l_c)
    runs = OrionRuns(
        study,
        start=lambda task: study.start(task, study.begin(task, found[task.task_id]), histories),
        variant={"known": known.changes},
    )
    return runs.policy(method, policy)


def benchmark_known(benchmark: Benchmark, known: Known, seed: int) -> Benchmark:
    """The benchmark with histories before users' first test tasks cut short, and made noisy.

    A purchase that is somebody else's stands at the time of the one that it replaces. More noise replaces
    more of a history, and what less noise replaces by the same.
    """
    if not known.last and not known.noise:
        return benchmark
    tested = dict.fromkeys(task.user_id for task in benchmark.tasks["test"])
    past = {user: benchmark.before(user, benchmark.first_task(user)) for user in tested}
    behaviors = dict(benchmark.behaviors)
    for user, own in past.items():
        others = [behavior for other, theirs in past.items() if other != user for behavior in theirs]
        noisy = _with_noise(own, others, known.noise, rng(seed, "noise in the history", user))
        behaviors[user] = (*noisy[-known.last :], *benchmark.behaviors[user][len(own) :])
    return replace(benchmark, behaviors=behaviors)


def _with_noise(
    own: Sequence[Behavior], others: Sequence[Behavior], share: float, generator: np.random.Generator
) -> list[Behavior]:
    """A share of ``own``, drawn at random, replaced by any of ``others``."""
    made, replaced = list(own), generator.permutation(len(own))[: round(share * len(own))]
    for i in replaced:
        other = others[generator.integers(len(others))]
        made[i] = other.model_copy(update={"timestamp": own[i].timestamp})
    return made


def sweep(
    study: Study, policy: Path, name: str, values: Iterable[float], fixed: Known = AS_IT_STANDS
) -> pd.DataFrame:
    """Episodes of a policy for each value of one of :class:`Known`'s fields.

    Args:
        fixed: the other fields.

    Returns:
        One row an episode, as of :func:`pwagents.orion.runs.episodes_frame`, with ``value``, which is the
        ``method`` too.
    """
    played = []
    for value in values:
        records = play_knowing(study, "GRPO", policy, replace(fixed, **{name: value}))
        played.append(episodes_frame(records).assign(method=f"{value:g}", value=value))
    return pd.concat(played, ignore_index=True)


def by_value(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean result accuracy for each value of a :func:`sweep`, by task type and their mean."""
    means = by_type_and_mean(frame, "result_final").drop(columns="metric")
    return means.assign(value=means.pop("method").astype(float))[["value", *means.columns]]


def differences_from(frame: pd.DataFrame, value: float) -> pd.DataFrame:
    """What each other value of a :func:`sweep` gives more than ``value``, paired by task."""
    others = [method for method in frame["method"].unique() if method != f"{value:g}"]
    pairs = {f"{method} - {value:g}": (method, f"{value:g}") for method in others}
    return trained_differences(frame, pairs, "result_final")


def parts_in_worlds(settings: OrionSettings, policy: Path, worlds: Sequence[str]) -> pd.DataFrame:
    """Episodes of a policy with all its parts and without one, in each world.

    Args:
        worlds: of :data:`WORLDS`; only the embedded world has others.

    Returns:
        One row an episode, as of :func:`pwagents.orion.runs.episodes_frame`, the part as ``method``, and
        ``world``.
    """
    played = []
    for world in worlds:
        for part, change in PARTS.items():
            players = {role: who for role, who in change.items() if role in ("user", "updater")}
            known = Known(**{name: value for name, value in change.items() if name not in players})
            # A policy that is trained already needs hardly anybody to train on in a world of its own.
            few = {"training_users": FEW} if WORLDS[world] else {}
            study = make_study(settings.changed(data=WORLDS[world], players=players, study=few))
            records = play_knowing(study, part, policy, known)
            played.append(episodes_frame(records).assign(world=world))
    return pd.concat(played, ignore_index=True)


def with_users(settings: OrionSettings, policy: Path, users: Sequence[str]) -> dict[str, list[EpisodeRecord]]:
    """Episodes of a policy with each simulated user, by their names (``players.user``)."""
    studies = {user: make_study(settings.changed(players={"user": user})) for user in users}
    return {user: OrionRuns(study).policy(user, policy) for user, study in studies.items()}


def losses(frame: pd.DataFrame) -> pd.DataFrame:
    """What is lost without each part, in each world, paired by task.

    Args:
        frame: of :func:`parts_in_worlds`.

    Returns:
        The columns of :func:`trained_differences`, with ``world`` and ``without`` in place of a comparison.
    """
    pairs = {part: ("whole", part) for part in PARTS if part != "whole"}
    rows = []
    for world, episodes in frame.groupby("world", sort=False):
        found = trained_differences(episodes, pairs, "result_final")
        rows.append(found.assign(world=world, without=found.pop("comparison").str.removeprefix("w/o ")))
    table = pd.concat(rows, ignore_index=True)
    return table[["world", "without", *table.columns.drop(["world", "without"])]]
