"""Who plays the roles of notebooks 02 and 03: statistics and rules, or language models.

The models of a notebook share one store of replies, so that what it holds is not asked again, and one budget.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import TypeAdapter

from pwagents.agents.plain import OfflinePolicy
from pwagents.benchmark.settings import MethodPlayers, ProfilePlayers
from pwagents.embedding import Embedder
from pwagents.errors import DataError
from pwagents.llm.budget import Load, estimate
from pwagents.llm.chat import ChatModel
from pwagents.llm.make import Models
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.consistency import ProfileTexts, Question, judge_by_embedding, judge_by_model
from pwagents.profiles.llm import LlmProfiler, LlmUpdater
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.update import OfflineUpdater
from pwagents.project import project_path
from pwagents.schema import FUNCTION_OF, Benchmark, Task
from pwagents.tasks.writers import (
    InstructionWriter,
    LlmAmbiguousWriter,
    LlmInstructionWriter,
    OfflineAmbiguousWriter,
    OfflineInstructionWriter,
)
from pwagents.users.llm import LlmUser
from pwagents.users.rules import RuleUser
from pwagents.web.environment import UserSimulator
from pwagents.web.official_prompts import Prompts

NO_MODEL = "No language model plays. To have one, set players.policy to openai:NAME or local:FOLDER."


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
    def writers(self) -> tuple[InstructionWriter, InstructionWriter]:
        """Writers of instructions from profiles and of ambiguous ones.

        The offline ones step in where a reply of the language model will not do.
        """
        seed, offline = self.seed, OfflineInstructionWriter(self.seed)
        ambiguous = OfflineAmbiguousWriter(self.benchmark.products, seed)
        if self.players.writer == "offline":
            return offline, ambiguous
        model = self._model(self.players.writer)
        return LlmInstructionWriter(model, offline, seed), LlmAmbiguousWriter(model, ambiguous, seed)

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
        counts: dict[str, Counter] = {}
        if isinstance(self.profiler, LlmProfiler):
            counts["profiler"] = self.profiler.failures
        if isinstance(self.updater, LlmUpdater):
            counts["updater"] = Counter(malformed=self.updater.malformed)
        for role, writer in zip(("writer", "ambiguous writer"), self.writers, strict=True):
            if isinstance(writer, LlmInstructionWriter):
                counts[role] = writer.counts
        lines = []
        for role, counted in counts.items():
            told = ", ".join(f"{what} {n:,}" for what, n in (+counted).items())
            lines.append(f"{role}: {told or 'nothing went wrong'}")
        return "\n".join(filter(None, [*lines, self._model.note()])) or "No language model was asked."


class MethodRoles:
    """The players of notebook 03: the policy of all prompting methods, and the user who answers it.

    Args:
        identify: instruction -> function, for the offline policy.
        store: the file of language models' replies.
        prompts: the published ones, for the user who is a language model; empty for ours.

    Attributes:
        policies: by their names, for records and tables: language models, or the offline policy in their
            place.
        offline: whether the first is the latter.
        name: that of the first.
        kind: what the titles of tables say of them.
    """

    def __init__(
        self,
        players: MethodPlayers,
        benchmark: Benchmark,
        identify: Callable[[str], str],
        store: Path,
        prompts: Prompts,
    ):
        self.players, self.benchmark, self.prompts = players, benchmark, prompts
        self._model = Models(players, store)
        self.offline = players.policy == "offline"
        models = [self._model(spec) for spec in (players.policy, *players.more_policies) if spec != "offline"]
        self.policies: dict[str, ChatModel | OfflinePolicy] = {}
        if self.offline:
            self.policies["offline policy"] = OfflinePolicy(identify)
        self.policies |= {model.name: model for model in models}
        self.name = next(iter(self.policies))
        self.kind = "Plumbing check, no language model" if self.offline else ", ".join(self.policies)

    def make_user(self, seed: int, may_leak: bool) -> UserSimulator | None:
        """Make who answers under a seed, for ``may_leak`` see :class:`LlmUser`; None for nobody."""
        player, products, profiles = self.players.user, self.benchmark.products, self.benchmark.profiles
        if player in ("none", "rules"):
            return RuleUser(products, profiles, seed) if player == "rules" else None
        return LlmUser(self._model(player), products, profiles, seed, self.prompts, may_leak)

    def estimate(self, single_turn: int, multi_turn: int, hidden: int) -> pd.DataFrame:
        """Estimate what language models will be asked, and cost at most: a row for each role that one plays.

        Calls and tokens follow PersonalWAB's own numbers: a product is about 670 tokens there, and ten of
        them and a memory fill a prompt.

        Args:
            single_turn, multi_turn: episodes of the tracks, for each policy.
            hidden: episodes with hidden instructions, of the first policy.
        """
        policies, user = (self.players.policy, *self.players.more_policies), self.players.user
        loads = {}  # model, tasks, calls a task, tokens of a prompt, tokens of a reply
        for policy in policies:
            role = "policy" if len(policies) == 1 else policy.partition(":")[2] or policy
            loads[f"{role}, single-turn"] = Load(policy, single_turn, 1.2, 9_000, 60)
            loads[f"{role}, multi-turn"] = Load(policy, multi_turn, 4, 14_000, 60)
        loads["policy, hidden instructions"] = Load(policies[0], hidden, 4, 2_000, 60)
        loads["user"] = Load(user, len(policies) * multi_turn, 1.5, 1_200, 40)
        return estimate(loads)


def read_functions(file: str, tasks: Sequence[Task]) -> dict[str, str]:
    """Read which function PUMA's fine-tuned model named for an instruction; nothing where there is no file.

    Args:
        file: JSON: instruction -> function (empty where the model named none), or as published scripts write
            it a list whose first counts.
        tasks: those whose instructions must be in it.

    Raises:
        DataError: the file is no such object, or lacks an instruction.
    """
    path = project_path(file)
    if not file or not path.exists():
        return {}
    functions = Literal["", *FUNCTION_OF.values()]
    try:
        read = TypeAdapter(dict[str, functions | list[functions]]).validate_json(path.read_bytes())
        first = {text: each if isinstance(each, str) else each[0] for text, each in read.items()}
    except (ValueError, IndexError) as error:
        expected = "one JSON object: instruction -> the name of a function"
        raise DataError(path, "-", "(file)", " ".join(str(error).split())[:400], expected) from error
    for task in tasks:
        is_playable = task.type != "review" or task.review.text
        if is_playable and task.instruction not in first:
            wrong, expected = "no function for its instruction", "one for every test task"
            raise DataError(path, f"task {task.task_id}", "instruction", wrong, expected)
    return first
