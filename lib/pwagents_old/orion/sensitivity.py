"""How much a trained policy's results depend on what is around it (Orion, 5.4, and beyond).

The policy stays as it is and plays again: the same test tasks with other profiles, histories and users, and
the tasks of other worlds. Last, it is trained again: with one thing changed, and in other worlds.
Departure: the paper does not say whether the policies of its Figure 4 were trained anew for each value.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from pwagents.errors import DataError
from pwagents.results.statistics import by_type_and_mean, trained_differences
from pwagents.schema import Benchmark
from pwagents.seeds import rng
from pwagents.settings import Group, S, Shares
from pwagents.store import Episode
from pwagents_old.orion.runs import OrionRuns
from pwagents_old.orion.settings import GrpoNotebook, OrionSettings, ReinforcedNotebook, StudySettings, User
from pwagents_old.orion.study import Study, make_study
from pwagents_old.orion.train import OrionModels

# The embedded world, and each of its difficulties taken away. "one interest" and "no drift" are other worlds,
# with other histories and tasks.
World = Literal["as it is", "one interest", "no drift", "explicit instructions"]
WORLDS: Mapping[World, Mapping[str, Mapping[str, Any]]] = {
    "as it is": {},
    "one interest": {"data": {"interests": (1, 1)}},
    "no drift": {"data": {"drift": 0.0}},
    "explicit instructions": {"data": {"completeness": 1.0}, "study": {"instructions": "explicit"}},
}
# What takes a part of Orion away: changes of settings (:meth:`OrionSettings.changed`).
PARTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "w/o micro-profiles": {"study": {"micro_profiles": False}},
    "w/o update": {"players": {"updater": "none"}},
    "w/o asking": {"players": {"user": "none"}},
}
# Orion's Figure 4 is about short histories as much as about long ones; else most have their usual length.
# Tasks grow with the history, so each user has as many: else few of those tested would be short.
FIGURE_4 = {"data": {"history": (5, 60), "lengths": "uniform"}, "study": {"tasks_a_user": 3}}
Counts = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
METHOD = "GRPO"  # what the policy's episodes are stored as, in notebooks 06 and 07, too
FEW = 10  # users to train on


@dataclass(frozen=True)
class Known:
    """What profiles are made of, and how.

    Attributes:
        alpha, l_c: as of :class:`pwagents_old.orion.settings.StudySettings`.
        clusters: whose micro-profiles are retrieved for an instruction.
        last: behaviours of each history that are known, the last; None: all.
        noise: share of each history that is one other user's, as where two have one account.
    """

    alpha: int
    l_c: int
    clusters: int = 1
    last: int | None = None
    noise: float = 0.0


def usually_known(study: Study) -> Known:
    """As everywhere else: whole histories, and profiles as the settings say."""
    return Known(study.settings.study.alpha, study.settings.study.l_c)


class SweepSettings(Group):
    """What notebook 08 varies: fields of :class:`Known`, users and worlds."""

    alpha: tuple[NonNegativeInt, ...] = S(
        ..., "Clustering thresholds, beside that of study; Orion's Figure 4."
    )
    l_c: Counts = S(
        ..., "Behaviours that a micro-profile is made from, at most, beside study.l_c; Orion's Figure 4."
    )
    clusters: Counts = S(..., "Clusters retrieved for an instruction, beside one.")
    last: Counts = S(..., "Behaviours known of each history, the last.")
    noise: Shares = S(..., "Shares of each history that are another user's, beside none.")
    users: Annotated[tuple[User, ...], Field(min_length=1)] = S(..., "Simulated users (players.user).")
    trained_alpha: tuple[NonNegativeInt, ...] = S(
        ..., "Clustering thresholds with which the policy is trained again, beside that of study."
    )
    trained_l_c: tuple[PositiveInt, ...] = S(
        ..., "Context sizes with which the policy is trained again, beside that of study."
    )
    patience: tuple[NonNegativeFloat, ...] = S(
        ..., "What a question costs where the policy is trained again, beside what it costs in reward."
    )
    worlds: Annotated[tuple[World, ...], Field(min_length=1)] = S(
        ..., "The embedded world as it is, and without one of its difficulties each."
    )


class SweptStudy(StudySettings):
    """The study of notebook 08."""

    sweep: SweepSettings


class SensitivityNotebook(ReinforcedNotebook):
    """Notebook 08."""

    study: SweptStudy


def play_knowing(study: Study, policy: Path, known: Known) -> pd.DataFrame:
    """Episodes of a policy on the test tasks where ``known`` is what agents know of their users."""
    runs = OrionRuns(study)
    if known != usually_known(study):
        histories = benchmark_known(study.benchmark, known, study.seed)
        found = study.retrieve("test", histories, known.alpha, known.l_c, known.clusters)
        runs = OrionRuns(
            study,
            start=lambda task: study.start(task, found[task.task_id], histories),
            variant={"known": asdict(known)},
        )
    return runs.frame(runs.policy(METHOD, policy))


def benchmark_known(benchmark: Benchmark, known: Known, seed: int) -> Benchmark:
    """The benchmark with histories before users' first test tasks cut short, and made noisy.

    A purchase of the other user stands at the time of the one that it replaces. More noise replaces more of a
    history, and what less noise replaces by the same.

    Raises:
        DataError: there is noise to make, but no other user with purchases before the test.
    """
    if known.last is None and not known.noise:
        return benchmark
    users = list(dict.fromkeys(task.user_id for task in benchmark.tasks["test"]))
    past = {user: benchmark.before(user, benchmark.first_task(user)) for user in users}
    behaviors = dict(benchmark.behaviors)
    for i, (user, own) in enumerate(past.items()):
        others = [past[other] for other in (*users[i + 1 :], *users[:i]) if past[other]]
        if known.noise and not others:
            expected = "another user with purchases before the test, for noise in the history"
            raise DataError(benchmark.name, "test tasks", "user_id", user, expected)
        shared = list(own)
        if known.noise:
            # A share of the history, drawn at random, becomes the other user's purchases, in their order.
            generator = rng(seed, "noise in the history", user)
            theirs = others[int(generator.integers(len(others)))]
            order = generator.permutation(len(own))
            for n, i in enumerate(order[: round(known.noise * len(own))]):
                shared[i] = theirs[n % len(theirs)].model_copy(update={"timestamp": own[i].timestamp})
        kept = shared if known.last is None else shared[-known.last :]
        behaviors[user] = (*kept, *benchmark.behaviors[user][len(own) :])
    return replace(benchmark, behaviors=behaviors)


def vary(study: Study, policy: Path, name: str, values: Iterable[float], **fixed: float) -> pd.DataFrame:
    """Episodes of a policy for each value of one of :class:`Known`'s fields, the usual one among them.

    Args:
        fixed: other fields that are not the usual ones.

    Returns:
        One row an episode, as of :meth:`pwagents_old.orion.runs.OrionRuns.frame`, with ``value``, which is the
        ``method`` too, and whether it is the ``usual`` one.
    """
    known, played = replace(usually_known(study), **fixed), []
    usual = getattr(known, name)
    for value in sorted({*values, usual} - {None}):
        frame = play_knowing(study, policy, replace(known, **{name: value}))
        played.append(frame.assign(method=f"{value:g}", value=value, usual=value == usual))
    return pd.concat(played, ignore_index=True)


def trained_again(models: OrionModels, settings: ReinforcedNotebook, start: Path) -> pd.DataFrame:
    """Episodes of GRPO's policies that were trained where questions cost something, or with other profiles.

    Policies with other profiles are trained and tested where Figure 4 is: on the embedded world with short
    histories. There, too, one has the usual profiles.

    Args:
        start: the fine-tuned model that all of them start from.

    Returns:
        One row an episode, the change as ``method``: "as it is", "patience 0.1", "alpha 15, l_c 6",
        "alpha 0", "l_c 12".
    """
    study, sweep = settings.study, settings.study.sweep
    changed = {"as it is": settings}
    changed |= {f"patience {each:g}": settings.changed(rl={"patience": each}) for each in sweep.patience}
    short = settings.changed(**FIGURE_4) if settings.data.source == "synthetic" else settings
    # What other profiles are compared with there; elsewhere it is the world as it is.
    if short is not settings and (sweep.trained_alpha or sweep.trained_l_c):
        changed[f"alpha {study.alpha}, l_c {study.l_c}"] = short
    changed |= {f"alpha {each}": short.changed(study={"alpha": each}) for each in sweep.trained_alpha}
    changed |= {f"l_c {each}": short.changed(study={"l_c": each}) for each in sweep.trained_l_c}

    def train(there: ReinforcedNotebook) -> Path:
        its_models = OrionModels(make_study(there))
        return its_models.reinforced(start, there.rl.grpo, there.paid, there.rl.log_tasks)

    policies = models.side_by_side(train, list(changed.values()))
    frames = []
    for (name, there), policy in zip(changed.items(), policies, strict=True):
        runs = OrionRuns(make_study(there))
        frames.append(runs.frame(runs.policy(METHOD, policy)).assign(method=name))
    return pd.concat(frames, ignore_index=True)


def play_worlds(models: OrionModels, settings: GrpoNotebook) -> pd.DataFrame:
    """Train base model, SFT and each of ``rl.methods`` in each of ``rl.worlds``, and let them play its tests.

    A world is the embedded shop and its people, made anew from another seed. That of the run's own seed is
    the world of notebooks 05 and 06. Worlds are made beside each other; what was trained or played before is
    found.

    Args:
        models: of the run's own world.

    Returns:
        One row an episode, as of :meth:`pwagents_old.orion.runs.OrionRuns.frame`, with its ``world``.
    """

    def play(world: int) -> pd.DataFrame:
        there = settings.seeded(world)
        rl, its_models = there.rl, OrionModels(make_study(there))
        base = its_models.base()
        tuned = its_models.sft(base, its_models.role_play(there.role_play.n_trajectories).kept)
        policies = {"Base": base, "SFT": tuned}
        for method in rl.methods:
            policies[method] = its_models.reinforced(tuned, rl.configs[method], there.paid, rl.log_tasks)
        runs = OrionRuns(its_models.study)
        frame = runs.frame(*(runs.policy(name, folder) for name, folder in policies.items()))
        return frame.assign(world=world)

    return pd.concat(models.side_by_side(play, settings.rl.worlds), ignore_index=True)


def by_value(frame: pd.DataFrame, metric: str = "result_final") -> pd.DataFrame:
    """Means for each value of :func:`vary`, by task type and their mean."""
    means = by_type_and_mean(frame, metric).drop(columns="metric")
    return means.assign(value=means.pop("method").astype(float))[["value", *means.columns]]


def from_usual(frame: pd.DataFrame, metric: str = "result_final") -> pd.DataFrame:
    """What each other value of :func:`vary` gives more than the usual one, paired by task."""
    (usual,) = frame.loc[frame["usual"], "method"].unique()
    others = frame.loc[~frame["usual"], "method"].unique()
    pairs = {f"{method} - {usual}": (method, usual) for method in others}
    return trained_differences(frame, pairs, metric)


def worth_of_clusters(
    clustered: pd.DataFrame, averaged: pd.DataFrame, metric: str = "result_final"
) -> pd.DataFrame:
    """What interest clusters give more than the global profile alone, by how much of a history is known.

    Args:
        clustered, averaged: of :func:`vary` with the same values of ``last``.
    """
    pairs = {f"last {method}": (f"{method}, clusters", method) for method in averaged["method"].unique()}
    named = clustered.assign(method=clustered["method"] + ", clusters")
    return trained_differences(pd.concat([named, averaged]), pairs, metric)


def parts_in_worlds(settings: OrionSettings, policy: Path, worlds: Sequence[str]) -> pd.DataFrame:
    """Episodes of a policy with all its parts and without one, in each world.

    Args:
        worlds: of :data:`WORLDS`; only the embedded world has others.

    Returns:
        One row an episode, as of :meth:`pwagents_old.orion.runs.OrionRuns.frame`, the part as ``method``, and
        ``world``.
    """
    played = []
    for world in worlds:
        # A policy that is trained already needs hardly anybody to train on in a world of its own.
        few = {"training_users": FEW} if WORLDS[world] else {}
        there = settings.changed(**WORLDS[world]).changed(study=few)
        for part, changes in {"whole": {}, **PARTS}.items():
            runs = OrionRuns(make_study(there.changed(**changes)))
            played.append(runs.frame(runs.policy(METHOD, policy)).assign(method=part, world=world))
    return pd.concat(played, ignore_index=True)


def with_users(
    settings: OrionSettings, policy: Path, users: Sequence[str]
) -> tuple[dict[str, list[Episode]], pd.DataFrame]:
    """Episodes of a policy with each simulated user (``players.user``), whose names are the methods."""
    records, frames = {}, []
    for user in users:
        runs = OrionRuns(make_study(settings.changed(players={"user": user})))
        records[user] = runs.policy(METHOD, policy)
        frames.append(runs.frame(records[user]).assign(method=user))
    return records, pd.concat(frames, ignore_index=True)


def losses(frame: pd.DataFrame, metric: str = "result_final") -> pd.DataFrame:
    """What is lost without each part, in each world, paired by task.

    Args:
        frame: of :func:`parts_in_worlds`.

    Returns:
        The columns of :func:`trained_differences`, with ``world`` and ``without`` in place of a comparison.
    """
    pairs = {part.removeprefix("w/o "): ("whole", part) for part in PARTS}
    worlds = {w: trained_differences(own, pairs, metric) for w, own in frame.groupby("world", sort=False)}
    table = pd.concat(worlds, names=["world"]).reset_index("world")
    return table.rename(columns={"comparison": "without"}).reset_index(drop=True)
