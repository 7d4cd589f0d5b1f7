"""Users and their browsing histories without a language model: a year of records each, from a seed.

The paper's four stages: who the users are; what they want; seeds of events in sub-domains of many and of few
events; and each event taken apart into actions, of which a record holds time, type, object and website alone.
A record shows at most one facet, by a phrase that does not contain the value; only what most records say is a
preference.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from pwagents.persona2web.world.domains import domains, facet_of, value_text, values_pattern
from pwagents.persona2web.world.types import WEBSITE, BrowsingEvent, EventType, Facet, Preference, Value
from pwagents.seeds import rng
from pwagents.settings import HistorySettings
from pwagents.words import read_yaml

_OF_HOME = ("city", "home airport")  # facets whose values go by the home, in the same order
_MEANS = 0.6  # how often a price limit goes by what the user can spend


@dataclass(frozen=True)
class Person:
    """Truth about one user.

    Attributes:
        home: place of the home city among the cities, and of its airport among the airports.
        means: what there is to spend: 0 little, 1, 2 much.
        often, seldom: sub-domains of many and of few events.
        wants: what is preferred, by sub-domain and facet; under "website", the host.
        lately: another value that the last weeks show, where they mislead.
        group: users of one group (0 or 1) share ways of saying things that the other group never uses, so
            that a reader trained on the other group meets new ones.
    """

    user_id: str
    age: int
    occupation: str
    home: int
    means: int
    often: tuple[str, ...]
    seldom: tuple[str, ...]
    wants: dict[tuple[str, str], Value]
    lately: dict[tuple[str, str], Value]
    group: int

    @property
    def domains(self) -> tuple[str, ...]:
        return (*self.often, *self.seldom)


def _words() -> dict[str, Any]:
    """Return names, occupations, and what records without a preference say: ``history.yaml``."""
    return read_yaml(__package__, "history.yaml")


def make_people(n_users: int, n_domains: int, drift: float, seed: int) -> Iterator[Person]:
    """Draw users, each with ``n_domains`` sub-domains.

    Args:
        drift: share of preferences against which the last weeks speak.

    Raises:
        ValueError: there are not so many names, or not so many sub-domains.
    """
    names = [f"{first}_{last}" for last in _words()["last_names"] for first in _words()["first_names"]]
    if n_users > len(names):
        raise ValueError(f"n_users is {n_users}; expected at most {len(names)}")
    if n_domains > len(domains()):
        raise ValueError(f"n_domains is {n_domains}; expected at most {len(domains())}")
    for i, place in enumerate(rng(seed, "names").permutation(len(names))[:n_users]):
        yield _person(names[place], n_domains, drift, i % 2, rng(seed, "person", names[place]))


def _person(user_id: str, n_domains: int, drift: float, group: int, generator: np.random.Generator) -> Person:
    home, means = int(generator.integers(5)), int(generator.integers(3))
    chosen = tuple(map(str, generator.permutation(list(domains()))[:n_domains]))
    wants: dict[tuple[str, str], Value] = {}
    for name in chosen:
        wants[name, WEBSITE] = _pick(domains()[name].hosts, generator)
        for facet in domains()[name].facets:
            wants[name, facet.name] = _preferred(facet, home, means, generator)
    lately = draw_lately(wants, drift, generator)
    return Person(
        user_id=user_id,
        age=int(generator.integers(19, 76)),
        occupation=_pick(_words()["occupations"], generator),
        home=home,
        means=means,
        often=chosen[: (n_domains + 1) // 2],
        seldom=chosen[(n_domains + 1) // 2 :],
        wants=wants,
        lately=lately,
        group=group,
    )


def draw_lately(
    wants: dict[tuple[str, str], Value], drift: float, generator: np.random.Generator
) -> dict[tuple[str, str], Value]:
    """Another value for a share (``drift``) of the preferences, which the last weeks show."""
    return {
        (domain, facet): other_value(domain, facet, value, generator)
        for (domain, facet), value in wants.items()
        if generator.random() < drift
    }


def other_value(domain: str, facet: str, value: Value, generator: np.random.Generator) -> Value:
    """Any of the facet's values (or of the domain's hosts) but this one."""
    return _pick([each for each in values_of(domain, facet) if each != value], generator)


def values_of(domain: str, facet: str) -> tuple[Value, ...]:
    """What can be preferred: the facet's values, or the domain's hosts."""
    if facet == WEBSITE:
        return domains()[domain].hosts
    return next(each.values for each in domains()[domain].facets if each.name == facet)


def _preferred(facet: Facet, home: int, means: int, generator: np.random.Generator) -> Value:
    if facet.name in _OF_HOME:
        return facet.values[home]
    if facet.kind == "cap" and "$" in facet.stated and generator.random() < _MEANS:
        return facet.values[means]
    return _pick(facet.values, generator)


def _pick(values, generator: np.random.Generator):
    return values[generator.integers(len(values))]


NOW = int(datetime(2026, 1, 5, 9, tzinfo=UTC).timestamp() * 1000)  # when tasks are asked: a Monday morning
_DAY = 24 * 60 * 60 * 1000
_YEAR = 365 * _DAY
_LATELY = 21 * _DAY  # the last weeks, which may mislead
_OFTEN = 3  # times as many events in a sub-domain of many as in one of few
NOISE = 0.1  # of the records are changes or cancellations of what is not preferred. Persona2Web: ~10%
_CANCELLED = 0.8  # of the noise; the rest are changes, which show nothing


@dataclass(frozen=True)
class Shown:
    """Truth about one record: sub-domain, facet and value shown ("" for none), whether it is noise."""

    domain: str
    facet: str = ""
    value: Value = ""
    noise: bool = False


@dataclass(frozen=True)
class History:
    """A user's records, oldest first, and the truth about them.

    Attributes:
        shown: what each record shows, by its id.
    """

    person: Person
    events: tuple[BrowsingEvent, ...]
    shown: Mapping[str, Shown]

    @cached_property
    def preferences(self) -> tuple[Preference, ...]:
        """What the user wants, each with the records that support it.

        Records of all sub-domains support the home city; noise supports nothing.
        """
        support: dict[tuple[str, str, Value], list[str]] = {}
        for event in self.events:
            shown = self.shown[event.event_id]
            if not shown.noise:
                keys = {(shown.domain, WEBSITE, event.website), (shown.domain, shown.facet, shown.value)}
                if shown.facet == "city":
                    keys = keys | {(name, "city", shown.value) for name in self.person.domains}
                for key in keys:
                    support.setdefault(key, []).append(event.event_id)
        return tuple(
            Preference(
                user_id=self.person.user_id,
                domain=domain,
                facet=facet,
                value=value,
                support=tuple(support.get((domain, facet, value), ())),
            )
            for (domain, facet), value in self.person.wants.items()
        )

    @cached_property
    def literal(self) -> frozenset[str]:
        """Ids of the records that name a value which the user prefers in the record's sub-domain."""
        patterns = {
            domain: values_pattern(
                tuple(
                    value
                    for (name, facet), value in self.person.wants.items()
                    if name == domain and facet != WEBSITE
                )
            )
            for domain in self.person.domains
        }
        texts = {(self.shown[event.event_id].domain, event.object) for event in self.events}
        naming = {(domain, text) for domain, text in texts if patterns[domain].search(text)}
        return frozenset(
            event.event_id
            for event in self.events
            if (self.shown[event.event_id].domain, event.object) in naming
        )


@dataclass(frozen=True)
class Draft:
    """A record before it has an id."""

    timestamp: int
    type: EventType
    object: str
    website: str
    shown: Shown


def make_histories(settings: HistorySettings, seed: int) -> dict[str, History]:
    """User id -> history. The share of literal records is exact to one record a user."""
    people = make_people(settings.n_users, settings.n_domains, settings.drift, seed)
    return {person.user_id: _history(person, settings, seed) for person in people}


def shares(histories: Mapping[str, History]) -> dict[str, float]:
    """Users, records, and which share of all records is noise and which names a preferred value."""
    events = sum(len(history.events) for history in histories.values())
    noise = sum(shown.noise for history in histories.values() for shown in history.shown.values())
    literal = sum(len(history.literal) for history in histories.values())
    return {
        "users": len(histories),
        "records": events,
        "noise": noise / events,
        "literal": literal / events,
    }


def _history(person: Person, settings: HistorySettings, seed: int) -> History:
    generator = rng(seed, "history", person.user_id)
    n = round(settings.records * generator.uniform(0.9, 1.1))
    drafts: list[Draft] = []
    while len(drafts) < n:
        drafts += _event(person, settings, generator)
    return put_together(person, name_values(drafts[:n], person, settings.literal, generator))


def put_together(person: Person, drafts: list[Draft]) -> History:
    """The history of a user, its records in the order of time and numbered."""
    drafts.sort(key=lambda draft: (draft.timestamp, draft.type, draft.object, draft.website))
    ids = [f"{person.user_id}-{i:05d}" for i in range(len(drafts))]
    events = (
        BrowsingEvent(
            event_id=event_id,
            timestamp=draft.timestamp,
            type=draft.type,
            object=draft.object,
            website=draft.website,
        )
        for event_id, draft in zip(ids, drafts, strict=True)
    )
    shown = (draft.shown for draft in drafts)
    return History(person, tuple(events), dict(zip(ids, shown, strict=True)))


def _event(person: Person, settings: HistorySettings, generator: np.random.Generator) -> Iterator[Draft]:
    """One event, taken apart: a search, pages, what was done, sometimes a look back; some of it noise."""
    weighted = person.often * _OFTEN + person.seldom
    domain = weighted[generator.integers(len(weighted))]
    time, lately, website = event_begin(person, domain, settings, generator)
    hours = np.sort(generator.random(7)) * 60 - 60  # before and up to the event's time
    yield _plain("web search", domain, time + _ms(hours[0]), website, generator)
    facets = domains()[domain].facets
    for hour, place in zip(
        hours[1:], generator.permutation(len(facets))[: generator.integers(2, 5)], strict=False
    ):
        at, name = time + _ms(hour), facets[place].name
        if generator.random() < NOISE / _EVIDENT:
            yield noise(person, domain, name, at, website, generator)
        else:
            value = value_shown(person, domain, name, settings.consistency, lately, generator)
            type_, phrase = _phrase(person, domain, name, value, generator)
            text = f"{domains()[domain].item}, {phrase}"
            yield Draft(at, type_, text, website, Shown(domain, name, value))
    if generator.random() < 0.5:
        yield _plain("web visit", domain, time + _ms(hours[6]), website, generator)


def event_begin(
    person: Person, domain: str, settings: HistorySettings, generator: np.random.Generator
) -> tuple[int, bool, str]:
    """Up to when the actions of an event were, whether in the last weeks, and on which site."""
    time = NOW - _DAY - int(generator.random() * (_YEAR - 4 * _DAY))  # the actions take up to three days
    lately = time > NOW - _LATELY
    return time, lately, value_shown(person, domain, WEBSITE, settings.site_share, lately, generator)


_EVIDENT = 3 / 4.5  # of an event's records, on average, show a facet or are noise


def _ms(hours: float) -> int:
    return int(hours * 60 * 60 * 1000)


def value_shown(
    person: Person, domain: str, facet: str, share: float, lately: bool, generator: np.random.Generator
) -> Value:
    """The preferred value with a probability of ``share``, else another; lately, perhaps a misleading one."""
    wanted = person.wants[domain, facet]
    if lately:
        wanted = person.lately.get((domain, facet), wanted)
    return wanted if generator.random() < share else other_value(domain, facet, wanted, generator)


def _phrase(
    person: Person, domain: str, facet: str, value: Value, generator: np.random.Generator
) -> tuple[EventType, str]:
    """A phrase that points to a value, and the type of its record.

    A phrase always comes in the same type of record: short texts that differ stay few, and each is embedded.
    """
    phrases = facet_of(domain, facet).evidence[value_text(value)]
    known = [i for i in range(len(phrases)) if i % 4 < 2 or i % 4 == 2 + person.group]
    place = known[generator.integers(len(known))]
    return _types(domain)[place % 3], phrases[place]


def _types(domain: str) -> tuple[EventType, EventType, EventType]:
    operations = domains()[domain].operations
    if "booking" in operations:
        return ("booking", "web visit", "review")
    return ("purchase", "web visit", "review") if "cart" in operations else ("web visit",) * 3


def _plain(type_: EventType, domain: str, time: int, website: str, generator: np.random.Generator) -> Draft:
    text = _any_text(_words()["records"][type_], domain, generator)
    return Draft(time, type_, text, website, Shown(domain))


def noise(
    person: Person, domain: str, facet: str, time: int, website: str, generator: np.random.Generator
) -> Draft:
    """A cancellation of something that is not preferred, or a change, which shows nothing."""
    if generator.random() < _CANCELLED:
        value = other_value(domain, facet, person.wants[domain, facet], generator)
        _, phrase = _phrase(person, domain, facet, value, generator)
        shown = Shown(domain, facet, value, noise=True)
        return Draft(
            time, _types(domain)[0], f"cancelled: {domains()[domain].item}, {phrase}", website, shown
        )
    text = _any_text(_words()["changes"], domain, generator)
    return Draft(time, _types(domain)[0], text, website, Shown(domain, noise=True))


def _any_text(texts: Sequence[str], domain: str, generator: np.random.Generator) -> str:
    return texts[generator.integers(len(texts))].format(item=domains()[domain].item)


def name_values(
    drafts: list[Draft], person: Person, share: float, generator: np.random.Generator
) -> list[Draft]:
    """Let this share of all records name a preferred value: of those that show one, drawn at random.

    Such a record is a search: "sneakers in US 9". No other text names a value of its own sub-domain.
    """
    wanted = person.wants
    able = [
        i
        for i, draft in enumerate(drafts)
        if draft.shown.facet
        and not draft.shown.noise
        and draft.shown.value == wanted[draft.shown.domain, draft.shown.facet]
    ]
    for i in generator.permutation(able)[: round(share * len(drafts))]:
        draft, shown = drafts[i], drafts[i].shown
        stated = facet_of(shown.domain, shown.facet).stated.format(value_text(shown.value))
        text = f"{domains()[shown.domain].item} {stated}"
        drafts[i] = Draft(draft.timestamp, "web search", text, draft.website, shown)
    return drafts
