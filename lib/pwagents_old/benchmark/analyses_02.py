"""Analyses of notebook 02: whether profiles are true, what searches gain by them, and what they cost.

The truth of the embedded world judges profiles; they are made without it.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.agents.memory import Memory, embed_behaviors
from pwagents.agents.messages import TASK_SPECIFIC, write_entries
from pwagents.data.synthetic import World
from pwagents.data.synthetic.people import DISLIKED_SLOTS
from pwagents.embedding import Embedder, count_tokens
from pwagents.profiles.contextual import ContextualProfile, ProfileLine
from pwagents.shop.score import rank_accuracy
from pwagents.schema import FUNCTION_OF, Behavior, Benchmark, Task
from pwagents.shop.environment import BeliefState
from pwagents.shop.search import SearchEngine
from pwagents.profiles.global_micro import contextual_profile, contextual_profiles, nearest_clusters
from pwagents.profiles.types import UserProfiles

# Lengths of histories for tables; up to 15 behaviours there are no clusters.
LENGTHS = {"up to 15": 15, "16 to 25": 25, "26 to 40": 40, "more than 40": np.inf}
HEADINGS = {  # of :func:`by_length`, to be read
    "behaviors": "behaviours",
    "clusters": "clusters of a user",
    "nearest": "nearest cluster is right",
    "holds": "nearest cluster holds the interest",
    "known": "history holds the interest",
    "precision": "precision of wishes",
    "recall": "recall of wishes",
    "avoid_precision": "precision of avoidances",
}
AVERAGED, RETRIEVED, HEARD = "global profile (averaged)", "micro, retrieved", "micro, instruction heard"
MEMORY = 50  # behaviours that PUMA's memory keeps, single-turn
_SLOT = {"price": "tier"}  # attributes that the world calls otherwise


def profile_quality(
    world: World,
    profiles: Mapping[str, UserProfiles],
    histories: Mapping[str, Sequence[Behavior]],
    tasks: Sequence[Task],
    embedder: Embedder,
) -> pd.DataFrame:
    """Judge what retrieval finds for each search and recommend task by the truth.

    Args:
        world: where the tasks come from.
        profiles, histories: of the tasks' users; the histories that the profiles were made from.

    Returns:
        One row a task: ``behaviors`` (|H|), ``clusters`` (of the user), and

        - ``nearest``: the interest that most members of the nearest cluster come from is the task's own;
        - ``holds``: the nearest cluster has any member of the task's interest;
        - ``known``: the history has any behaviour of it; where it has none, no cluster can be right;
        - ``lines, right``: positive lines about attributes of the interest, and how many of them name what
          the user now prefers in it;
        - ``preferences``: attributes whose preferred value the history holds, and ``named``, how many of them
          the lines name;
        - ``avoid, avoid_right``: negative lines, and how many of them the user really dislikes.

        The first two are missing for users without clusters.
    """
    tasks = [task for task in tasks if task.task_id in world.truth.tasks]
    users = [profiles[task.user_id] for task in tasks]
    near = nearest_clusters([task.instruction for task in tasks], users, embedder)
    rows = []
    contexts = contextual_profiles(users, near)
    for task, user, clusters, profile in zip(tasks, users, near, contexts, strict=True):
        # What is true: the task's interest, what the person now prefers in it, and what the history shows.
        person, interest = world.truth.people[task.user_id], world.truth.tasks[task.task_id].interest
        current = next(i.current for i in person.interests if i.domain.name == interest)
        items = [world.truth.items[behavior.parent_asin] for behavior in histories[task.user_id]]
        domains = [item.domain.name for item in items]
        bought = {pair for item in items if item.domain.name == interest for pair in item.values.items()}
        preferences = {(slot, value.lower()) for slot, value in current.items()}
        visible = {(slot, value.lower()) for slot, value in bought & current.items()}

        # The nearest cluster: is it that interest's?
        nearest = holds = np.nan
        if clusters:
            members = [domains[i] for i in user.clusters[clusters[0].cluster].members]
            counts = Counter(members)
            majority = min(counts, key=lambda name: (-counts[name], name))
            nearest, holds = float(majority == interest), float(interest in members)

        # The lines of the contextual profile: do they name what is preferred, and what is disliked?
        wants = {(_SLOT.get(x.about, x.about), x.value.lower()) for x in profile.lines if x.positive}
        wants = {(slot, value) for slot, value in wants if slot in current}
        avoids = [line for line in profile.lines if not line.positive]
        disliked = [a for a in avoids if a.about in DISLIKED_SLOTS and a.value.lower() in person.dislikes]
        lines = len(wants), len(wants & preferences), len(visible), len(wants & visible)
        clustered = len(user.clusters), nearest, holds, interest in domains
        rows.append((len(items), *clustered, *lines, len(avoids), len(disliked)))
    columns = ["behaviors", "clusters", "nearest", "holds", "known"]
    columns += ["lines", "right", "preferences", "named", "avoid", "avoid_right"]
    return pd.DataFrame(rows, columns=columns)


def by_length(quality: pd.DataFrame) -> pd.DataFrame:
    """Average :func:`profile_quality` by length of the history, as in :data:`LENGTHS`.

    Returns:
        ``behaviors, tasks, clusters, nearest, holds, known``, ``precision`` and ``recall`` of wishes, and
        ``avoid_precision``.
    """
    bins = pd.cut(quality["behaviors"], [0, *LENGTHS.values()], labels=list(LENGTHS))
    groups = quality.groupby(bins, observed=True)
    table = groups[["clusters", "nearest", "holds", "known"]].mean()
    # Shares of lines, not means of shares: a task with many lines counts more.
    sums = groups[["lines", "right", "preferences", "named", "avoid", "avoid_right"]].sum()
    table.insert(0, "tasks", groups.size())
    table["precision"] = sums["right"] / sums["lines"]
    table["recall"] = sums["named"] / sums["preferences"]
    table["avoid_precision"] = sums["avoid_right"] / sums["avoid"]
    return table.reset_index().astype({"behaviors": str})


def profile_values(
    tasks: Sequence[Task],
    profiles: Mapping[str, UserProfiles],
    embedder: Embedder,
    hear: Callable[[ContextualProfile, str], ContextualProfile],
) -> dict[str, list[list[str]]]:
    """List the values that three profiles name for each task, the weightiest first.

    - :data:`AVERAGED`: what the user likes everywhere (the global profile), whatever the task;
    - :data:`RETRIEVED`: what the nearest cluster's micro-profile recommends;
    - :data:`HEARD`: the same once the instruction was heard. What it states is in the query already, and
      overrides what contradicts it.

    Args:
        hear: the contextual profile and the instruction -> the profile after it
            (:meth:`pwagents.profiles.update.OfflineUpdater.apply_statement`).
    """
    users = [profiles[task.user_id] for task in tasks]
    near = nearest_clusters([task.instruction for task in tasks], users, embedder)
    retrieved = contextual_profiles(users, near)
    heard = [hear(profile, task.instruction) for profile, task in zip(retrieved, tasks, strict=True)]
    # The averaged profile is the same for all tasks of a user.
    lines = [[ProfileLine.of(text, True, "history") for text in user.whole.positive] for user in users]
    values = {AVERAGED: [[line.value for line in own] for own in lines]}
    # Lines that the instruction stated are in the query already: only those of the history are added.
    for name, contexts in {RETRIEVED: retrieved, HEARD: heard}.items():
        values[name] = [
            [line.value for line in profile.lines if line.positive and line.provenance == "history"]
            for profile in contexts
        ]
    return values


def search_with_profiles(
    engine: SearchEngine, tasks: Sequence[Task], values: Mapping[str, Sequence[Sequence[str]]]
) -> pd.DataFrame:
    """Search by the instruction and up to five values that it does not hold: no agent, no model.

    Args:
        tasks: searches.
        values: method -> for each task, the values its profile names, the weightiest first.

    Returns:
        ``method, added, task_id, user_id, type, result_accuracy``, one row each.
    """
    rows = []
    for method, values_of_tasks in values.items():
        for task, own in zip(tasks, values_of_tasks, strict=True):
            # What the instruction says needs no saying twice: it would only weigh more.
            new = [value for value in own if value.lower() not in task.instruction.lower()]
            for n in range(6):
                query = " ".join([task.instruction, *new[:n]])
                accuracy = rank_accuracy([asin for asin, _ in engine.search(query)], task.target)
                rows.append((method, n, task.task_id, task.user_id, task.type, accuracy))
    columns = ["method", "added", "task_id", "user_id", "type", "result_accuracy"]
    return pd.DataFrame(rows, columns=columns)


def measure_retrieval(
    benchmark: Benchmark, profiles: Mapping[str, UserProfiles], tasks: Sequence[Task], embedder: Embedder
) -> pd.DataFrame:
    """Measure PUMA's retrieval of memory and ours of a contextual profile on the same tasks (Orion, 4.1).

    Embeddings are warm; a memory is told in the form of its function.

    Returns:
        ``retrieval, median (ms), 99th percentile (ms), tokens`` (mean, by MiniLM's tokenizer), a row each.
    """
    memory = Memory("task_specific", benchmark.products, embedder, MEMORY)
    embed_behaviors(benchmark, embedder, [task.instruction for task in tasks])

    def from_memory(task: Task, history: tuple[Behavior, ...]) -> str:
        function = FUNCTION_OF[task.type]
        state = BeliefState(task.user_id, task.instruction, "", None, history)
        return write_entries(TASK_SPECIFIC[function], memory.recall(state, function), benchmark.products)

    def from_profiles(task: Task, history: tuple[Behavior, ...]) -> str:
        return contextual_profile(task.instruction, profiles[task.user_id], embedder).describe()

    rows = []
    for name, retrieve in (("PUMA memory", from_memory), ("contextual profile", from_profiles)):
        seconds, texts = [], []
        for task in tasks:
            history = benchmark.history(task, "test")  # not part of a retrieval: outside of the clock
            start = time.perf_counter()
            texts.append(retrieve(task, history))
            seconds.append(time.perf_counter() - start)
        median, slowest = 1000 * np.percentile(seconds, [50, 99])
        times = {"median (ms)": median, "99th percentile (ms)": slowest}
        rows.append({"retrieval": name, **times, "tokens": np.mean(count_tokens(texts))})
    return pd.DataFrame(rows)
