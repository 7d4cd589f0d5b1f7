"""Who plays in notebook 03: the policy of all prompting methods, and the user who answers it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd

from pwagents.agents.plain import OfflinePolicy
from pwagents.benchmark.settings import MethodPlayers
from pwagents.llm.budget import Load, estimate
from pwagents.llm.make import Models
from pwagents.schema import Benchmark
from pwagents.users.llm import LlmUser
from pwagents.users.rules import RuleUser
from pwagents.web.environment import UserSimulator

NO_MODEL = "No language model plays. To have one, set players.policy to openai:NAME or local:FOLDER."


class MethodRoles:
    """Language models, or rules in their place, with one store of replies and one budget.

    Args:
        identify: instruction -> function, for the offline policy.
        store: the file that language models' replies are kept in; what it holds is not asked again.

    Attributes:
        policy: a language model, or the offline policy in its place.
        offline: whether it is the latter.
        name: the policy's, for records and tables.
        kind: what the titles of tables say of it.
    """

    def __init__(
        self, players: MethodPlayers, benchmark: Benchmark, identify: Callable[[str], str], store: Path
    ):
        self.players, self.benchmark = players, benchmark
        self._model = Models(players, store)
        self.offline = players.policy == "offline"
        self.policy = OfflinePolicy(identify) if self.offline else self._model(players.policy)
        self.name = "offline policy" if self.offline else self.policy.name
        self.kind = "Plumbing check, no language model" if self.offline else self.name
        self.user = cache(self._user)  # seed -> who answers, with what they remember of the tasks

    def estimate(self, single_turn: int, multi_turn: int, hidden: int) -> pd.DataFrame:
        """What language models will be asked, and cost at most: a row for each role that one of them plays.

        Calls and tokens follow PersonalWAB's own numbers: a product is about 670 tokens there, and ten of
        them and a memory fill a prompt.

        Args:
            single_turn, multi_turn: episodes of the tracks.
            hidden: episodes with hidden instructions.
        """
        policy, user = self.players.policy, self.players.user
        loads = {  # model, tasks, calls a task, tokens of a prompt, tokens of a reply
            "policy, single-turn": Load(policy, single_turn, 1.2, 9_000, 60),
            "policy, multi-turn": Load(policy, multi_turn, 4, 14_000, 60),
            "policy, hidden instructions": Load(policy, hidden, 4, 2_000, 60),
            "user": Load(user, multi_turn, 1.5, 1_200, 40),
        }
        return estimate(loads)

    def _user(self, seed: int) -> UserSimulator | None:
        spec, products, profiles = self.players.user, self.benchmark.products, self.benchmark.profiles
        if spec == "none":
            return None
        if spec == "rules":
            return RuleUser(products, profiles, seed)
        return LlmUser(self._model(spec), products, profiles, seed)
