"""What Orion's notebooks and trainings share: who is trained on and who is held out, the shop, the players.

    study = make_study(settings)
    episode = study.start(study.train_tasks[0])

Further users of the same source are trained on; no trainer sees tasks, profiles or histories of those held
out, nor anything that happened from the first test task of any of those tested on. A study is made of
settings alone, which are plain values, so that a training in other processes makes the same one.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import TypeAdapter

from pwagents.agents.offline import FunctionClassifier
from pwagents.data import load_benchmark
from pwagents.data.splits import parting_date, sample_tasks
from pwagents.embedding import Embedder
from pwagents.llm.make import Models
from pwagents.orion.agent import contexts
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.contextual import Context
from pwagents.profiles.global_micro import profile_users
from pwagents.profiles.llm import LlmProfiler, LlmUpdater
from pwagents.profiles.offline import OfflineProfiler
from pwagents.profiles.update import OfflineUpdater
from pwagents.schema import TASK_TYPES, Benchmark, Split, Task, TaskType
from pwagents.settings import OrionPlayers, OrionSettings, plain
from pwagents.shop.environment import Environment, Shop
from pwagents.shop.search import build_search_engine
from pwagents.tasks.writers import LlmAmbiguousWriter, OfflineAmbiguousWriter, with_instructions
from pwagents.users.llm import make_user

if TYPE_CHECKING:
    from pwagents.data.synthetic import Truth

REVIEW_TOKENS = 512  # as long as the published scorer reads a review
Users = tuple[str, ...]  # their ids

# Of the users to train on, held out from all training: its progress is measured on them.
VALIDATION = 0.05


def load_world(settings: OrionSettings, model: Models) -> "tuple[Benchmark, Truth | None, Users, Users]":
    """Return all users with the instructions of the settings, who of them is held out, who is trained on.

    Orion's instructions are ambiguous: a strong language model writes them by inverse prompting (4.3), or, in
    its place, templates do. Those held out come first.
    """
    n_users = settings.data.n_users + settings.study.training_users
    benchmark, truth = load_benchmark(settings.data.changed(n_users=n_users), settings.seed)
    users = tuple(benchmark.behaviors)
    asked, further = settings.data.n_users, settings.study.training_users
    n = round(len(users) * asked / (asked + further))
    if not 0 < n < len(users):
        raise ValueError(
            f"training_users is {further} beside n_users {asked}, and {benchmark.name} has "
            f"{len(users)} users: {n} would be held out; expected some of both"
        )
    if settings.study.instructions == "ambiguous":
        writer = OfflineAmbiguousWriter(benchmark.products, settings.seed)
        if settings.players.writer != "offline":
            writer = LlmAmbiguousWriter(model(settings.players.writer), writer, settings.seed)
        benchmark = with_instructions(benchmark, writer, benchmark.profiles)
        if failures := +getattr(writer, "failures", Counter()):
            told = ", ".join(f"{what} {n:,}" for what, n in failures.items())
            print(f"Instructions repaired, or written by templates instead: {told}")
    return benchmark, truth, users[:n], users[n:]


def tasks_of(
    benchmark: Benchmark, users: Sequence[str], split: Split, types: Sequence[TaskType]
) -> list[Task]:
    """Return the tasks of some users, of some types."""
    chosen = set(users)
    return [task for task in benchmark.tasks[split] if task.user_id in chosen and task.type in types]


def benchmark_of(benchmark: Benchmark, users: Sequence[str]) -> Benchmark:
    """Return the benchmark of some users alone."""
    chosen = set(users)
    return replace(
        benchmark,
        behaviors={user: own for user, own in benchmark.behaviors.items() if user in chosen},
        tasks={split: tuple(t for t in ts if t.user_id in chosen) for split, ts in benchmark.tasks.items()},
        profiles={user: own for user, own in benchmark.profiles.items() if user in chosen},
    )


def role_facts(players: OrionPlayers, role: Literal["teacher", "judge"]) -> str | dict[str, Any]:
    """Return who plays a role, for keys; of a language model also how it is asked, and what it is shown."""
    name = getattr(players, role)
    return name if name == "offline" else {**players.facts(role), "shown": players.shown}


class _Part(NamedTuple):
    """Users with their tasks of one split, and what their episodes begin with.

    Args:
        contexts: task_id -> what retrieval found for the instruction.
        known: likewise, what the user knows of it: P_ctx,0, whatever part of it the agent lacks.
        shop: its recommenders know nothing of what comes after a user's first task of the split; it has none
            if recommendation is not among the tasks.
    """

    split: Split
    contexts: Mapping[str, Context]
    known: Mapping[str, Context]
    shop: Shop


class Study:
    """Users, tasks, shop and players; starts episodes. To be had from :func:`make_study`.

    Attributes:
        benchmark: all users, those held out first.
        truth: what the synthetic world knows of them; None of other sources.
        held_out: the ids of those held out.
        train_tasks, validation_tasks: of the users to train on, their train split before ``date``; the
            progress of trainings is measured on the latter.
        test_tasks: of the users held out whose first test task is not before ``date``.
        date: in milliseconds; nothing from then on is learned from
            (:func:`pwagents.data.splits.parting_date`).
        model: makes the language model of a role, whose replies are stored.

    Raises:
        DataError: the source's files are not what they should be.
        ValueError: the source has too few users, or nothing to train on lies before what is tested.
    """

    def __init__(self, settings: OrionSettings):
        from pwagents.shop.sasrec import RecommendersByTime

        self.settings, self.seed, self.output_dir = settings, settings.seed, settings.output_dir
        self.model = model = Models(settings.players, settings.output_dir / "runs" / "replies.sqlite")
        self.benchmark, self.truth, self.held_out, self._trained = load_world(settings, model)
        types, first_task = settings.study.task_types, self.benchmark.first_task
        to_train = tasks_of(self.benchmark, self._trained, "train", types)
        # A review task without a real review cannot be scored.
        to_train = [task for task in to_train if task.type != "review" or task.review.text.strip()]
        to_test = tasks_of(self.benchmark, self.held_out, "test", types)
        self.date = parting_date(to_train, to_test, first_task)
        before = [task for task in to_train if task.timestamp < self.date]
        users = list(dict.fromkeys(task.user_id for task in before))
        validated = frozenset(users[-max(1, round(VALIDATION * len(users))) :])
        self.train_tasks = tuple(task for task in before if task.user_id not in validated)
        self.validation_tasks = tuple(task for task in before if task.user_id in validated)
        later = [task for task in to_test if first_task(task.user_id) >= self.date]
        if most := settings.study.tasks_a_user:
            own = defaultdict[str, count](count)  # how many of a user came before
            later = [task for task in later if next(own[task.user_id]) < most]
        self.test_tasks = tuple(sample_tasks(later, settings.study.eval_tasks, self.seed))

        self._cache_dir = settings.output_dir / "cache"
        self.engine = build_search_engine(
            self.benchmark.products, engine=settings.shop.search_engine, cache_dir=self._cache_dir
        )
        self.catalogue = Catalogue(self.benchmark.products)

        # Who plays the roles around the policy: rules, or a language model whose replies are stored.
        roles, products = settings.players, self.benchmark.products
        self._profiler, self._update = OfflineProfiler(self.catalogue), OfflineUpdater(self.catalogue)
        self._user = make_user(roles.user, model, self.benchmark, self.seed)
        if roles.profiler != "offline":
            self._profiler = LlmProfiler(model(roles.profiler), products)
        if roles.updater != "offline":
            self._update = None if roles.updater == "none" else LlmUpdater(model(roles.updater), products)
        reviews = Embedder(self._cache_dir, REVIEW_TOKENS)
        none = RecommendersByTime([], [])
        self._shop = Shop(self.benchmark, self.engine, none, reviews, settings.shop.observation)

        train, test = self._make_part(self._trained, "train"), self._make_part(self.held_out, "test")
        # task_id -> the part that it belongs to
        self._parts = {task_id: part for part in (train, test) for task_id in part.contexts}

    def context(self, task: Task) -> Context:
        """Return what retrieval finds for a task, with which its episode begins."""
        return self._parts[task.task_id].contexts[task.task_id]

    def retrieve(self, split: Split, known: Benchmark, alpha: int, l_c: int) -> dict[str, Context]:
        """Return what retrieval finds for all tasks of a split: task_id -> context.

        Profiles are made of what lies before each user's first task of the split, once for all tasks.

        Args:
            known: the benchmark, or one with other histories, where those are what is known.
            alpha, l_c: as of :func:`pwagents.profiles.global_micro.profile_users`.
        """
        trained_on = (*self.train_tasks, *self.validation_tasks)
        tasks = trained_on if split == "train" else self.test_tasks
        # As in notebooks 02 and 03.
        items = Embedder(self._cache_dir, self.settings.shop.max_tokens, batch_size=64)
        users = dict.fromkeys(task.user_id for task in tasks)
        histories = {user: known.before(user, known.first_task(user, split)) for user in users}
        profiles = profile_users(histories, known.products, items, self._profiler, self.seed, alpha, l_c)
        return contexts(known, tasks, split, profiles, items)

    def start(
        self, task: Task, context: Context | None = None, known: Benchmark | None = None
    ) -> Environment:
        """Begin a train or test task.

        Args:
            context: another than its own.
            known: the benchmark with other histories, where those are what is known.
        """
        part = self._parts[task.task_id]
        context = context or part.contexts[task.task_id]
        # The user simulator knows P_ctx,0 and the final answer (Orion, 4.3).
        user = self._user and partial(self._user, profile=part.known[task.task_id].profile)
        history = (known or self.benchmark).history(task, part.split)
        own = {"split": part.split, "history": history, "context": context, "update": self._update}
        return Environment(part.shop, task, "multi_turn", user=user, **own)

    @property
    def held_out_hash(self) -> str:
        """Return the content hash of the users held out: in the synthetic world, other notebooks' data."""
        return benchmark_of(self.benchmark, self.held_out).content_hash

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return what decides an episode beside task, policy and code, as JSON values, for keys."""
        settings = self.settings
        return {
            "data": self.benchmark.content_hash,
            "held_out": len(self.held_out),
            "seed": self.seed,
            "instructions": settings.study.instructions,
            "validation": VALIDATION,
            "alpha": settings.study.alpha,
            "l_c": settings.study.l_c,
            "micro_profiles": settings.study.micro_profiles,
            "shop": plain(settings.shop),
            "recommender": "recommend" in settings.study.task_types,
            # teacher and judge only look on, and what a writer wrote is in the data
            "roles": settings.players.changed(writer="offline", teacher="offline", judge="offline").facts(
                "profiler", "updater", "user"
            ),
        }

    def _make_part(self, users: Sequence[str], split: Split) -> _Part:
        own = self.settings.study
        known = found = self.retrieve(split, self.benchmark, own.alpha, own.l_c)
        if not own.micro_profiles:
            longest = max(map(len, self.benchmark.behaviors.values()))
            found = self.retrieve(split, self.benchmark, longest, own.l_c)
        if "recommend" not in own.task_types:
            return _Part(split, found, known, self._shop)
        from pwagents.shop.sasrec import RecommendersByTime

        # Trained on these users and strangers; tasks of the split must not be foreseen.
        part, shop = benchmark_of(self.benchmark, users), self.settings.shop
        as_tested = replace(part, tasks={"test": part.tasks[split]})
        given = (as_tested, shop.recommender, self.seed, shop.rec_dates, self._cache_dir)
        shop = replace(self._shop, recommenders=RecommendersByTime.fit(*given))
        return _Part(split, found, known, shop)

    @cached_property
    def identify(self) -> FunctionClassifier:
        """Return instruction -> function, learned from train tasks before ``date`` of those trained on."""
        tasks = tasks_of(self.benchmark, self._trained, "train", TASK_TYPES)
        return FunctionClassifier([task for task in tasks if task.timestamp < self.date])


_SETTINGS = TypeAdapter(OrionSettings)


def make_study(settings: OrionSettings) -> Study:
    """Return the study of some settings; in one process the same settings give the same object.

    Settings that a notebook has beside :class:`OrionSettings` make no difference.
    """
    return _study_of(_SETTINGS.dump_json(settings).decode(), settings.players.base_url)


@lru_cache(maxsize=2)  # a training in this process finds the notebook's study, beside a variant of it
def _study_of(text: str, base_url: str) -> Study:
    """Make the study; a URL may hold a token, which the text does not tell."""
    return Study(_SETTINGS.validate_json(text).changed(players={"base_url": base_url}))
