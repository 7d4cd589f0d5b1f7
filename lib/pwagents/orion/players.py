"""Who plays the roles around Orion's policy, and what they will ask of language models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from pwagents.llm.budget import Load, estimate
from pwagents.llm.make import Models
from pwagents.orion.judge import Judge, LlmJudge, OfflineJudge
from pwagents.orion.settings import (
    GROUP_STEPS,
    AblationsNotebook,
    OrionPlayers,
    ReinforcedNotebook,
    SftNotebook,
)
from pwagents.orion.teacher import llm_teachers
from pwagents.orion.wishes import WishReader
from pwagents.profiles.build import Profiler
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.llm import LlmProfiler, LlmUpdater
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.profiles.update import Updater
from pwagents.schema import Benchmark
from pwagents.users.difficult import DIFFICULT
from pwagents.users.llm import LlmUser
from pwagents.users.rules import RuleUser
from pwagents.web.environment import UserSimulator
from pwagents.web.episode import Agent

_RULE_USERS = {"rules": RuleUser, **DIFFICULT}


class Cast:
    """Makes the players of all roles but the policy's.

    Args:
        store: the file that language models' replies are kept in.
    """

    def __init__(self, players: OrionPlayers, store: Path):
        self.players, self._model = players, Models(players, store)

    def profiler(self, catalogue: Catalogue) -> Profiler:
        if self.players.profiler == "offline":
            return OfflineProfiler(catalogue)
        return LlmProfiler(self._model(self.players.profiler), catalogue.products)

    def updater(self, offline: OfflineUpdater) -> Updater | None:
        if self.players.updater in ("offline", "none"):
            return offline if self.players.updater == "offline" else None
        return LlmUpdater(self._model(self.players.updater), offline.catalogue.products)

    def user(self, benchmark: Benchmark, seed: int) -> UserSimulator | None:
        if self.players.user == "none":
            return None
        if self.players.user in _RULE_USERS:
            return _RULE_USERS[self.players.user](benchmark.products, benchmark.profiles, seed)
        return LlmUser(self._model(self.players.user), benchmark.products, benchmark.profiles, seed)

    def judge(self, read: WishReader) -> Judge:
        if self.players.judge == "offline":
            return OfflineJudge(read)
        return LlmJudge(self._model(self.players.judge), self.players.shown)

    def teachers(self, offline: Callable[[int], Agent]) -> Callable[[int], Agent]:
        """Number of a round -> the teacher that plays it; ``offline`` where no language model does."""
        if self.players.teacher == "offline":
            return offline
        return llm_teachers(self._model(self.players.teacher), self.players.shown)


def around(players: OrionPlayers) -> dict[str, str]:
    """What of the players decides how an episode goes, whoever the policy is."""
    return {name: getattr(players, name) for name in ("profiler", "updater", "user", "base_url")}


def told(players: OrionPlayers, role: Literal["teacher", "judge"]) -> str | dict[str, Any]:
    """Who plays a role, for keys; with a language model, how many products it is told about, too."""
    name = getattr(players, role)
    return name if name == "offline" else {"model": name, "shown": players.shown}


def sft_cost(settings: SftNotebook) -> pd.DataFrame:
    """What language models will be asked in notebook 05 and cost at most, a row a role that one plays.

    Guesses on the safe side: two conversations for each one that is kept, four steps in each.
    """
    most, tested = settings.role_play.numbers[-1], settings.study.eval_tasks
    users = settings.data.n_users + settings.study.training_users
    # On the test tasks play five references, two models in two ways each, a model a number, and one of them
    # with three other profiles.
    episodes = 2 * most + (12 + len(settings.role_play.scaling)) * tested
    made = {
        **profiling(settings.players, users),
        **_teaching(settings.players, 2 * most + tested),
    }
    return estimate(made | in_every_episode(settings.players, episodes))


def rl_cost(settings: ReinforcedNotebook) -> pd.DataFrame:
    """What language models will be asked in notebook 06, likewise."""
    most = settings.rl.max_steps
    trained = (2 * most + min(GROUP_STEPS, most)) * settings.rl.episodes  # by GRPO, by PPO, and before them
    judge = _judging(settings.players, trained)
    # On the test tasks play five references, four models in two ways each, and two with three other profiles;
    # these two, too, with instructions that say more, twice.
    tested = 23 * settings.study.eval_tasks
    return estimate(judge | in_every_episode(settings.players, trained + tested))


def ablations_cost(settings: AblationsNotebook, parts: int) -> pd.DataFrame:
    """What language models will be asked in notebook 07, likewise.

    Args:
        parts: how many parts of Orion are taken away, each at the test of every pipeline and in a training of
            its own.
    """
    rl, pipelines = settings.rl, len(settings.rl.seeds)
    users = settings.data.n_users + settings.study.training_users
    conversations = 2 * pipelines * settings.role_play.n_trajectories
    others = len(rl.variants) + parts
    trained = (pipelines * len(rl.methods) + others) * rl.max_steps * rl.episodes
    # Of each pipeline the base, the fine-tuned and the reinforced models are tested, and GRPO's without each
    # part and with three other profiles.
    tested = (pipelines * (2 + len(rl.methods) + parts + 3) + others) * settings.study.eval_tasks
    made = {
        **profiling(settings.players, users * (1 + parts)),
        **_teaching(settings.players, conversations),
        **_judging(settings.players, trained),
    }
    return estimate(made | in_every_episode(settings.players, conversations + trained + tested))


def profiling(players: OrionPlayers, users: int) -> dict[str, Load]:
    """What the profiler will be asked for so many users, for :func:`pwagents.llm.budget.estimate`."""
    return {"profiler": Load(players.profiler, users, 10, 1_200, 250)}


def _teaching(players: OrionPlayers, episodes: int) -> dict[str, Load]:
    return {"teacher": Load(players.teacher, episodes, 4, 2_500, 80)}


def _judging(players: OrionPlayers, episodes: int) -> dict[str, Load]:
    return {"judge": Load(players.judge, episodes, 4, 1_500, 10)}


def in_every_episode(players: OrionPlayers, episodes: int) -> dict[str, Load]:
    """What those who are in every episode will be asked, for :func:`pwagents.llm.budget.estimate`."""
    return {
        "user": Load(players.user, episodes, 1.5, 1_200, 40),
        "updater": Load(players.updater, episodes, 4, 900, 150),
    }
