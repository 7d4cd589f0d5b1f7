"""What retrieving a contextual profile costs, beside PUMA's retrieval of memory (a claim of Orion, 4.1)."""

import time
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.agents.conversation import TASK_SPECIFIC, tell_entries
from pwagents.agents.memory import Memory, embed_behaviors
from pwagents.embedding import Embedder, count_tokens
from pwagents.profiles.global_micro import contextual_profile
from pwagents.profiles.types import UserProfiles
from pwagents.schema import FUNCTION_OF, Behavior, Benchmark, Task
from pwagents.web.environment import BeliefState

MEMORY = 50  # behaviours that PUMA's memory keeps, single-turn


def measure_retrieval(
    benchmark: Benchmark, profiles: Mapping[str, UserProfiles], tasks: Sequence[Task], embedder: Embedder
) -> pd.DataFrame:
    """Latency and prompt tokens of both retrievals on the same tasks, embeddings warm.

    PUMA's memory is told in the form of its function, our profile as
    :meth:`pwagents.profiles.types.ContextualProfile.describe`.

    Returns:
        ``retrieval, median (ms), 99th percentile (ms), tokens`` (mean, by MiniLM's tokenizer), a row each.
    """
    memory = Memory("task_specific", benchmark.products, embedder, MEMORY)
    embed_behaviors(benchmark, embedder, [task.instruction for task in tasks])

    def from_memory(task: Task, history: tuple[Behavior, ...]) -> str:
        function = FUNCTION_OF[task.type]
        state = BeliefState(task.user_id, task.instruction, "", None, history)
        return tell_entries(TASK_SPECIFIC[function].text, memory.recall(state, function), benchmark.products)

    def from_profiles(task: Task, history: tuple[Behavior, ...]) -> str:
        return contextual_profile(task.instruction, profiles[task.user_id], embedder).describe()

    rows = []
    for name, retrieve in (("PUMA memory", from_memory), ("contextual profile", from_profiles)):
        seconds, told = [], []
        for task in tasks:
            history = benchmark.history(task, "test")
            start = time.perf_counter()
            told.append(retrieve(task, history))
            seconds.append(time.perf_counter() - start)
        median, slowest = 1000 * np.percentile(seconds, [50, 99])
        took = {"median (ms)": median, "99th percentile (ms)": slowest}
        rows.append({"retrieval": name, **took, "tokens": np.mean(count_tokens(told))})
    return pd.DataFrame(rows)
