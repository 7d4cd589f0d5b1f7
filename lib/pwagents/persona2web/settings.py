"""Settings of Persona2Web's histories and tasks; the defaults are the paper's where it gives them."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from pwagents.settings import Share, settings


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
