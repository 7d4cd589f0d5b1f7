"""What a writer of instructions is told, and a benchmark with its instructions written anew."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from pwagents.schema import Behavior, Benchmark, Product, Split, Task, UserProfile


class Brief(NamedTuple):
    """All that one instruction is written from.

    Args:
        task: its ``type`` and, for review tasks, its ``review`` count; the old instruction does not.
        product: the target.
        profile: the user's, where there is one.
        history: the user's behaviours before the first task of the split, oldest first.
    """

    task: Task
    product: Product
    profile: UserProfile | None
    history: tuple[Behavior, ...]


class InstructionWriter(Protocol):
    """Writes an instruction for each brief, in order; none is empty."""

    def __call__(self, briefs: Sequence[Brief]) -> list[str]: ...


def with_instructions(
    benchmark: Benchmark,
    writer: InstructionWriter,
    profiles: Mapping[str, UserProfile] | None = None,
    splits: Sequence[Split] = ("train", "test"),
) -> Benchmark:
    """The same benchmark with other instructions: ids, targets and all else of its tasks stay.

    What a source knows of its own instructions does not hold for new ones: in the embedded world, the latent
    truth's ``kind``, ``stated``, ``in_history`` and ``in_head``.

    Args:
        profiles: user_id -> profile; None for the ones published with the benchmark. An instruction is what
            the user says, so profiles of the whole history do for it (PersonalWAB, 3.2).
        splits: whose instructions are written; other splits keep theirs.
    """
    profiles = benchmark.profiles if profiles is None else profiles
    tasks = dict(benchmark.tasks)
    for split in splits:
        briefs = [
            Brief(
                task,
                benchmark.products[task.target],
                profiles.get(task.user_id),
                benchmark.history(task, split),
            )
            for task in tasks[split]
        ]
        written = zip(tasks[split], writer(briefs), strict=True)
        tasks[split] = tuple(task.model_copy(update={"instruction": text}) for task, text in written)
    return replace(benchmark, tasks=tasks)
