"""Where agents are evaluated: tasks, shop and user of notebook 03's settings, leak-free, and the records."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from pwagents.agents.chat import Setup
from pwagents.agents.methods import PUMA_BY_FILE
from pwagents.agents.offline import FunctionClassifier, OfflinePolicy
from pwagents.agents.play import make_player, read_functions
from pwagents.data import load_benchmark
from pwagents.data.splits import sample_tasks
from pwagents.embedding import Embedder
from pwagents.llm.prompts import official_prompts
from pwagents.notebook import Run
from pwagents.schema import Behavior, Benchmark, Task
from pwagents.settings import BenchmarkNotebook, plain
from pwagents.shop.environment import Environment, Shop, Track
from pwagents.store import Episode, episodes
from pwagents.llm.make import Models
from pwagents_old.project import code_hash
from pwagents.users.llm import make_user

# The code that decides an episode of a prompting method.
_PROMPTED = ("agents", "web", "embedding", "schema", "seeds", "users", "llm", "words", "benchmark/study")
_code_hash = cache(code_hash)


class Study:
    """Plays agents on the test tasks of a benchmark. Episodes that are stored already are not played again.

    Attributes:
        tasks: the test tasks, or a sample of them.
        sample: those of them that are played.
        shop: where they are played.
        user: answers in the multi-turn track; None: nobody.
        policy: a language model, or the offline policy in its place.
        facts: what decides every episode, for the keys of records.
    """

    def __init__(self, benchmark: Benchmark, settings: BenchmarkNotebook, run: Run):
        self.benchmark, self.settings, self.folder = benchmark, settings, run.output_dir / "runs"
        players, seed = settings.players, settings.seed
        self.tasks = sample_tasks(benchmark.tasks["test"], settings.play.max_tasks, seed)
        self.sample = sample_tasks(self.tasks, settings.play.method_tasks, seed)
        self.shop = Shop.open(benchmark, settings.shop, seed, run.cache, settings.data)
        self.prompts = official_prompts(settings.play.official_repo)
        model_of = Models(players, run.store)  # one store and one budget for both roles
        self.user = make_user(players.user, model_of, benchmark, seed, self.prompts.texts)
        if players.policy == "offline":
            self.policy = OfflinePolicy(FunctionClassifier(benchmark.tasks["train"]))
            self.policy_name = "offline policy"
        else:
            self.policy = model_of(players.policy)
            self.policy_name = self.policy.name
        self.embedder = Embedder(run.cache, settings.shop.max_tokens, batch_size=64)
        self.facts = {"data": benchmark.content_hash, "shop": plain(settings.shop), "seed": seed}

    @classmethod
    def load(cls, settings: BenchmarkNotebook, run: Run) -> "Study":
        """Load the benchmark of some settings, and make its study."""
        benchmark, _ = load_benchmark(settings.data, settings.seed)
        return cls(benchmark, settings, run)

    def environment(
        self, task: Task, track: Track = "single_turn", history: Sequence[Behavior] | None = None
    ) -> Environment:
        """Begin an episode; multi-turn, the settings' user answers.

        Args:
            history: what the agent may know of the user's past, if it differs from what leak-free shows.
        """
        user = self.user if track == "multi_turn" else None
        return Environment(self.shop, task, track, user=user, history=history)

    def params(self, *code: str, **others: Any) -> dict[str, Any]:
        """Return what decides an episode, for the key of its record.

        Args:
            code: rooms of the library that it runs through (:func:`pwagents_old.project.code_hash`).
        """
        return self.facts | {"code": _code_hash(*code)} | others

    def run(
        self,
        tasks: Sequence[Task],
        solve: Callable,
        file: str,
        memory: dict | None = None,
        *,
        params: dict[str, Any],
        **fields: Any,
    ) -> list[Episode]:
        """Play what a file of the study lacks; ``params`` are the facts of :func:`pwagents.store.episodes`."""
        return episodes(
            self.folder / file,
            tasks,
            solve,
            params,
            workers=self.settings.players.workers,
            stored_only=self.settings.stored_runs_only,
            memory=memory,
            **fields,
        )

    def setup(self, track: Track, functions: dict[str, str] | None = None) -> Setup:
        """Return what the prompting methods are made from.

        Args:
            functions: instruction -> function, as PUMA's fine-tuned model named it.
        """
        return Setup(
            self.policy,
            self.benchmark.products,
            track,
            # Published agents compare whole records, as long as MiniLM reads.
            embedder=self.shop.embedder if self.prompts.texts else self.embedder,
            identify=functions.__getitem__ if functions else None,
            prompts=self.prompts.texts,
            seed=self.settings.seed,
        )

    def play(self, method: str, track: Track) -> list[Episode]:
        """Play a method of :data:`pwagents.agents.methods.TRACKS` on the sample, in its order.

        Raises:
            InfrastructureError: some episode could not be played. All others are stored.
        """
        functions = {}
        if method == PUMA_BY_FILE:
            functions = read_functions(self.settings.play.functions_file, self.sample)
        solve, memory = make_player(method, self.setup(track, functions), self.shop, user=self.user)
        facts = {"track": track, "functions": functions, "prompts": self.prompts.origin}
        facts |= self.settings.players.facts("user")
        fields = {"method": method, "model": self.policy_name, "params": self.params(*_PROMPTED, **facts)}
        return self.run(self.sample, solve, f"03_methods_{track}.jsonl", memory, **fields)
