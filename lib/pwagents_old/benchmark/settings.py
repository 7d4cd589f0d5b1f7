"""Settings of the notebooks on the benchmark itself: data, profiles, baselines."""

from typing import Annotated

from pydantic import NonNegativeInt, PositiveInt

from pwagents.settings import Group, NotebookSettings, Players, S, player


class ProfileSettings(Group):
    """How profiles are made, and which are shown."""

    alpha: NonNegativeInt = S(
        15, "No interest clusters for histories of at most so many behaviours (Orion, 5.1: 15)."
    )
    l_c: PositiveInt = S(6, "Behaviours that a micro-profile is made from, at most (Orion, 5.1: 6).")
    max_tokens: PositiveInt = S(
        256,
        "Texts of items and instructions are cut to this many tokens before they are embedded (MiniLM: 256).",
    )
    example_user: NonNegativeInt = S(
        0,
        "The user to look at, by position among those with a search task, the ones with three clusters "
        "first.",
    )
    published_profiles: str = S(
        "data/personalwab/PersonalWAB/envs/pwab/data/user_profiles.json",
        "PersonalWAB's file of profiles, seen from the project's root; shown where it is there.",
    )


class ProfilePlayers(Players):
    """Who makes, updates and judges profiles: "offline" is statistics and rules, without a language model."""

    profiler: Annotated[str, player("offline")] = S("offline", "Writes profiles (both papers: gpt-4o-mini).")
    updater: Annotated[str, player("offline")] = S(
        "offline", "Updates contextual profiles during a conversation."
    )
    writer: Annotated[str, player("offline")] = S("offline", "Writes instructions from profiles.")
    judge: Annotated[str, player("offline")] = S(
        "offline",
        "Judges whether profiles agree with behaviour (PersonalWAB: gpt-4o-mini); offline: MiniLM "
        "embeddings.",
    )


class ProfilesNotebook(NotebookSettings):
    """Notebook 02."""

    players: ProfilePlayers
    profiles: ProfileSettings
