"""Who plays the roles around Orion's policy."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pwagents.llm.make import Models
from pwagents.orion.judge import Judge, LlmJudge, OfflineJudge
from pwagents.orion.settings import OrionPlayers
from pwagents.orion.teacher import llm_teachers
from pwagents.orion.wishes import WishReader
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import Profiler
from pwagents.profiles.llm import LlmProfiler, LlmUpdater
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.update import OfflineUpdater, Updater
from pwagents.schema import Benchmark
from pwagents.users.llm import make_user
from pwagents.web.environment import Agent, UserSimulator


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
        return make_user(self.players.user, self._model, benchmark, seed)

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
    acting = replace(players, teacher="offline", judge="offline")  # these two only look on
    return acting.facts("profiler", "updater", "user")


def told(players: OrionPlayers, role: Literal["teacher", "judge"]) -> str | dict[str, Any]:
    """Who plays a role, for keys; with a language model, how many products it is told about, too."""
    name = getattr(players, role)
    return name if name == "offline" else {"model": name, "shown": players.shown}
