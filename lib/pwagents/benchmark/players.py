"""Who plays the roles of notebook 02: statistics and rules, or language models with one store and budget."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from pwagents.benchmark.settings import ProfilePlayers
from pwagents.embedding import Embedder
from pwagents.llm.budget import Load, estimate
from pwagents.llm.make import Models
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.consistency import ProfileTexts, Question, judge_by_embedding, judge_by_model
from pwagents.profiles.llm import LlmProfiler, LlmUpdater
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.update import OfflineUpdater
from pwagents.schema import Benchmark
from pwagents.tasks.writers import (
    InstructionWriter,
    LlmAmbiguousWriter,
    LlmInstructionWriter,
    OfflineAmbiguousWriter,
    OfflineInstructionWriter,
)


class ProfileRoles:
    """The players of all roles.

    Args:
        players: the model of each role, or "offline".
        store: the file that language models' replies are kept in; what it holds is not asked again.
        seed: of the writers.

    Attributes:
        profiler: makes profiles.
        updater: updates contextual profiles during a conversation.
        rules: the offline updater; it also hears the instruction before a conversation begins.
    """

    def __init__(self, players: ProfilePlayers, benchmark: Benchmark, store: Path, seed: int):
        self.players, self.benchmark, self.seed = players, benchmark, seed
        self._model = Models(players, store)
        products, catalogue = benchmark.products, Catalogue(benchmark.products)
        self.rules = OfflineUpdater(catalogue)
        self.profiler: OfflineProfiler | LlmProfiler = OfflineProfiler(catalogue)
        if players.profiler != "offline":
            self.profiler = LlmProfiler(self._model(players.profiler), products)
        self.updater: OfflineUpdater | LlmUpdater = self.rules
        if players.updater != "offline":
            self.updater = LlmUpdater(self._model(players.updater), products)

    @cached_property
    def writers(self) -> tuple[InstructionWriter, InstructionWriter]:
        """Of instructions from profiles, and of ambiguous ones. The offline writers step in where a reply of
        the language model will not do."""
        plain = OfflineInstructionWriter(self.seed)
        ambiguous = OfflineAmbiguousWriter(self.benchmark.products, self.seed)
        if self.players.writer == "offline":
            return plain, ambiguous
        model = self._model(self.players.writer)
        return (
            LlmInstructionWriter(model, plain, self.seed),
            LlmAmbiguousWriter(model, ambiguous, self.seed),
        )

    @property
    def models(self) -> dict[str, str]:
        """Role -> its language model, for roles that have one."""
        roles = ("profiler", "updater", "writer", "judge")
        named = {role: getattr(self.players, role) for role in roles}
        return {role: model for role, model in named.items() if model != "offline"}

    def estimate(self) -> pd.DataFrame:
        """What the language models will be asked, and cost at most: a row a role. Tokens of a call are as
        measured on this kind of data."""
        tasks = self.benchmark.tasks
        users, instructions = len({task.user_id for task in tasks["test"]}), sum(map(len, tasks.values()))
        loads = {  # tasks, calls a task, tokens of a prompt, tokens of a reply
            "profiler": (users, 5, 1_200, 250),
            "updater": (1, 10, 900, 150),
            "writer": (2 * instructions, 1.1, 900, 40),
            "judge": (users, 8, 2_500, 20),
        }
        return estimate({role: Load(model, *loads[role]) for role, model in self.models.items()})

    def judge(
        self, told: Mapping[str, ProfileTexts], questions: Sequence[Question], embedder: Embedder
    ) -> pd.DataFrame:
        """The questions answered by the judge; ``embedder`` does it offline."""
        if self.players.judge == "offline":
            return judge_by_embedding(told, questions, embedder)
        return judge_by_model(told, questions, self._model(self.players.judge))

    def report(self) -> str:
        """How replies were taken, a line a role: what could not be read, strayed, or was repaired."""
        counts: dict[str, Counter] = {}
        if isinstance(self.profiler, LlmProfiler):
            counts["profiler"] = self.profiler.failures
        if isinstance(self.updater, LlmUpdater):
            counts["updater"] = Counter(malformed=self.updater.malformed)
        for role, writer in zip(("writer", "ambiguous writer"), self.writers, strict=True):
            if isinstance(writer, LlmInstructionWriter):
                counts[role] = writer.counts
        lines = [
            f"{role}: " + (", ".join(f"{what} {n:,}" for what, n in (+found).items()) or "nothing went wrong")
            for role, found in counts.items()
        ]
        return "\n".join(lines) or "No language model was asked."
