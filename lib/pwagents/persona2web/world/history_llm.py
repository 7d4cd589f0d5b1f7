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
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import Result, ask_twice, read_reply
from pwagents.persona2web.world import history
from pwagents.persona2web.world.domains import domains, values_pattern
from pwagents.persona2web.world.history import Draft, History, Person, Shown, Year, values_of
from pwagents.persona2web.world.types import WEBSITE, EventType, Value, value_text
from pwagents.schema import Text
from pwagents.seeds import derive_seed, rng
from pwagents.settings import HistorySettings
from pwagents.words import read_yaml

_SEEDS = 20  # at once
_ACTIONS = 4  # of a seed, about


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
    """What a user did once: the model's sentence (``seed``), and values by facet, which records may show."""

    person: Person
    domain: str
    seed: str
    time: int
    website: str
    shows: dict[str, Value]


class LlmHistorian:
    """Writes histories with a language model.

    A reply that cannot be used is sent back once with what is wrong. What still cannot is left out: a user, a
    sub-domain, an event. ``failures`` counts "repaired" (usable at the second try), "unreadable" and
    "refused".
    """

    def __init__(self, model: ChatModel, settings: HistorySettings, seed: int):
        self.model, self.settings, self.seed = model, settings, seed
        self.failures: Counter[str] = Counter()

    def histories(self) -> dict[str, History]:
        """Return histories by user id; fewer users than set if replies could not be used."""
        types, drafts, asked = ", ".join(EventType.__args__[:-1]), {}, []
        years = {person.user_id: self._year(person, "llm records") for person in self._people()}
        for event in self._events([year.person for year in years.values()]):
            shows = json.dumps({name: value_text(value) for name, value in event.shows.items()})
            about = {"item": domains()[event.domain].item, "seed": fence(event.seed), "shows": shows}
            asked.append((event, partial(_actions, event=event), about | {"types": types}))
        for event, actions in self._ask("records", asked):
            user = event.person.user_id
            drafts.setdefault(user, []).extend(_drafts(event, actions, years[user]))
        return {user: year.history(drafts[user]) for user, year in years.items() if user in drafts}

    def _year(self, person: Person, purpose: str) -> Year:
        return Year(person, self.settings, rng(self.seed, purpose, person.user_id))

    def _people(self) -> list[Person]:
        """Return users: who they are, and what they prefer; without sub-domains that were not answered."""
        n, listed = self.settings.n_domains, ", ".join(domains())
        read = partial(_person, n=n)
        asked = [(i, read, {"n": n, "domains": listed}) for i in range(self.settings.n_users)]
        said = {f"user_{i:02d}": reply for i, reply in self._ask("person", asked)}
        asked = []
        for user, reply in said.items():
            for domain in reply.domains:
                options = json.dumps(_options(domain))
                about = _who(reply) | {"item": domains()[domain].item, "options": options}
                asked.append((user, partial(_wants, domain=domain), about))
        wants: dict[str, dict[tuple[str, str], Value]] = {}
        for user, found in self._ask("wants", asked):
            wants.setdefault(user, {}).update(found)
        people = []
        for group, user in enumerate(user for user in said if user in wants):
            chosen = tuple(name for name in said[user].domains if (name, WEBSITE) in wants[user])
            often = (len(chosen) + 1) // 2
            generator = rng(self.seed, "llm lately", user)
            lately = history.draw_lately(wants[user], self.settings.drift, generator)
            who = (user, said[user].age, said[user].occupation, chosen[:often], chosen[often:])
            people.append(Person(*who, wants[user], lately, group % 2))
        return people

    def _events(self, people: Sequence[Person]) -> list[Event]:
        """Return seeds by the model, with when, where and with which values each happened."""
        asked = []
        for person in people:
            each = self.settings.records / _ACTIONS / (3 * len(person.often) + len(person.seldom))
            for domain in person.domains:
                often = domain in person.often
                left, frequency = max(round(each * (3 if often else 1)), 1), "high" if often else "low"
                while left > 0:
                    n, left = min(left, _SEEDS), left - _SEEDS
                    about = _who(person) | {"item": domains()[domain].item, "n": n, "frequency": frequency}
                    asked.append(((person, domain, n), partial(read_reply, form=SeedsReply), about))
        years, events = {p.user_id: self._year(p, "llm events") for p in people}, []
        for (person, domain, n), reply in self._ask("seeds", asked):
            year = years[person.user_id]
            for seed in reply.seeds[:n]:
                time, lately, website = year.begin(domain)
                shows = {name: year.value(domain, name, lately) for name in year.facets(domain)}
                events.append(Event(person, domain, seed, time, website, shows))
        return events

    def _ask(
        self, stage: str, asked: Sequence[tuple[Any, Callable[[Reply], Result], dict[str, Any]]]
    ) -> Iterator[tuple[Any, Result]]:
        """Yield what each reply of a stage is about, and the reply; those that cannot be used are left out.

        Of equal prompts, each gets another sample; the first is given by the seed. ``asked``: what it is
        about, how the reply is read, and what fills the stage's prompt.
        """
        form = read_yaml(__package__, "history_llm.yaml")[stage]
        first, seen, requests = derive_seed(self.seed, "llm history") % 1_000_000, Counter(), []
        for _, _, about in asked:
            prompt = form.format(**about)
            messages = ({"role": "system", "content": FENCE_NOTE}, {"role": "user", "content": prompt})
            sampling = {"temperature": 1.0, "max_tokens": 1500}
            requests.append(Request(messages=messages, sampling=sampling, sample=first + seen[prompt]))
            seen[prompt] += 1
        reads = [read for _, read, _ in asked]
        replies = ask_twice(self.model, requests, reads, f"histories: {stage}", self.failures)
        for (about, _, _), reply in zip(asked, replies, strict=True):
            if reply:
                yield about, reply


def _drafts(event: Event, actions: Sequence[Action], year: Year) -> Iterator[Draft]:
    """Yield records of one event; some of them are noise instead of what the model wrote."""
    generator = year.generator
    hours = np.sort(generator.random(len(actions))) * 60 - 60  # before and up to the event's time
    for hour, action in zip(hours, actions, strict=True):
        at = event.time + int(hour * history.HOUR)
        if generator.random() < history.NOISE:
            facet = list(event.shows)[generator.integers(len(event.shows))]
            yield year.noise(event.domain, facet, at, event.website)
        else:
            facet = action.shows if action.shows in event.shows else ""
            shown = Shown(event.domain, facet, event.shows.get(facet, ""))
            yield Draft(at, action.type, action.object, event.website, shown)


def _person(reply: Reply, n: int) -> PersonReply:
    """Return who a user is, with ``n`` known sub-domains."""
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
    """Return the records of an event, none of which names a value that it shows or that the user prefers."""
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


def _who(person: Person | PersonReply) -> dict[str, Any]:
    return {"age": person.age, "occupation": fence(person.occupation)}
