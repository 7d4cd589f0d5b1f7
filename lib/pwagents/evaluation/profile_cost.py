"""What retrieving a contextual profile costs, beside PUMA's retrieval of memory (a claim of Orion, 4.1)."""

import time
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.agents.memory import Memory, embed_behaviors
from pwagents.agents.prompting import TASK_SPECIFIC, tell_entries
from pwagents.embedding import Embedder, count_tokens
from pwagents.profiles.retrieval import contextual_profile
from pwagents.profiles.types import UserProfiles
from pwagents.schema import Behavior, Benchmark, Task
from pwagents.web.episode import BeliefState
from pwagents.web.functions import FUNCTION_OF

MEMORY = 50  # behaviours that PUMA's memory keeps, single-turn


def measure_retrieval(
    benchmark: Benchmark, profiles: Mapping[str, UserProfiles], tasks: Sequence[Task], embedder: Embedder
) -> pd.DataFrame:
    """Latency and prompt tokens of both retrievals on the same tasks, embeddings warm.

    PUMA's memory is told in the form of its function, our profile as
    :meth:`pwagents.profiles.types.ContextualProfile.told`.

    Returns:
        ``retrieval, p50_ms, p99_ms, tokens``, one row each; tokens are MiniLM's.
    """
    memory = Memory("task_specific", benchmark.products, embedder, MEMORY)
    embed_behaviors(benchmark, embedder, [task.instruction for task in tasks])

    def from_memory(task: Task, history: tuple[Behavior, ...]) -> str:
        function = FUNCTION_OF[task.type]
        state = BeliefState(task.user_id, task.instruction, "", None, history)
        return tell_entries(TASK_SPECIFIC[function].text, memory.recall(state, function), benchmark.products)

    def from_profiles(task: Task, history: tuple[Behavior, ...]) -> str:
        return contextual_profile(task.instruction, profiles[task.user_id], embedder).told()

    rows = []
    for name, retrieve in (("PUMA memory", from_memory), ("contextual profile", from_profiles)):
        seconds, told = [], []
        for task in tasks:
            history = benchmark.history(task, "test")
            start = time.perf_counter()
            told.append(retrieve(task, history))
            seconds.append(time.perf_counter() - start)
        p50, p99 = 1000 * np.percentile(seconds, [50, 99])
        rows.append({"retrieval": name, "p50_ms": p50, "p99_ms": p99, "tokens": np.mean(count_tokens(told))})
    return pd.DataFrame(rows)
