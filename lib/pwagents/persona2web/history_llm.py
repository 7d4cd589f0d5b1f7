"""Browsing histories by a language model, in the paper's four stages, with the types of the offline form.

Who a user is; what the user prefers in each sub-domain, out of what its sites offer; seeds of events of high
and of low frequency; and each seed taken apart into actions. The prompts are our own, for the paper's were
not released. Times, ids and noise are drawn here, from a seed: models repeat themselves in them.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pwagents.llm.chat import ChatModel
from pwagents.persona2web.domains import domains, value_text
from pwagents.persona2web.history import NOW, History, Shown
from pwagents.persona2web.history_replies import Read, Result, ask_objects, prompt
from pwagents.persona2web.people import WEBSITE, Person, values_of
from pwagents.persona2web.settings import HistorySettings
from pwagents.persona2web.types import BrowsingEvent, EventType, Value
from pwagents.schema import Record, Text
from pwagents.seeds import rng

_SEEDS = 20  # at once
_ACTIONS = 4  # of a seed, about
_HOUR = 60 * 60 * 1000
_YEAR = 365 * 24


class _PersonReply(Record):
    name: Text
    age: Annotated[int, Field(ge=16, le=110)]
    occupation: Text
    domains: tuple[Text, ...]


class _SeedsReply(Record):
    seeds: Annotated[tuple[Text, ...], Field(min_length=1)]


class _Action(Record):
    type: EventType
    object: Text
    shows: str = ""


class _ActionsReply(Record):
    records: Annotated[tuple[_Action, ...], Field(min_length=1, max_length=12)]


class LlmHistorian:
    """Writes histories with a language model.

    A reply that cannot be used is sent back once with what is wrong. What still cannot is left out: a user, a
    sub-domain, an event.

    Attributes:
        failures: "repaired" (usable at the second try), "unusable", "refused" (by the model or its provider).
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
        seeds = self._event_seeds(people)
        types = ", ".join(EventType.__args__)
        prompts = [
            prompt("records", **_told(person, domain), seed=seed, types=types)
            for person, domain, seed in seeds
        ]
        replies = self._ask(prompts, [_actions] * len(seeds), "histories: records")
        found: dict[str, list[tuple[str, tuple[_Action, ...]]]] = {person.user_id: [] for person in people}
        for (person, domain, _), actions in zip(seeds, replies, strict=True):
            if actions:
                found[person.user_id].append((domain, actions))
        return {
            person.user_id: self._history(person, found[person.user_id])
            for person in people
            if found[person.user_id]
        }

    def _people(self) -> list[Person]:
        """The first two stages: who the users are, and what they prefer."""
        n = self.settings.n_domains
        prompts = [prompt("person", n=n, domains=", ".join(domains()))] * self.settings.n_users
        reads = [lambda data: _person(data, n)] * self.settings.n_users
        drawn = self._ask(prompts, reads, "histories: users")
        people = {person.user_id: person for person in drawn if person}
        asked = [(person, domain) for person in people.values() for domain in person.domains]
        prompts = [
            prompt(
                "wants",
                person=_who(person),
                item=domains()[domain].item,
                options=json.dumps(_options(domain)),
            )
            for person, domain in asked
        ]
        reads = [lambda data, name=domain: _wants(data, name) for _, domain in asked]
        replies = self._ask(prompts, reads, "histories: preferences")
        for (person, _), wants in zip(asked, replies, strict=True):
            person.wants.update(wants or {})
        return [_with_known_domains(person) for person in people.values() if person.wants]

    def _event_seeds(self, people: Sequence[Person]) -> list[tuple[Person, str, str]]:
        asked, prompts = [], []
        for person in people:
            each = self.settings.records / _ACTIONS / (3 * len(person.often) + len(person.seldom))
            for domain in person.domains:
                often = domain in person.often
                left = max(round(each * (3 if often else 1)), 1)
                while left > 0:
                    n, left = min(left, _SEEDS), left - _SEEDS
                    frequency: Literal["high", "low"] = "high" if often else "low"
                    prompts.append(prompt("seeds", **_told(person, domain), n=n, frequency=frequency))
                    asked.append((person, domain))
        replies = self._ask(prompts, [_seeds] * len(asked), "histories: events")
        return [
            (person, domain, seed)
            for (person, domain), seeds in zip(asked, replies, strict=True)
            for seed in seeds or ()
        ]

    def _history(self, person: Person, events: Sequence[tuple[str, tuple[_Action, ...]]]) -> History:
        """Records over a year: each event at a random time, on the preferred site or not, some cancelled."""
        generator = rng(self.seed, "llm history", person.user_id)
        drafts = []
        for domain, actions in events:
            start = NOW - int(generator.uniform(4 * 24, _YEAR) * _HOUR)
            host = self._host(person, domain, generator)
            hours = np.sort(generator.uniform(0, 72, size=len(actions)))
            for hour, action in zip(hours, actions, strict=True):
                drafts.append(self._draft(person, domain, host, start + int(hour * _HOUR), action, generator))
        drafts.sort(key=lambda draft: (draft[0]["timestamp"], draft[0]["type"], draft[0]["object"]))
        records = [
            BrowsingEvent(event_id=f"{person.user_id}-{i:05d}", **fields)
            for i, (fields, _) in enumerate(drafts)
        ]
        truth = {event.event_id: shown for event, (_, shown) in zip(records, drafts, strict=True)}
        return History(person, tuple(records), truth)

    def _host(self, person: Person, domain: str, generator: np.random.Generator) -> str:
        wanted = str(person.wants[domain, WEBSITE])
        others = [host for host in domains()[domain].hosts if host != wanted]
        return (
            wanted
            if generator.random() < self.settings.site_share
            else others[generator.integers(len(others))]
        )

    def _draft(
        self,
        person: Person,
        domain: str,
        host: str,
        time: int,
        action: _Action,
        generator: np.random.Generator,
    ) -> tuple[dict[str, Any], Shown]:
        noise = bool(generator.random() < self.settings.noise)
        known = (domain, action.shows) in person.wants and action.shows != WEBSITE
        shown = Shown(
            domain,
            action.shows if known else "",
            person.wants[domain, action.shows] if known else "",
            noise=noise,
        )
        text = f"cancelled: {action.object}" if noise else action.object
        return {"timestamp": time, "type": action.type, "object": text, "website": host}, shown

    def _ask(self, prompts: Sequence[str], reads: Sequence[Read], what: str) -> list[Result | None]:
        return ask_objects(self.model, prompts, reads, what, self.failures)


def _seeds(data: dict[str, Any]) -> tuple[str, ...]:
    return _SeedsReply(**data).seeds


def _actions(data: dict[str, Any]) -> tuple[_Action, ...]:
    return _ActionsReply(**data).records


def _person(data: dict[str, Any], n: int) -> Person:
    reply = _PersonReply(**data)
    chosen = tuple(dict.fromkeys(name for name in reply.domains if name in domains()))[:n]
    if len(chosen) < n:
        raise ValueError(f"domains: {len(chosen)} known ones; expected {n} of {', '.join(domains())}")
    often = (n + 1) // 2
    return Person(
        user_id=reply.name.replace(" ", "_"),
        age=reply.age,
        occupation=reply.occupation,
        home=0,
        means=1,
        often=chosen[:often],
        seldom=chosen[often:],
        wants={},
        lately={},
        group=0,
    )


def _with_known_domains(person: Person) -> Person:
    """Without the sub-domains in which no preferences could be had."""
    known = {domain for domain, _ in person.wants}
    often, seldom = (tuple(d for d in part if d in known) for part in (person.often, person.seldom))
    return Person(**{**vars(person), "often": often, "seldom": seldom})


def _wants(data: dict[str, Any], domain: str) -> dict[tuple[str, str], Value]:
    wants = {}
    for name, options in _options(domain).items():
        given = str(data.get(name))
        if given not in options:
            raise ValueError(f"{name} is {given!r}; expected one of {', '.join(options)}")
        wants[domain, name] = values_of(domain, name)[options.index(given)]
    return wants


def _options(domain: str) -> dict[str, list[str]]:
    names = [WEBSITE, *(facet.name for facet in domains()[domain].facets)]
    return {name: [value_text(value) for value in values_of(domain, name)] for name in names}


def _told(person: Person, domain: str) -> dict[str, str]:
    wants = {name: value_text(value) for (each, name), value in person.wants.items() if each == domain}
    return {"person": _who(person), "item": domains()[domain].item, "wants": json.dumps(wants)}


def _who(person: Person) -> str:
    return f"{person.user_id.replace('_', ' ')}, {person.age}, {person.occupation}."
