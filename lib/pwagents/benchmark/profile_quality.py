"""How good profiles are, measured against the truth of the embedded world; they are made without it."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.data.synthetic import World
from pwagents.data.synthetic.people import DISLIKED_SLOTS
from pwagents.embedding import Embedder
from pwagents.profiles.global_micro import contextual_profiles, nearest_clusters
from pwagents.profiles.types import ContextualProfile, UserProfiles
from pwagents.schema import Behavior, Task

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
_SLOT = {"price": "tier"}  # attributes that the world calls otherwise


def profile_quality(
    world: World,
    profiles: Mapping[str, UserProfiles],
    histories: Mapping[str, Sequence[Behavior]],
    tasks: Sequence[Task],
    embedder: Embedder,
    m: int = 1,
) -> pd.DataFrame:
    """What retrieval finds for each search and recommend task, and whether it is true.

    Args:
        world: where the tasks come from.
        profiles, histories: of the tasks' users; the histories that the profiles were made from.
        m: clusters retrieved.

    Returns:
        One row a task: ``task, user, behaviors`` (|H|), ``clusters`` (of the user), and

        - ``nearest``: the interest that most members of the nearest cluster come from is the task's own;
        - ``holds``: the nearest cluster has any member of the task's interest;
        - ``known``: the history has any behaviour of it; where it has none, no cluster can be right;
        - ``lines, right``: positive lines about attributes of the interest, and how many of them name what
          the user now prefers in it;
        - ``preferences``: attributes whose preferred value the history holds, and ``found``, how many of them
          the lines name;
        - ``avoid, avoid_right``: negative lines, and how many of them the user really dislikes.

        The first two are missing for users without clusters.
    """
    tasks = [task for task in tasks if task.task_id in world.truth.tasks]
    users = [profiles[task.user_id] for task in tasks]
    instructions = [task.instruction for task in tasks]
    near = nearest_clusters(instructions, users, embedder, m)
    told = contextual_profiles(users, near)
    rows = []
    for task, user, found, profile in zip(tasks, users, near, told, strict=True):
        domains = [world.truth.items[b.parent_asin].domain.name for b in histories[task.user_id]]
        row = {"task": task.task_id, "user": task.user_id, "behaviors": len(domains)}
        row |= {"clusters": len(user.clusters), "nearest": np.nan, "holds": np.nan}
        interest = world.truth.tasks[task.task_id].interest
        row["known"] = interest in domains
        if found:
            members = [domains[i] for i in user.clusters[found[0].cluster].members]
            row |= {"nearest": float(_majority(members) == interest), "holds": float(interest in members)}
        rows.append(row | _judge_lines(world, task, histories[task.user_id], profile))
    return pd.DataFrame(rows)


def by_length(quality: pd.DataFrame) -> pd.DataFrame:
    """The means of :func:`profile_quality` by length of the history: ``behaviors`` (as in :data:`LENGTHS`),
    ``tasks``, ``clusters``, ``nearest``, ``holds``, ``known``, ``precision`` and ``recall`` of wishes, and
    ``avoid_precision``."""
    bins = pd.cut(quality["behaviors"], [0, *LENGTHS.values()], labels=list(LENGTHS))
    groups = quality.groupby(bins, observed=True)
    table = groups[["clusters", "nearest", "holds", "known"]].mean()
    sums = groups[["lines", "right", "preferences", "found", "avoid", "avoid_right"]].sum()
    table.insert(0, "tasks", groups.size())
    table["precision"] = sums["right"] / sums["lines"]
    table["recall"] = sums["found"] / sums["preferences"]
    table["avoid_precision"] = sums["avoid_right"] / sums["avoid"]
    return table.reset_index().astype({"behaviors": str})


def _judge_lines(
    world: World, task: Task, history: Sequence[Behavior], profile: ContextualProfile
) -> dict[str, int]:
    """How many lines there are, and how many are true of the task's interest."""
    person, interest = world.truth.people[task.user_id], world.truth.tasks[task.task_id].interest
    current = next(i.current for i in person.interests if i.domain.name == interest)
    items = [world.truth.items[behavior.parent_asin] for behavior in history]
    bought = {pair for item in items if item.domain.name == interest for pair in item.values.items()}
    wants = {
        (_SLOT.get(line.about, line.about), line.value.lower()) for line in profile.lines if line.positive
    }
    wants = {(slot, value) for slot, value in wants if slot in current}
    right = wants & {(slot, value.lower()) for slot, value in current.items()}
    preferences = {(slot, value.lower()) for slot, value in current.items() if (slot, value) in bought}
    avoids = [line for line in profile.lines if not line.positive]
    disliked = [a for a in avoids if a.about in DISLIKED_SLOTS and a.value.lower() in person.dislikes]
    return {
        "lines": len(wants),
        "right": len(right),
        "preferences": len(preferences),
        "found": len(right & preferences),
        "avoid": len(avoids),
        "avoid_right": len(disliked),
    }


def _majority(names: Sequence[str]) -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name))
