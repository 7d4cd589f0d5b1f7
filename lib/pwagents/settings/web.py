"""Settings of notebook 09."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from pwagents.settings.group import Group, Players, S, Share, Shares, player, project_path
from pwagents.settings.shared import NotebookSettings


class HistorySettings(Group):
    """Browsing histories made offline: how much there is, and how hard preferences are to find in them."""

    n_users: PositiveInt = S(50, "Users. Persona2Web: 50.")
    records: PositiveInt = S(2051, "Records of a user, give or take a tenth. Persona2Web: 102,568 in all.")
    n_domains: Annotated[int, Field(ge=2, le=21)] = S(
        6, "Sub-domains of a user, of 21; half have few events."
    )
    consistency: Share = S(0.62, "Probability that a record shows the preferred value of a facet.")
    site_share: Share = S(0.55, "Probability that an event is on the preferred of a domain's three sites.")
    drift: Share = S(0.35, "Share of preferences against which the last three weeks speak: recency misleads.")
    literal: Share = S(0.0356, "Share of records that name a preferred value as it is. Persona2Web: 3.56%.")


class QuerySettings(Group):
    """Web tasks made of preferences."""

    tasks_per_user: PositiveInt = S(3, "Tasks of a user, each in another sub-domain. Persona2Web: 3.")


class WebDataSettings(Group):
    """Where users, histories and websites come from, and files of the authors to look at."""

    # The authors' histories can be read, but came without the truth to score by.
    source: Literal["synthetic"] = S(..., "synthetic: made here.")
    data_dir: str = S("", "Folder with the authors' queries.jsonl, to look at; empty: none is.")

    @field_validator("data_dir")
    @classmethod
    def _check_files(cls, folder: str) -> str:
        if folder and not (project_path(folder) / "queries.jsonl").exists():
            raise ValueError(f"data_dir {folder!r} holds no queries.jsonl")
        return folder


class WebPlayers(Players):
    """Who plays and judges beside the offline agent, truth and rules; offline: nobody."""

    policy: Annotated[str, player("offline")] = S("offline", "A language model that plays (paper: five).")
    judge: Annotated[str, player("offline")] = S(
        "offline", "A language model that judges (paper: GPT-5-mini)."
    )


class Dials(Group):
    """Values of what makes preferences hard to find, each tried with all others as in `histories`."""

    consistency: Shares = S(..., "Of how often records show the preferred value.")
    site_share: Shares = S(..., "Of how often events are on the preferred site.")
    drift: Shares = S(..., "Of the share of preferences against which the last weeks speak.")
    literal: Shares = S(..., "Of the share of records that name a preferred value.")


class WebStudySettings(Group):
    """What is played."""

    driver: Literal["html", "chromium"] = S("html", "html: without a browser, reading the same pages.")
    chromium_tasks: NonNegativeInt = S(20, "Tasks that are played once more in Chromium, where it is found.")
    max_tokens: PositiveInt = S(64, "Tokens of a record or question that are embedded (MiniLM: 256).")
    runs: PositiveInt = S(3, "Runs of the same episodes while pages fail. Persona2Web: 3, on the open web.")
    judged_tasks: PositiveInt = S(50, "Tasks on which judges are compared, ten scripted episodes each.")
    dials: Dials


class WebNotebook(NotebookSettings):
    """Notebook 09."""

    data: WebDataSettings
    histories: HistorySettings
    queries: QuerySettings
    players: WebPlayers
    study: WebStudySettings
