"""Which profiles agree with what users do next: the makes of profiles compared, and what interests gain."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from pwagents.benchmark.gains import paired_gains
from pwagents.data.synthetic import Truth
from pwagents.profiles.consistency import (
    ProfileTexts,
    describe_average,
    describe_facts,
    describe_history,
    describe_keywords,
    describe_profiles,
)
from pwagents.profiles.types import UserProfiles
from pwagents.schema import Behavior, Product

AVERAGED, ORION = "averaged", "global + micro (Orion)"


def profiles_compared(
    histories: Mapping[str, Sequence[Behavior]],
    profiles: Mapping[str, UserProfiles],
    products: Mapping[str, Product],
    truth: Truth | None,
) -> dict[str, ProfileTexts]:
    """The profiles of every make as texts, by its name; with the truth, also what each person prefers."""
    told = {
        AVERAGED: describe_average(histories, products),
        "Apollonion (stand-in)": describe_keywords(histories),
        "facts (PersonalWAB)": describe_facts({user: own.whole.facts for user, own in profiles.items()}),
        ORION: describe_profiles(profiles),
        "raw history": describe_history(histories, products),
    }
    if truth:
        told["true preferences (reference)"] = {
            user: [
                f"{interest.domain.name}. {', '.join(interest.current.values())}"
                for interest in truth.people[user].interests
            ]
            for user in histories
        }
    return told


def agreement_gains(agreement: pd.DataFrame, long: Collection[str], alpha: int) -> pd.DataFrame:
    """What global and micro-profiles gain over one averaged profile, by evaluation: over all users, and over
    those with clusters.

    Args:
        agreement: from :mod:`pwagents.profiles.consistency`.
        long: the users with more than ``alpha`` behaviours.

    Returns:
        ``evaluation, users, difference, low, high, p, n_tasks, n_users``, paired by user.
    """
    parts = {"all": agreement, f"more than {alpha} behaviours": agreement[agreement["user_id"].isin(long)]}
    parts = {users: part for users, part in parts.items() if len(part)}
    tables = []
    for users, part in parts.items():
        gains = paired_gains(part, "value", ORION, AVERAGED, by="evaluation")
        gains.insert(1, "users", users)
        tables.append(gains)
    return pd.concat(tables, ignore_index=True)
