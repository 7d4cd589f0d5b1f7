"""Settings of notebook 09; the defaults are the paper's where it gives them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from pwagents_old.llm.settings import Players, player
from pwagents_old.notebook.settings import NotebookSettings
from pwagents_old.project import project_path
from pwagents_old.settings import Share, Shares, settings


@settings
class HistorySettings:
    """Browsing histories made offline: how much there is, and how hard preferences are to find in them."""

    n_users: PositiveInt = 50
    """Users. Persona2Web: 50."""
    records: PositiveInt = 2051
    """Records of a user's year, give or take a tenth. Persona2Web: 102,568 in all."""
    n_domains: Annotated[int, Field(ge=2, le=21)] = 6
    """Sub-domains of a user, of 21; half of them have many events, half few."""
    consistency: Share = 0.62
    """Probability that a record shows the preferred value of a facet, and not another one."""
    site_share: Share = 0.55
    """Probability that an event is on the preferred site, not on another of the sub-domain's three."""
    noise: Share = 0.1
    """Share of records that are changes or cancellations of what is not preferred. Persona2Web: ~10%."""
    drift: Share = 0.35
    """Share of preferences against which the last three weeks speak, so that recency alone misleads."""
    literal: Share = 0.0356
    """Share of all records that name, as an exact string, a value which their user prefers in the record's
    sub-domain. Persona2Web: 3.56%; of what, it does not say."""


@settings
class QuerySettings:
    """Web tasks made of preferences."""

    tasks_per_user: PositiveInt = 3
    """Tasks of a user, each in another sub-domain. Persona2Web: 3."""
    form: Literal["paper", "released"] = "paper"
    """How texts at levels 1 and 2 speak of the website. paper: "on my preferred website"; released: none."""


@settings
class RetrievalSettings:
    """What of a history an access to it finds."""

    retriever: Literal["minilm", "bm25"] = "minilm"
    """minilm: by cosine of embeddings, as published; bm25: by words."""
    top: PositiveInt = 20
    """Records that are found, at most. Persona2Web: 20."""
    least: Share = 0.5
    """Cosine that a record must reach (minilm). Persona2Web's code: .5."""


@settings
class WebDataSettings:
    """Where users, histories and websites come from, and files of the authors to look at."""

    source: Literal["synthetic"]
    """synthetic: made here. The authors' histories can be read, but came without the truth to score by."""

    data_dir: str = ""
    """Folder with the authors' queries.jsonl, seen from the project's root; empty: none is looked at."""

    @property
    def told(self) -> str:
        """What tables call the data."""
        return "embedded web"

    def require_files(self) -> None:
        """Do nothing where the file is there, or where none is named.

        Raises:
            ValueError: one line that names ``data_dir`` and the file that was expected there.
        """
        if self.data_dir and not (project_path(Path(self.data_dir).expanduser()) / "queries.jsonl").exists():
            raise ValueError(f"data_dir {self.data_dir!r} holds no queries.jsonl")


@settings
class WebPlayers(Players):
    """Who plays the agent, and who judges."""

    policy: Annotated[str, player("offline")] = "offline"
    """A language model that plays beside the offline agent (the paper has five); offline: none."""

    judge: Annotated[str, player("offline")] = "offline"
    """A language model that judges beside truth and rules (paper: GPT-5-mini); offline: none."""


@settings
class Dials:
    """Values of what makes preferences hard to find, each tried with all others as in `histories`."""

    consistency: Shares
    """Of how often records show the preferred value."""

    site_share: Shares
    """Of how often events are on the preferred site."""

    drift: Shares
    """Of the share of preferences against which the last weeks speak."""

    literal: Shares
    """Of the share of records that name a preferred value."""


@settings
class WebStudySettings:
    """What is played."""

    driver: Literal["html", "chromium"] = "html"
    """html: all episodes without a browser, which reads the same pages; chromium: with one."""

    chromium_tasks: NonNegativeInt = 20
    """Tasks that are played once more in Chromium, where it is found."""

    max_tokens: PositiveInt = 64
    """Records and questions are cut to this many tokens before they are embedded (MiniLM: 256)."""

    runs: PositiveInt = 3
    """Runs of the same episodes while pages fail. Persona2Web: 3, on the open web."""

    faults: Share = 0.05
    """Share of requests that fail or come too late in these runs."""

    judged_tasks: PositiveInt = 50
    """Tasks on which judges are compared, ten scripted episodes each."""

    dials: Dials
    """Values of the difficulty dials."""

    example_task: NonNegativeInt = 0
    """The task to look at, by position."""


@settings
class WebNotebook(NotebookSettings):
    """Notebook 09."""

    data: WebDataSettings
    """Where users, histories and websites come from."""

    histories: HistorySettings
    """How much histories hold, and how hard preferences are to find in them."""

    queries: QuerySettings
    """How tasks are made of preferences."""

    players: WebPlayers
    """Who plays the agent, and who judges."""

    study: WebStudySettings
    """What is played."""
