"""The vocabulary of Persona2Web: sites, browsing histories, web tasks, what agents do and what sites see.

What an agent may see (texts, histories, pages) stands apart from the truth (:class:`Goal`,
:class:`Preference`), which only generators, programmatic judges and oracles read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from pwagents.schema import Record, Text, Usage

WEBSITE = "website"  # stands for a facet where it is the site that is preferred
PORTAL = "start.test"  # where every episode begins: it lists and searches the sites
Value = str | float  # of a facet: a word, or a number (dollars, stars, hour of the day)
FacetKind = Literal["choice", "cap", "floor", "window"]
Operation = Literal["search", "cart", "booking", "lookup", "compare"]
# The last is the released files' word for a review.
EventType = Literal["web search", "web visit", "purchase", "booking", "review", "review and rating"]
Level = Literal[0, 1, 2]
Scheme = Literal["none", "on_demand", "pre_execution"]
Architecture = Literal["occam", "indexed"]


def value_text(value: Value) -> str:
    """Return a value as pages and texts show it: numbers without needless zeros."""
    return value if isinstance(value, str) else f"{value:g}"


class Facet(Record):
    """A property that items of a domain have and sites filter by.

    Attributes:
        kind: how a wanted value is met. choice: the item's is equal; cap: at most; floor: at least; window:
            the item's hour lies in the part of the day that the value names.
        values: what a user may want, in the order sites list them.
        evidence: by value, as text, at least six phrases of records that point to it and do not contain it.
        labels: what sites call it; those of one template differ.
        stated, usual: how a query names a value ("under ${}"), and how it leaves it out.
    """

    name: Text
    kind: FacetKind
    values: tuple[Value, ...]
    evidence: dict[str, tuple[str, ...]]
    labels: tuple[Text, ...]
    stated: Text
    usual: Text

    def state(self, value: Value) -> str:
        """Return how a query names a value."""
        return self.stated.format(value_text(value))


class Domain(Record):
    """A sub-domain, such as flights: what its items are called and how they are told apart, who sells them.

    ``fact`` is what a look-up asks of an item ("calories"), which is no facet; empty without look-ups. Each
    of the three ``hosts`` may serve other sub-domains as well.
    """

    name: Text
    item: Text
    operations: tuple[Operation, ...]
    fact: str
    facets: tuple[Facet, ...]
    hosts: tuple[Text, ...]


class Item(Record):
    """What a site offers, with a value for each facet of its domain (for a window: the hour)."""

    item_id: Text
    host: Text
    domain: Text
    title: Text
    values: dict[str, Value]
    fact: str = ""  # what a look-up asks for


class Site(Record):
    """A website; ``labels`` is what it calls facets. Sites of a template differ in ``skin``."""

    host: Text
    name: Text
    domains: tuple[Text, ...]
    template: Text
    skin: Text
    labels: dict[str, str]
    items: tuple[Item, ...]


class BrowsingEvent(Record):
    """One record of a browsing history, as the authors release them, with an id of our own."""

    event_id: Text
    timestamp: Annotated[int, Field(gt=0)]  # milliseconds since 1970
    type: EventType
    object: str
    website: str


class Preference(Record):
    """Truth: which value (of "website": which host) a user wants, and the ids of records that show it."""

    user_id: Text
    domain: Text
    facet: Text
    value: Value
    support: tuple[str, ...]


@dataclass(frozen=True)
class Truth:
    """The ids of the records that support each preference: by user, domain, and facet or "website"."""

    support: Mapping[tuple[str, str, str], frozenset[str]]

    @classmethod
    def of(cls, preferences: Iterable[Preference]) -> "Truth":
        """Return what supports each of these preferences."""
        return cls({(p.user_id, p.domain, p.facet): frozenset(p.support) for p in preferences})


class Goal(Record):
    """Truth: what a task comes to. ``stated`` and ``masked`` are wanted values by facet."""

    domain: Text
    host: Text
    operation: Operation
    stated: dict[str, Value]
    masked: dict[str, Value]


class WebTask(Record):
    """A query at three levels of ambiguity, and the goal, which no agent may see.

    Level 0 names everything, 1 leaves out the website, 2 the masked values as well.
    """

    task_id: Text
    user_id: Text
    now: Annotated[int, Field(gt=0)]  # ms since 1970; the history ends before
    texts: dict[Level, Text]
    goal: Goal

    def left_out(self, level: Level) -> set[str]:
        """Return what a level's text leaves out: facets, and "website"."""
        return (set(self.goal.masked) if level == 2 else set()) | ({WEBSITE} if level >= 1 else set())


class Request(Record):
    """The server's log: one request of a session, and what it came to.

    Attributes:
        domain: the sub-domain that was searched or whose item it was about.
        applied: wanted values by facet that the page was filtered by.
        shown: ids of the items listed or opened, in the page's order.
        operation: what it did (an item put into the cart, a booking drafted); empty if it only read.
    """

    host: Text
    path: str
    params: dict[str, str]
    status: int
    domain: str = ""
    applied: dict[str, Value] = Field(default_factory=dict)
    shown: tuple[str, ...] = ()
    operation: Operation | Literal[""] = ""
    item_id: str = ""


class MemoryStep(Record):
    """An access to the history: the question, the records it found (ids), the answer that was read."""

    kind: Literal["memory"] = "memory"
    query: str
    retrieved: tuple[str, ...]
    answer: str
    reason: str = ""
    usage: Usage = Usage()  # of all calls that it took


class WebStep(Record):
    """A step on the web: what was seen, why what was done, and what came of it.

    Attributes:
        action: such as ``click [12]``, as the model wrote it; several that were tried one after the other are
            a line each, a reply of which nothing was done is one line.
        error: why the last line could not be carried out; empty if it could.
    """

    kind: Literal["web"] = "web"
    observation: str
    reason: str = ""
    action: str
    error: str = ""
    usage: Usage = Usage()


Step = MemoryStep | WebStep


class WebTrajectory(Record):
    """An episode: the agent's steps, its answer, and (truth, for programmatic judges alone) the server's log.

    Attributes:
        rewritten: the query as a pre-execution agent rewrote it; empty for others.
        site_fault: whether a page failed or timed out, which is no fault of the agent's.
        reached: truth: whether the session's state at the end was the goal.
        intended: truth: the same for the stated constraints alone, on any site of the domain.
    """

    task_id: Text
    level: Level
    scheme: Scheme
    architecture: Architecture
    rewritten: str = ""
    steps: tuple[Annotated[Step, Field(discriminator="kind")], ...]
    answer: str = ""
    requests: tuple[Request, ...] = ()
    site_fault: bool = False
    reached: bool = False
    intended: bool = False
