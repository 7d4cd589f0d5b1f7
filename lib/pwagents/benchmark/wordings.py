"""The same tasks in three wordings: their own, written from profiles, and ambiguous on purpose."""

from collections.abc import Mapping

import pandas as pd

from pwagents.schema import Benchmark, UserProfile
from pwagents.tasks.writers import InstructionWriter, with_instructions


def three_wordings(
    benchmark: Benchmark,
    plain: InstructionWriter,
    ambiguous: InstructionWriter,
    profiles: Mapping[str, UserProfile],
) -> dict[str, Benchmark]:
    """The benchmark with instructions of each wording, by its name."""
    return {
        "its own": benchmark,
        "from profiles": with_instructions(benchmark, plain, profiles),
        "ambiguous": with_instructions(benchmark, ambiguous, profiles),
    }


def wording_table(wordings: Mapping[str, Benchmark], n: int = 6) -> pd.DataFrame:
    """The first ``n`` test tasks of the first user in every wording: ``task, written, instruction``."""
    tasks = {name: benchmark.tasks["test"] for name, benchmark in wordings.items()}
    first = next(iter(tasks.values()))
    own = [i for i, task in enumerate(first) if task.user_id == first[0].user_id][:n]
    rows = [(first[i].type, name, tasks[name][i].instruction) for i in own for name in tasks]
    return pd.DataFrame(rows, columns=["task", "written", "instruction"])
