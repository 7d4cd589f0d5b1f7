"""Browsing histories by a language model, in the paper's four stages, with the types of the offline form.

Who a user is; what the user prefers in each sub-domain, out of what its sites offer; seeds of events of high
and of low frequency; and each seed taken apart into actions. The prompts are our own, for the paper's were
not released. What is drawn offline is drawn here too, from a seed, for models repeat themselves in it: ids,
times, sites, the values that an event shows, noise, and which records name a value. The model writes the
rest.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import Result, ask_twice, read_reply
from pwagents.persona2web.world.domains import domains, value_text, values_pattern
from pwagents.persona2web.world.history import (
    NOISE,
    Draft,
    History,
    Person,
    Shown,
    draw_lately,
    event_begin,
    name_values,
    noise,
    put_together,
    value_shown,
    values_of,
)
from pwagents.persona2web.world.types import WEBSITE, EventType, Value
from pwagents.schema import Text
from pwagents.seeds import derive_seed, rng
from pwagents.settings import HistorySettings
from pwagents.words import read_yaml

_SAMPLING = {"temperature": 1.0, "max_tokens": 1500}
_SEEDS = 20  # at once
_ACTIONS = 4  # of a seed, about
_HOUR = 60 * 60 * 1000


class PersonReply(BaseModel):
    age: Annotated[int, Field(ge=16, le=110)]
    occupation: Annotated[Text, Field(max_length=100)]
    domains: tuple[Text, ...]


class WantsReply(BaseModel):
    """Options by the names of facets, and by "website"."""

    model_config = ConfigDict(extra="allow")


class SeedsReply(BaseModel):
    seeds: Annotated[tuple[Text, ...], Field(min_length=1)]


class Action(BaseModel):
    type: EventType
    object: Text
    shows: str = ""


class ActionsReply(BaseModel):
    records: Annotated[tuple[Action, ...], Field(min_length=1, max_length=12)]


@dataclass(frozen=True)
class Event:
    """What a user did once.

    Attributes:
        seed: the model's sentence about it.
        time: of its end, ms since 1970.
        shows: values by facet, of which its records may show one each.
    """

    person: Person
    domain: str
    seed: str
    time: int
    website: str
    shows: dict[str, Value]


class LlmHistorian:
    """Writes histories with a language model.

    A reply that cannot be used is sent back once with what is wrong. What still cannot is left out: a user, a
    sub-domain, an event.

    Args:
        seed: of all that is drawn, and of which of the model's replies is taken.

    Attributes:
        failures: "repaired" (usable at the second try), "unreadable", "refused" (by the model or its
            provider).
    """

    def __init__(self, model: ChatModel, settings: HistorySettings, seed: int):
        self.model, self.settings, self.seed = model, settings, seed
        self.failures: Counter[str] = Counter()

    def histories(self) -> dict[str, History]:
        """User id -> history. Fewer users than set where replies could not be used.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        people = self._people()
        events = self._events(people)
        types = ", ".join(EventType.__args__[:-1])
        prompts = [
            _prompt("records", item=_item(e.domain), seed=fence(e.seed), shows=_as_json(e.shows), types=types)
            for e in events
        ]
        reads = [lambda reply, event=event: _actions(reply, event) for event in events]
        replies = self._ask(prompts, reads, "histories: records")
        written: dict[str, list[tuple[Event, tuple[Action, ...]]]] = {p.user_id: [] for p in people}
        for event, actions in zip(events, replies, strict=True):
            if actions:
                written[event.person.user_id].append((event, actions))
        return {p.user_id: self._history(p, written[p.user_id]) for p in people if written[p.user_id]}

    def _people(self) -> list[Person]:
        """The first two stages: who the users are, and what they prefer."""
        n, n_users = self.settings.n_domains, self.settings.n_users
        prompts = [_prompt("person", n=n, domains=", ".join(domains()))] * n_users
        drawn = self._ask(prompts, [lambda reply: _person(reply, n)] * n_users, "histories: users")
        said = {f"user_{i:02d}": reply for i, reply in enumerate(drawn) if reply}
        asked = [(user, domain) for user, reply in said.items() for domain in reply.domains]
        prompts = [
            _prompt("wants", **_who(said[user]), item=_item(domain), options=json.dumps(_options(domain)))
            for user, domain in asked
        ]
        reads = [lambda reply, name=domain: _wants(reply, name) for _, domain in asked]
        wants: dict[str, dict[tuple[str, str], Value]] = {user: {} for user in said}
        for (user, _), found in zip(asked, self._ask(prompts, reads, "histories: preferences"), strict=True):
            wants[user] |= found or {}
        kept = [user for user in said if wants[user]]
        return [self._person(user, said[user], wants[user], i % 2) for i, user in enumerate(kept)]

    def _person(
        self, user_id: str, said: PersonReply, wants: dict[tuple[str, str], Value], group: int
    ) -> Person:
        """A user, without the sub-domains in which no preferences could be had."""
        chosen = tuple(name for name in said.domains if (name, WEBSITE) in wants)
        often = (len(chosen) + 1) // 2
        return Person(
            user_id=user_id,
            age=said.age,
            occupation=said.occupation,
            home=0,
            means=1,
            often=chosen[:often],
            seldom=chosen[often:],
            wants=wants,
            lately=draw_lately(wants, self.settings.drift, rng(self.seed, "llm lately", user_id)),
            group=group,
        )

    def _events(self, people: Sequence[Person]) -> list[Event]:
        """The third stage: seeds by the model, and when, where and with which values each happened."""
        asked, prompts = [], []
        for person in people:
            each = self.settings.records / _ACTIONS / (3 * len(person.often) + len(person.seldom))
            for domain in person.domains:
                often = domain in person.often
                left, frequency = max(round(each * (3 if often else 1)), 1), "high" if often else "low"
                while left > 0:
                    n, left = min(left, _SEEDS), left - _SEEDS
                    told = _who(person) | {"item": _item(domain), "n": n, "frequency": frequency}
                    prompts.append(_prompt("seeds", **told))
                    asked.append((person, domain, n))
        read = [lambda reply: read_reply(reply, SeedsReply)] * len(asked)
        replies = self._ask(prompts, read, "histories: events")
        generators = {p.user_id: rng(self.seed, "llm events", p.user_id) for p in people}
        return [
            self._event(person, domain, seed, generators[person.user_id])
            for (person, domain, n), reply in zip(asked, replies, strict=True)
            for seed in (reply.seeds[:n] if reply else ())
        ]

    def _event(self, person: Person, domain: str, seed: str, generator: np.random.Generator) -> Event:
        time, lately, website = event_begin(person, domain, self.settings, generator)
        facets = domains()[domain].facets
        chosen = generator.permutation(len(facets))[: generator.integers(2, 5)]
        shows = {
            name: value_shown(person, domain, name, self.settings.consistency, lately, generator)
            for name in (facets[place].name for place in chosen)
        }
        return Event(person, domain, seed, time, website, shows)

    def _history(self, person: Person, written: Sequence[tuple[Event, tuple[Action, ...]]]) -> History:
        generator = rng(self.seed, "llm records", person.user_id)
        drafts = [draft for each in written for draft in self._drafts(*each, generator)]
        return put_together(person, name_values(drafts, person, self.settings.literal, generator))

    def _drafts(
        self, event: Event, actions: Sequence[Action], generator: np.random.Generator
    ) -> Iterator[Draft]:
        """Records of one event; some of them are noise instead of what the model wrote."""
        domain, site = event.domain, event.website
        hours = np.sort(generator.random(len(actions))) * 60 - 60  # before and up to the event's time
        for hour, action in zip(hours, actions, strict=True):
            at = event.time + int(hour * _HOUR)
            if generator.random() < NOISE:
                facet = list(event.shows)[generator.integers(len(event.shows))]
                yield noise(event.person, domain, facet, at, site, generator)
            else:
                facet = action.shows if action.shows in event.shows else ""
                shown = Shown(domain, facet, event.shows.get(facet, ""))
                yield Draft(at, action.type, action.object, site, shown)

    def _ask(
        self, prompts: Sequence[str], reads: Sequence[Callable[[Reply], Result]], what: str
    ) -> list[Result | None]:
        """Of equal prompts, each gets another sample; the first is given by the seed."""
        first, seen, requests = derive_seed(self.seed, "llm history") % 1_000_000, Counter(), []
        for prompt in prompts:
            messages = ({"role": "system", "content": FENCE_NOTE}, {"role": "user", "content": prompt})
            requests.append(Request(messages=messages, sampling=_SAMPLING, sample=first + seen[prompt]))
            seen[prompt] += 1
        return ask_twice(self.model, requests, reads, what, self.failures)


def _person(reply: Reply, n: int) -> PersonReply:
    """Who a user is, with ``n`` known sub-domains."""
    said = read_reply(reply, PersonReply)
    known = tuple(dict.fromkeys(name for name in said.domains if name in domains()))[:n]
    if len(known) < n:
        raise ValueError(f"domains: {len(known)} known ones; expected {n} of {', '.join(domains())}")
    return said.model_copy(update={"domains": known})


def _wants(reply: Reply, domain: str) -> dict[tuple[str, str], Value]:
    said, wants = read_reply(reply, WantsReply).model_extra, {}
    for name, options in _options(domain).items():
        given = str(said.get(name))
        if given not in options:
            raise ValueError(f"{name} is {given[:60]!r}; expected one of {', '.join(options)}")
        wants[domain, name] = values_of(domain, name)[options.index(given)]
    return wants


def _actions(reply: Reply, event: Event) -> tuple[Action, ...]:
    """The records of an event, none of which names a value that it shows, or one that the user prefers."""
    records = read_reply(reply, ActionsReply).records
    wanted = {facet: value for (domain, facet), value in event.person.wants.items() if domain == event.domain}
    wanted.pop(WEBSITE)
    named = values_pattern((*event.shows.values(), *wanted.values()))
    for i, action in enumerate(records):
        if found := named.search(action.object):
            raise ValueError(f"records.{i}.object: holds the words of an option, {found[0]!r}")
    return records


def _options(domain: str) -> dict[str, list[str]]:
    names = [WEBSITE, *(facet.name for facet in domains()[domain].facets)]
    return {name: [value_text(value) for value in values_of(domain, name)] for name in names}


def _prompt(name: str, **filled: Any) -> str:
    """A prompt of ``history_llm.yaml``."""
    return read_yaml(__package__, "history_llm.yaml")[name].format(**filled)


def _who(person: Person | PersonReply) -> dict[str, Any]:
    return {"age": person.age, "occupation": fence(person.occupation)}


def _item(domain: str) -> str:
    return domains()[domain].item


def _as_json(shows: dict[str, Value]) -> str:
    return json.dumps({name: value_text(value) for name, value in shows.items()})
