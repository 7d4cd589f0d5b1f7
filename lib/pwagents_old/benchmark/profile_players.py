"""Who plays the roles of notebook 02: statistics and rules, or language models.

The models share one store of replies, so that what it holds is not asked again, and one budget.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from pwagents.embedding import Embedder
from pwagents.schema import Benchmark
from pwagents_old.benchmark.settings import ProfilePlayers
from pwagents.llm.budget import Load, estimate
from pwagents.llm.make import Models
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.consistency import ProfileTexts, Question, judge_by_embedding, judge_by_model
from pwagents.profiles.llm import LlmProfiler, LlmUpdater
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.update import OfflineUpdater
from pwagents.tasks import writers


class ProfileRoles:
    """The players of notebook 02.

    Args:
        store: the file of language models' replies.
        seed: of the writers.

    Attributes:
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
    def writers(self) -> tuple[writers.InstructionWriter, writers.InstructionWriter]:
        """Writers of instructions from profiles and of ambiguous ones.

        The offline ones step in where a reply of the language model will not do.
        """
        seed, offline = self.seed, writers.OfflineInstructionWriter(self.seed)
        ambiguous = writers.OfflineAmbiguousWriter(self.benchmark.products, seed)
        if self.players.writer == "offline":
            return offline, ambiguous
        model = self._model(self.players.writer)
        return writers.LlmInstructionWriter(model, offline, seed), writers.LlmAmbiguousWriter(
            model, ambiguous, seed
        )

    def estimate(self) -> pd.DataFrame:
        """Estimate what language models will be asked, and cost at most: a row for each role that one plays.

        Tokens of a call are as measured on this kind of data.
        """
        players, tasks = self.players, self.benchmark.tasks
        users, instructions = len({task.user_id for task in tasks["test"]}), sum(map(len, tasks.values()))
        loads = {  # model, tasks, calls a task, tokens of a prompt, tokens of a reply
            "profiler": Load(players.profiler, users, 5, 1_200, 250),
            "updater": Load(players.updater, 1, 10, 900, 150),
            "writer": Load(players.writer, 2 * instructions, 1.1, 900, 40),
            "judge": Load(players.judge, users, 8, 2_500, 20),
        }
        return estimate(loads)

    def judge(
        self, texts: Mapping[str, ProfileTexts], questions: Sequence[Question], embedder: Embedder
    ) -> pd.DataFrame:
        """Let the judge answer the questions; ``embedder`` does it offline."""
        if self.players.judge == "offline":
            return judge_by_embedding(texts, questions, embedder)
        return judge_by_model(texts, questions, self._model(self.players.judge))

    def report(self) -> str:
        """Say how replies were taken, a line a role: what could not be read, strayed, or was repaired."""
        roles = dict(zip(("writer", "ambiguous writer"), self.writers, strict=True))
        roles = {"profiler": self.profiler, "updater": self.updater} | roles
        lines = []
        for role, player in roles.items():
            if isinstance(player, LlmProfiler | LlmUpdater | writers.LlmInstructionWriter):
                told = ", ".join(f"{what} {n:,}" for what, n in (+player.failures).items())
                lines.append(f"{role}: {told or 'nothing went wrong'}")
        return "\n".join(filter(None, [*lines, self._model.note()])) or "No language model was asked."
