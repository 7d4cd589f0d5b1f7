"""Orion's experiments from plain values: who is trained on, who is held out, the shop, who plays whom.

    study = make_study(output_dir=..., seed=0, data=..., shop=..., roles=..., task_types=["search"], ...)
    episode = study.start(study.train_tasks[0])

Further users of the same source are trained on; no trainer sees tasks, profiles or histories of those held
out. Everything is made of JSON values, so that a training in other processes can make the same study
(:func:`pwagents.orion.rl_setting.rl_setting`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from pwagents.agents.plain import FunctionClassifier
from pwagents.data import DataSettings, load_benchmark
from pwagents.evaluation.breakdowns import sample_tasks
from pwagents.orion.judge import Judge
from pwagents.orion.players import Roles
from pwagents.orion.setting import OrionSetting, SettingMaker, held_out_users, part_of, tasks_of
from pwagents.orion.teacher import OfflineTeacher
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.project import code_hash, project_path
from pwagents.schema import TASK_TYPES, Benchmark, Split, Task, TaskType
from pwagents.seeds import derive_seed
from pwagents.web.episode import Agent, Context, Episode
from pwagents.web.search import SearchEngine, build_search_engine

# What decides, beside data, settings and policy, how an episode goes.
CODE = (
    "agents/conversation",
    "orion/agent",
    "agents/replies",
    "data/instructions",
    "embedding",
    "llm/chat",
    "llm/chat",
    "profiles",
    "orion/setting",
    "users",
    "web",
)


@dataclass(frozen=True)
class Study:
    """What Orion's notebooks and trainings share.

    Attributes:
        settings: the plain values that :func:`make_study` made it from.
        benchmark: all users, those held out first.
        held_out: their ids.
        train_tasks: of the users to train on, their train split.
        test_tasks: of the users held out.
        offline_updater: understands users' words without a language model, whoever updates profiles.
        teacher: number of a round -> the agent that plays it, for
            :func:`pwagents.orion.role_play.play_roles`.
        facts: what decides an episode beside task and policy, as JSON values, for keys.
    """

    settings: Mapping[str, Any]
    benchmark: Benchmark
    held_out: tuple[str, ...]
    train_tasks: tuple[Task, ...]
    test_tasks: tuple[Task, ...]
    catalogue: Catalogue
    engine: SearchEngine
    offline_updater: OfflineUpdater
    judge: Judge
    teacher: Callable[[int], Agent]
    facts: Mapping[str, Any]
    _setting_of: Mapping[str, OrionSetting]

    @property
    def output_dir(self) -> Path:
        return project_path(self.settings["output_dir"])

    @property
    def seed(self) -> int:
        return self.settings["seed"]

    @property
    def roles(self) -> Mapping[str, Any]:
        """Who plays what, as fields of :class:`pwagents.orion.players.Roles`."""
        return self.settings["roles"]

    def player(self, role: Literal["teacher", "judge"]) -> str | dict[str, Any]:
        """Who plays a role, for keys; with a language model, how many products it is told about, too."""
        name = self.roles.get(role, "offline")
        return name if name == "offline" else {"model": name, "shown": self.roles.get("shown", Roles.shown)}

    @property
    def held_out_hash(self) -> str:
        """The content hash of the users held out: on the embedded world, the other notebooks' data."""
        return part_of(self.benchmark, self.held_out).content_hash

    def context(self, task: Task) -> Context:
        """What the episode of a task begins with: P_ctx,0 and the ids bought last."""
        return self._setting_of[task.task_id].contexts[task.task_id]

    def start(self, task: Task, context: Context | None = None) -> Episode:
        """The episode of a train or test task, before its first step; with another context where one is
        given."""
        setting = self._setting_of[task.task_id]
        if context is not None:
            setting = replace(setting, contexts={task.task_id: context})
        return setting.start(task)


def make_study(
    *,
    output_dir: str | Path,
    seed: int,
    data: Mapping[str, Any],
    shop: Mapping[str, Any],
    roles: Mapping[str, Any],
    task_types: Sequence[TaskType],
    training_users: int,
    eval_tasks: int,
    train_completeness: Sequence[float] = (),
) -> Study:
    """The study of some plain values; in one process the same values give the same object.

    Args:
        output_dir: of the preset; holds caches and stored replies.
        seed: of data, sampling and wording.
        data: fields of :class:`pwagents.data.DataSettings`; ``n_users`` are held out.
        shop: ``search_engine``, ``observation``, ``max_tokens`` (of embedded item texts), ``recommender``
            (arguments of :class:`SasRecSettings`) and ``rec_dates``. The recommender is trained only where
            recommendation is among the tasks; without it, there is nothing to recommend.
        roles: fields of :class:`pwagents.orion.players.Roles`.
        task_types: of the tasks to train and to test on.
        training_users: so many users beside ``n_users``. Where the source has fewer in all, both parts
            shrink alike.
        eval_tasks: test tasks, drawn at random; where the test split has not enough, the rest are train tasks
            of the same held-out users.
        train_completeness: how much the instructions trained on say (embedded data): each train task's names
            an attribute with one of these probabilities, which take turns. Without any, as ``data`` has it.
            Who is never asked for something already settled learns to ask always.

    Raises:
        DataError: the source's files are not what they should be.
        ValueError: a setting that is unknown or cannot be met.
    """
    settings = {
        "output_dir": str(output_dir),
        "seed": seed,
        "data": dict(data),
        "shop": dict(shop),
        "roles": dict(roles),
        "task_types": list(task_types),
        "training_users": training_users,
        "eval_tasks": eval_tasks,
        "train_completeness": list(train_completeness),
    }
    return _make(json.dumps(settings, sort_keys=True))


@lru_cache(maxsize=2)
def _make(text: str) -> Study:
    settings = json.loads(text)
    seed, types, folder = settings["seed"], settings["task_types"], project_path(settings["output_dir"])
    benchmark, held_out = _load(settings)
    training = [user for user in benchmark.behaviors if user not in set(held_out)]
    train_tasks = _reworded(
        [task for task in tasks_of(benchmark, training, "train", types) if has_answer(task)], settings
    )
    by_split = _test_tasks(benchmark, held_out, types, settings["eval_tasks"], seed)
    engine = build_search_engine(
        benchmark.products, engine=settings["shop"]["search_engine"], cache_dir=folder / "cache"
    )
    catalogue = Catalogue(benchmark.products)
    offline_updater = OfflineUpdater(catalogue)
    roles = Roles(folder / "runs" / "replies.sqlite", **settings["roles"])
    maker = SettingMaker(benchmark, engine, roles, offline_updater, settings, folder / "cache")
    parts = [(training, "train", train_tasks), *((held_out, split, by_split[split]) for split in by_split)]
    setting_of = {
        task.task_id: setting for part in parts if part[2] for setting in [maker(*part)] for task in part[2]
    }
    return Study(
        settings=settings,
        benchmark=benchmark,
        held_out=tuple(held_out),
        train_tasks=tuple(train_tasks),
        test_tasks=tuple(task for tasks in by_split.values() for task in tasks),
        catalogue=catalogue,
        engine=engine,
        offline_updater=offline_updater,
        judge=roles.make_judge(offline_updater),
        teacher=roles.make_teachers(_offline_teachers(benchmark, training, engine, offline_updater, seed)),
        facts=_facts(benchmark, held_out, roles, settings),
        _setting_of=setting_of,
    )


def _world(settings: Mapping[str, Any], **changes: Any) -> Benchmark:
    """All users, those held out and those to train on."""
    users = {"n_users": settings["data"]["n_users"] + settings["training_users"]}
    return load_benchmark(DataSettings(**(settings["data"] | users | changes)), settings["seed"])[0]


def _reworded(tasks: Sequence[Task], settings: Mapping[str, Any]) -> list[Task]:
    """The same tasks with instructions that say more, or less: those of ``train_completeness``, in turns."""
    if not settings["train_completeness"] or settings["data"]["source"] != "synthetic":
        return list(tasks)
    turns = settings["train_completeness"]
    worded = {settings["data"]["completeness"]: {task.task_id: task for task in tasks}}
    for completeness in set(turns) - worded.keys():
        world = _world(settings, completeness=completeness)
        worded[completeness] = {task.task_id: task for task in world.tasks["train"]}
    return [worded[turns[i % len(turns)]][task.task_id] for i, task in enumerate(tasks)]


def _load(settings: Mapping[str, Any]) -> tuple[Benchmark, list[str]]:
    """All users, and those of them that are held out."""
    data, further = settings["data"], settings["training_users"]
    wanted = data["n_users"] + further
    benchmark = _world(settings)
    n = len(benchmark.behaviors)
    n_held_out = round(n * data["n_users"] / wanted)
    if not 0 < n_held_out < n:
        raise ValueError(
            f"training_users is {further} beside n_users {data['n_users']}, and {benchmark.name} has "
            f"{n} users: {n_held_out} would be held out; expected some of both"
        )
    return benchmark, held_out_users(benchmark, n_held_out)


def has_answer(task: Task) -> bool:
    """A review task without a real review cannot be scored."""
    return task.type != "review" or bool(task.review.text.strip())


def _test_tasks(
    benchmark: Benchmark, held_out: Sequence[str], types: Sequence[TaskType], n: int, seed: int
) -> dict[Split, list[Task]]:
    """``n`` tasks: of the test split, and of the train split where these are not enough."""
    test = sample_tasks(tasks_of(benchmark, held_out, "test", types), n, seed)
    if len(test) >= n:
        return {"test": test}
    return {
        "test": test,
        "train": sample_tasks(tasks_of(benchmark, held_out, "train", types), n - len(test), seed),
    }


def _offline_teachers(
    benchmark: Benchmark, training: Sequence[str], engine: SearchEngine, updater: OfflineUpdater, seed: int
) -> Callable[[int], Agent]:
    @cache
    def identify() -> FunctionClassifier:
        return FunctionClassifier(tasks_of(benchmark, training, "train", TASK_TYPES))

    def teacher(number: int) -> Agent:
        own_seed = derive_seed(seed, "teacher", str(number))
        return OfflineTeacher(engine, updater.catalogue, updater, own_seed, identify())

    return teacher


def _facts(
    benchmark: Benchmark, held_out: Sequence[str], roles: Roles, settings: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "data": benchmark.content_hash,
        "held_out": len(held_out),
        "seed": settings["seed"],
        "train_completeness": settings["train_completeness"],
        "shop": settings["shop"],
        "recommender": "recommend" in settings["task_types"],
        "roles": roles.facts,
        "code": code_hash(*CODE),
    }
