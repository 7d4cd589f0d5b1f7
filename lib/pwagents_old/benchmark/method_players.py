"""Who plays in notebook 03: the prompting methods, the policy of all of them, and the user who answers.

The language models share one store of replies, so that what it holds is not asked again, and one budget.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from pwagents.agents.chat import Setup
from pwagents.agents.methods import METHODS, PUMA_BY_FILE, TRACKS
from pwagents.agents.offline import FunctionClassifier, OfflinePolicy
from pwagents.embedding import Embedder
from pwagents.llm.prompts import official_prompts
from pwagents.notebook import Run
from pwagents.schema import Benchmark, Protocol, Task
from pwagents.settings import BenchmarkNotebook
from pwagents.shop.environment import Track, UserSimulator
from pwagents.users.llm import make_user
from pwagents_old.benchmark.settings import read_functions
from pwagents_old.llm.budget import Load, estimate
from pwagents_old.llm.make import Models

NO_MODEL = "No language model plays. To have one, set players.policy to openai:NAME or local:FOLDER."
PROTOCOLS = {"leak_free": "leak-free", "published": "as published"}  # as tables call them


class Cell(NamedTuple):
    """One way in which the prompting methods are played.

    Args:
        policy: the name of their model.
        items: that a memory recalls at most; 0 for as many as the paper has.
    """

    policy: str
    protocol: Protocol
    items: int = 0


class MethodRoles:
    """The players of notebook 03.

    Args:
        tasks: those that the methods play.
        whole: compares whole records, as long as MiniLM reads, as published agents do.

    Attributes:
        policies: by their names, for records and tables: language models, or the offline policy in their
            place.
        offline: whether the first is the latter.
        name: that of the first.
        kind: what the titles of tables say of them.
        cells: in which the prompting methods are played; the first is meant where none is named.
        classifier: instruction -> function, for agents without a model.
        functions: instruction -> function, as PUMA's fine-tuned model named it; empty without its file.
        embedder: of memories: behaviours are many, and embedded in batches.
    """

    def __init__(
        self,
        settings: BenchmarkNotebook,
        benchmark: Benchmark,
        tasks: Sequence[Task],
        whole: Embedder,
        run: Run,
    ):
        self.settings, self.benchmark, self._whole, self._n_tasks = settings, benchmark, whole, len(tasks)
        players, play = settings.players, settings.play
        self.prompts = official_prompts(play.official_repo)
        self.functions = read_functions(play.functions_file, tasks)
        self.classifier = FunctionClassifier(benchmark.tasks["train"])
        self.embedder = Embedder(run.cache, settings.shop.max_tokens, batch_size=64)
        self._model = Models(players, run.store)
        self._users: dict[tuple[int, bool], UserSimulator | None] = {}
        self.offline = players.policy == "offline"
        models = [self._model(spec) for spec in (players.policy, *players.more_policies) if spec != "offline"]
        self.policies: dict[str, Any] = {}
        if self.offline:
            self.policies["offline policy"] = OfflinePolicy(self.classifier)
        self.policies |= {model.name: model for model in models}
        self.name = next(iter(self.policies))
        self.kind = "Plumbing check, no language model" if self.offline else ", ".join(self.policies)
        items = {"leak_free": (0,), "published": play.published_items}
        self.cells = [
            Cell(policy, protocol, most)
            for policy in self.policies
            for protocol in play.protocols
            for most in items[protocol]
        ]

    def methods(self, track: Track) -> tuple[str, ...]:
        """Return the prompting methods that can be played in a track."""
        return tuple(name for name in TRACKS[track] if name != PUMA_BY_FILE or self.functions)

    def setup(
        self, track: Track, seed: int | None = None, cell: Cell | None = None, method: str = ""
    ) -> Setup:
        """Return what the prompting methods are made from, or one of them."""
        cell = cell or self.cells[0]
        return Setup(
            self.policies[cell.policy],
            self.benchmark.products,
            track,
            embedder=self._whole if self.prompts.texts else self.embedder,
            length=cell.items or None,
            identify=self.functions.__getitem__ if method == PUMA_BY_FILE and self.functions else None,
            prompts=self.prompts.texts,
            seed=self.settings.seed if seed is None else seed,
        )

    def user(self, seed: int | None = None, protocol: Protocol = "leak_free") -> UserSimulator | None:
        """Return who answers the agent, under the run's seed where none is given; None for nobody.

        As published, nothing is done where a language model in this role gives away what it must not.
        """
        seed, may_leak = self.settings.seed if seed is None else seed, protocol == "published"
        if (seed, may_leak) not in self._users:  # one remembers what it read of the tasks
            parts = self.settings.players.user, self._model, self.benchmark, seed
            self._users[seed, may_leak] = make_user(*parts, self.prompts.texts, may_leak)
        return self._users[seed, may_leak]

    def estimate(self, n_hidden: int) -> pd.DataFrame:
        """Estimate what language models will be asked, and cost at most: a row for each role that one plays.

        Calls and tokens follow PersonalWAB's own numbers: a product is about 670 tokens there, and ten of
        them and a memory fill a prompt.

        Args:
            n_hidden: cases of hidden instructions, which the first policy plays with each method.
        """
        players, n = self.settings.players, self._n_tasks
        policies, cells = (players.policy, *players.more_policies), len(self.cells) // len(self.policies)
        single, multi = (cells * len(self.methods(track)) for track in ("single_turn", "multi_turn"))
        # The noise floor plays two methods under each seed; under the first they were played already.
        multi += 2 * (self.settings.play.noise_seeds - 1)
        loads = {}  # model, tasks, calls a task, tokens of a prompt, tokens of a reply
        for policy in policies:
            role = "policy" if len(policies) == 1 else policy.partition(":")[2] or policy
            loads[f"{role}, single-turn"] = Load(policy, single * n, 1.2, 9_000, 60)
            loads[f"{role}, multi-turn"] = Load(policy, multi * n, 4, 14_000, 60)
        loads["policy, hidden instructions"] = Load(policies[0], len(METHODS) * n_hidden, 4, 2_000, 60)
        loads["user"] = Load(players.user, len(policies) * multi * n, 1.5, 1_200, 40)
        return estimate(loads)
