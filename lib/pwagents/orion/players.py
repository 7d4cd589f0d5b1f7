"""Who plays which role in Orion's experiments, from the strings of the parameter files."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pwagents.llm.budget import Budget
from pwagents.llm.chat import ChatModel
from pwagents.llm.make import make_model
from pwagents.llm.store import ResponseStore
from pwagents.orion.judge import Judge, LlmJudge, OfflineJudge
from pwagents.orion.role_play import llm_teachers
from pwagents.profiles.build import Profiler
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.llm import LlmProfiler, LlmUpdater
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.profiles.update import Updater
from pwagents.schema import Benchmark
from pwagents.users.llm import LlmUser
from pwagents.users.rules import RuleUser
from pwagents.web.environment import UserSimulator
from pwagents.web.episode import Agent


@dataclass(frozen=True)
class Roles:
    """The players of all roles but the policy's.

    Args:
        store: the file that language models' replies are kept in.
        profiler, teacher, judge: ``offline``, or a language model by :func:`pwagents.llm.make.make_model`.
        updater: likewise, or ``none``: profiles stay as they were.
        user: ``rules``, a language model, or ``none``: nobody answers.
        base_url, budget_usd, budget_tokens: of language models at an endpoint.
        workers: calls at once.
        shown: products of a result that teacher and judge are told about, at most.
    """

    store: Path
    profiler: str = "offline"
    updater: str = "offline"
    user: str = "rules"
    teacher: str = "offline"
    judge: str = "offline"
    base_url: str = ""
    budget_usd: float = 5.0
    budget_tokens: int = 20_000_000
    workers: int = 1
    shown: int = 10

    def make_profiler(self, catalogue: Catalogue) -> Profiler:
        if self.profiler == "offline":
            return OfflineProfiler(catalogue)
        return LlmProfiler(self._model(self.profiler), catalogue.products)

    def make_updater(self, offline: OfflineUpdater) -> Updater | None:
        if self.updater in ("offline", "none"):
            return offline if self.updater == "offline" else None
        return LlmUpdater(self._model(self.updater), offline.catalogue.products)

    def make_user(self, benchmark: Benchmark, seed: int) -> UserSimulator | None:
        if self.user == "none":
            return None
        if self.user == "rules":
            return RuleUser(benchmark.products, benchmark.profiles, seed)
        return LlmUser(self._model(self.user), benchmark.products, benchmark.profiles, seed)

    def make_judge(self, offline: OfflineUpdater) -> Judge:
        if self.judge == "offline":
            return OfflineJudge(offline.catalogue, offline)
        return LlmJudge(self._model(self.judge), self.shown)

    def make_teachers(self, offline: Callable[[int], Agent]) -> Callable[[int], Agent]:
        """Number of a round -> the teacher that plays it; ``offline`` where no language model does."""
        return offline if self.teacher == "offline" else llm_teachers(self._model(self.teacher), self.shown)

    @property
    def facts(self) -> dict[str, str]:
        """What of this decides how an episode goes, whoever the policy is."""
        return {name: getattr(self, name) for name in ("profiler", "updater", "user", "base_url")}

    def _model(self, spec: str) -> ChatModel:
        return make_model(
            spec, base_url=self.base_url, store=self._store, budget=self._budget, workers=self.workers
        )

    @cached_property
    def _store(self) -> ResponseStore:
        return ResponseStore(self.store)

    @cached_property
    def _budget(self) -> Budget:
        """One for all roles together."""
        return Budget(max_usd=self.budget_usd, max_tokens=self.budget_tokens)
