"""What profiles say of users, counted, and whether it is true.

The truth of the synthetic world judges profiles; they are made without it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pwagents.data.synthetic import Truth
from pwagents.data.synthetic.people import DISLIKED_SLOTS
from pwagents.embedding import Embedder
from pwagents.profiles.global_micro import contextual_profiles, nearest_clusters
from pwagents.profiles.llm import PROMPTS
from pwagents.profiles.types import OTHER, UserProfiles
from pwagents.schema import Behavior, Task, UserProfile

_RARE = 0.01  # a value of fewer users than this share has no bar of its own
_FEW = 8  # a field of fewer options shows all of them, in their order
# Lengths of histories; up to 15 behaviors there are no clusters.
_LENGTHS = {"up to 15": 15, "16 to 25": 25, "26 to 40": 40, "more than 40": np.inf}
_SLOT = {"price": "tier"}  # attributes that the synthetic world calls otherwise


def count_values(profiles: Mapping[str, UserProfile], fields: Sequence[str]) -> pd.DataFrame:
    """Count how many users have which value: ``field, value, users, share``.

    A field that says "Other" of everybody is left out. Fields of a few options (ages, levels) show each of
    them, also those that nobody has, in their order, then what strays from them; other fields go by number of
    users. Values of fewer than 1% of the users, options and strays alike, are counted together as "rarer
    (n kinds)".

    Args:
        profiles: user_id -> profile.
        fields: names as published, such as "Price Sensitivity".
    """
    values = pd.DataFrame([profile.model_dump(by_alias=True) for profile in profiles.values()])
    rows = []
    for field in (field for field in fields if (values[field] != OTHER).any()):
        users, fixed = Counter(values[field]), PROMPTS["choices"][field]
        if field in PROMPTS["levels"]:
            fixed = fixed[::-1]  # from low to high
        elif len(fixed) >= _FEW:
            fixed = []  # too many options: by number of users
        others = sorted(users.keys() - set(fixed), key=lambda value: (-users[value], value))
        common = [value for value in others if users[value] >= _RARE * len(profiles)]
        rows += [(field, value, users[value]) for value in (*fixed, *common)]
        if rare := others[len(common) :]:
            kinds = f"rarer ({len(rare)} kind{'s' * (len(rare) > 1)})"
            rows.append((field, kinds, sum(users[value] for value in rare)))
    counts = pd.DataFrame(rows, columns=["field", "value", "users"])
    return counts.assign(share=counts["users"] / len(profiles))


def judge_retrieval(
    truth: Truth,
    profiles: Mapping[str, UserProfiles],
    histories: Mapping[str, Sequence[Behavior]],
    tasks: Sequence[Task],
    embedder: Embedder,
) -> pd.DataFrame:
    """Judge by the truth what retrieval finds for search and recommend tasks.

    Args:
        profiles, histories: of the tasks' users; the histories that the profiles were made from.

    Returns:
        A row a length of the history: ``behaviors`` (the length in words), ``tasks``, ``clusters`` (of a
        user), and shares of tasks or lines:

        - ``nearest``: the interest that most members of the nearest cluster come from is the task's own;
        - ``holds``: the nearest cluster has any member of the task's interest;
        - ``known``: the history has any behavior of it; where it has none, no cluster can be right;
        - ``precision``: of positive lines about attributes of the interest, those that name what the user now
          prefers in it;
        - ``recall``: of attributes whose preferred value the history holds, those that the lines name;
        - ``avoid_precision``: of negative lines, those that name what the user really dislikes.

        The first two are missing for users without clusters.
    """
    tasks = [task for task in tasks if task.task_id in truth.tasks]
    users = [profiles[task.user_id] for task in tasks]
    near = nearest_clusters([task.instruction for task in tasks], users, embedder)
    rows = []
    contexts = contextual_profiles(users, near)
    for task, user, clusters, profile in zip(tasks, users, near, contexts, strict=True):
        # What is true: the task's interest, what the person now prefers in it, and what the history shows.
        person, interest = truth.people[task.user_id], truth.tasks[task.task_id].interest
        current = next(i.current for i in person.interests if i.domain.name == interest)
        items = [truth.items[behavior.parent_asin] for behavior in histories[task.user_id]]
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
    shares = ["clusters", "nearest", "holds", "known"]
    counted = ["lines", "right", "preferences", "named", "avoid", "avoid_right"]
    judged = pd.DataFrame(rows, columns=["behaviors", *shares, *counted])
    bins = pd.cut(judged["behaviors"], [0, *_LENGTHS.values()], labels=list(_LENGTHS))
    groups = judged.groupby(bins, observed=True)
    # Shares of lines, not means of shares: a task with many lines counts more.
    table, sums = groups[shares].mean(), groups[counted].sum()
    table.insert(0, "tasks", groups.size())
    table["precision"] = sums["right"] / sums["lines"]
    table["recall"] = sums["named"] / sums["preferences"]
    table["avoid_precision"] = sums["avoid_right"] / sums["avoid"]
    return table.reset_index().astype({"behaviors": str})
