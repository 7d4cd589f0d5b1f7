"""Settings of the notebooks on the benchmark itself: data, profiles, baselines."""

from typing import Annotated

from pydantic import NonNegativeInt, PositiveInt

from pwagents.llm.settings import Players, player
from pwagents.notebook.settings import NotebookSettings
from pwagents.settings import settings


@settings
class ShowSettings:
    """What is shown to be read."""

    example_user: NonNegativeInt = 0
    """The user to look at, by position among all users."""

    rows: PositiveInt = 8
    """Behaviours and instructions of that user, at most."""


@settings
class DataNotebook(NotebookSettings):
    """Notebook 01."""

    show: ShowSettings
    """What is shown to be read."""


@settings
class ProfileSettings:
    """How profiles are made, and which are shown."""

    alpha: NonNegativeInt = 15
    """No interest clusters for histories of at most so many behaviours (Orion, 5.1: 15)."""

    l_c: PositiveInt = 6
    """Behaviours that a micro-profile is made from, at most (Orion, 5.1: 6)."""

    max_tokens: PositiveInt = 256
    """Texts of items and instructions are cut to this many tokens before they are embedded (MiniLM: 256)."""

    example_user: NonNegativeInt = 0
    """The user to look at, by position among those with a search task, the ones with three clusters first."""

    published_profiles: str = "data/personalwab/user_profiles.json"
    """PersonalWAB's file of profiles, seen from the project's root; shown where it is there."""


@settings
class ProfilePlayers(Players):
    """Who makes, updates and judges profiles: "offline" is statistics and rules, without a language model."""

    profiler: Annotated[str, player("offline")] = "offline"
    """Writes profiles (both papers: gpt-4o-mini)."""

    updater: Annotated[str, player("offline")] = "offline"
    """Updates contextual profiles during a conversation."""

    writer: Annotated[str, player("offline")] = "offline"
    """Writes instructions from profiles."""

    judge: Annotated[str, player("offline")] = "offline"
    """Judges whether profiles agree with behaviour (PersonalWAB: gpt-4o-mini); offline: MiniLM embeddings."""


@settings
class ProfilesNotebook(NotebookSettings):
    """Notebook 02."""

    players: ProfilePlayers
    """Who plays which role."""

    profiles: ProfileSettings
    """How profiles are made, and which are shown."""
