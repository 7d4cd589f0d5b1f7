"""What a search gains by the values of a profile: queries without an agent, without a model."""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from pwagents.embedding import Embedder
from pwagents.evaluation.metrics import rank_accuracy
from pwagents.profiles.global_micro import contextual_profiles, nearest_clusters
from pwagents.profiles.types import ContextualProfile, ProfileLine, UserProfiles
from pwagents.schema import Task
from pwagents.web.functions import RESULTS
from pwagents.web.search import SearchEngine

AVERAGED, RETRIEVED, HEARD = "global profile (averaged)", "micro, retrieved", "micro, instruction heard"


def profile_values(
    tasks: Sequence[Task],
    profiles: Mapping[str, UserProfiles],
    embedder: Embedder,
    hear: Callable[[ContextualProfile, str], ContextualProfile],
) -> dict[str, list[list[str]]]:
    """The values that three profiles name for each task, the weightiest first.

    - :data:`AVERAGED`: what the user likes everywhere (the global profile), whatever the task;
    - :data:`RETRIEVED`: what the nearest cluster's micro-profile recommends;
    - :data:`HEARD`: the same once the instruction was heard. What it states is in the query already, and
      overrides what contradicts it.

    Args:
        hear: the contextual profile and the instruction -> the profile after it
            (:meth:`pwagents.profiles.update.OfflineUpdater.hear`).
    """
    owners = [profiles[task.user_id] for task in tasks]
    near = nearest_clusters([task.instruction for task in tasks], owners, embedder)
    found = contextual_profiles(owners, near)
    heard = [hear(profile, task.instruction) for profile, task in zip(found, tasks, strict=True)]
    averaged = [
        [ProfileLine.of(text, True, "history").value for text in own.whole.positive] for own in owners
    ]
    return {AVERAGED: averaged, RETRIEVED: _wanted(found), HEARD: _wanted(heard)}


def _wanted(profiles: Sequence[ContextualProfile]) -> list[list[str]]:
    """The values wanted by history; those that the instruction states are in the query already."""
    return [
        [line.value for line in profile.lines if line.positive and line.provenance == "history"]
        for profile in profiles
    ]


def search_with_profiles(
    engine: SearchEngine,
    tasks: Sequence[Task],
    told: Mapping[str, Sequence[Sequence[str]]],
    added: Sequence[int] = (0, 1, 2, 3, 4, 5),
) -> pd.DataFrame:
    """What a query gains by the values of a profile: one row a search task, method and number of values.

    The query is the instruction and the first so many values that it does not hold; no agent, no model.

    Args:
        told: method -> for each of ``tasks``, the values its profile names, the weightiest first.

    Returns:
        ``method, added, task_id, user_id, type, result_accuracy``.
    """
    rows = []
    for method, values in told.items():
        for task, own in zip(tasks, values, strict=True):
            if task.type == "search":
                new = [value for value in own if value.lower() not in task.instruction.lower()]
                for n in added:
                    query = " ".join([task.instruction, *new[:n]])
                    ranking = [asin for asin, _ in engine.search(query, RESULTS)]
                    accuracy = rank_accuracy(ranking, task.target)
                    rows.append((method, n, task.task_id, task.user_id, task.type, accuracy))
    columns = ["method", "added", "task_id", "user_id", "type", "result_accuracy"]
    return pd.DataFrame(rows, columns=columns)
