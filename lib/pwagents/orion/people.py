"""Whose tasks a study is about: all users of a source, those held out, and those to train on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pwagents.data import load_benchmark
from pwagents.orion.settings import OrionSettings
from pwagents.schema import Benchmark, Split, Task, TaskType

if TYPE_CHECKING:
    from pwagents.data.synthetic import Truth


def has_answer(task: Task) -> bool:
    """A review task without a real review cannot be scored."""
    return task.type != "review" or bool(task.review.text.strip())


def load_world(settings: OrionSettings, **changes: Any) -> "tuple[Benchmark, Truth | None]":
    """All users, those held out and those to train on."""
    n_users = settings.data.n_users + settings.study.training_users
    return load_benchmark(replace(settings.data, n_users=n_users, **changes), settings.seed)


def part_users(benchmark: Benchmark, settings: OrionSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those held out, who come first, and those to train on."""
    users = tuple(benchmark.behaviors)
    asked, further = settings.data.n_users, settings.study.training_users
    n = round(len(users) * asked / (asked + further))
    if not 0 < n < len(users):
        raise ValueError(
            f"training_users is {further} beside n_users {asked}, and {benchmark.name} has "
            f"{len(users)} users: {n} would be held out; expected some of both"
        )
    return users[:n], users[n:]


def tasks_of(
    benchmark: Benchmark, users: Sequence[str], split: Split, types: Sequence[TaskType]
) -> list[Task]:
    """The tasks of some users, of some types."""
    chosen = set(users)
    return [task for task in benchmark.tasks[split] if task.user_id in chosen and task.type in types]


def tasks_to_train_on(
    benchmark: Benchmark, users: Sequence[str], settings: OrionSettings
) -> tuple[Task, ...]:
    """What is trained on, with instructions that say as much as ``train_completeness`` has it, in turns."""
    tasks = tasks_of(benchmark, users, "train", settings.study.task_types)
    tasks = [task for task in tasks if has_answer(task)]
    turns = settings.study.train_completeness
    if not turns or settings.data.source != "synthetic":
        return tuple(tasks)
    worded = {settings.data.completeness: {task.task_id: task for task in tasks}}
    for completeness in set(turns) - worded.keys():
        world, _ = load_world(settings, completeness=completeness)  # the same people, asking in other words
        worded[completeness] = {task.task_id: task for task in world.tasks["train"]}
    return tuple(worded[turns[i % len(turns)]][task.task_id] for i, task in enumerate(tasks))


def benchmark_of(benchmark: Benchmark, users: Sequence[str]) -> Benchmark:
    """The benchmark of some users alone."""
    chosen = set(users)
    return replace(
        benchmark,
        behaviors={user: own for user, own in benchmark.behaviors.items() if user in chosen},
        tasks={split: tuple(t for t in ts if t.user_id in chosen) for split, ts in benchmark.tasks.items()},
        profiles={user: own for user, own in benchmark.profiles.items() if user in chosen},
    )
