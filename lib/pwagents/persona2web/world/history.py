"""Users and their browsing histories without a language model: a year of records each, from a seed.

The paper's four stages: who the users are; what they want; seeds of events in sub-domains of many and of few
events; and each event taken apart into actions, of which a record holds time, type, object and website alone.
A record shows at most one facet, by a phrase that does not contain the value; only what most records say is a
preference.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

import numpy as np

from pwagents.persona2web.world.domains import domains, facet_of, values_pattern
from pwagents.persona2web.world.types import WEBSITE, BrowsingEvent, EventType, Preference, Value, value_text
from pwagents.seeds import rng
from pwagents.settings import HistorySettings
from pwagents.words import read_yaml

NOW = int(datetime(2026, 1, 5, 9, tzinfo=UTC).timestamp() * 1000)  # when tasks are asked: a Monday morning
HOUR = 60 * 60 * 1000
_DAY = 24 * HOUR
_YEAR = 365 * _DAY
_LATELY = 21 * _DAY  # the last weeks, which may mislead
_OFTEN = 3  # times as many events in a sub-domain of many as in one of few
NOISE = 0.1  # of the records are changes or cancellations of what is not preferred. Persona2Web: ~10%
_CANCELLED = 0.8  # of the noise; the rest are changes, which show nothing
_EVIDENT = 3 / 4.5  # of an event's records, on average, show a facet or are noise
_OF_HOME = ("city", "home airport")  # facets whose values go by the home, in the same order
_MEANS = 0.6  # how often a price limit goes by what the user can spend


@dataclass(frozen=True)
class Person:
    """Truth about one user.

    Attributes:
        often, seldom: sub-domains of many and of few events.
        wants: what is preferred, by sub-domain and facet; under "website", the host.
        lately: another value that the last weeks show, where they mislead.
        group: users of one group (0 or 1) share ways of saying things that the other group never uses, so
            that a reader trained on the other group meets new ones.
    """

    user_id: str
    age: int
    occupation: str
    often: tuple[str, ...]
    seldom: tuple[str, ...]
    wants: dict[tuple[str, str], Value]
    lately: dict[tuple[str, str], Value]
    group: int

    @property
    def domains(self) -> tuple[str, ...]:
        return (*self.often, *self.seldom)


@dataclass(frozen=True)
class Shown:
    """Truth about one record: sub-domain, facet and value shown ("" for none), whether it is noise."""

    domain: str
    facet: str = ""
    value: Value = ""
    noise: bool = False


@dataclass(frozen=True)
class Draft:
    """A record before it has an id."""

    timestamp: int
    type: EventType
    object: str
    website: str
    shown: Shown


@dataclass(frozen=True)
class History:
    """A user's records, oldest first, and the truth about them: what each record shows, by its id."""

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
                    keys |= {(name, "city", shown.value) for name in self.person.domains}
                for key in keys:
                    support.setdefault(key, []).append(event.event_id)
        preferences, user = [], self.person.user_id
        for (domain, facet), value in self.person.wants.items():
            ids = tuple(support.get((domain, facet, value), ()))
            preferences.append(Preference(user_id=user, domain=domain, facet=facet, value=value, support=ids))
        return tuple(preferences)

    @cached_property
    def literal(self) -> frozenset[str]:
        """Ids of the records that name a value which the user prefers in the record's sub-domain."""
        wanted: dict[str, list[Value]] = {name: [] for name in self.person.domains}
        for (domain, facet), value in self.person.wants.items():
            wanted[domain] += [value] if facet != WEBSITE else []
        patterns = {domain: values_pattern(tuple(values)) for domain, values in wanted.items()}
        search = cache(lambda domain, text: patterns[domain].search(text) is not None)
        ids = [event.event_id for event in self.events]
        texts = (event.object for event in self.events)
        return frozenset(i for i, text in zip(ids, texts, strict=True) if search(self.shown[i].domain, text))


def make_histories(settings: HistorySettings, seed: int) -> dict[str, History]:
    """Return histories by user id. The share of literal records is exact to one record a user."""
    histories = {}
    for person in make_people(settings.n_users, settings.n_domains, settings.drift, seed):
        generator = rng(seed, "history", person.user_id)
        year, n = Year(person, settings, generator), round(settings.records * generator.uniform(0.9, 1.1))
        drafts: list[Draft] = []
        while len(drafts) < n:
            drafts += year.event()
        histories[person.user_id] = year.history(drafts[:n])
    return histories


def shares(histories: Mapping[str, History]) -> dict[str, float]:
    """Return users, records, and which share of all records is noise and which names a preferred value."""
    events = sum(len(history.events) for history in histories.values())
    noise = sum(shown.noise for history in histories.values() for shown in history.shown.values())
    literal = sum(len(history.literal) for history in histories.values())
    return {"users": len(histories), "records": events, "noise": noise / events, "literal": literal / events}


# --- users -------------------------------------------------------------------------------------------------


def make_people(n_users: int, n_domains: int, drift: float, seed: int) -> Iterator[Person]:
    """Draw users, each with so many sub-domains; the last weeks speak against a share of preferences."""
    words = _words()
    names = [f"{first}_{last}" for last in words["last_names"] for first in words["first_names"]]
    for name, asked, there in (("n_users", n_users, names), ("n_domains", n_domains, domains())):
        if asked > len(there):
            raise ValueError(f"{name} is {asked}; expected at most {len(there)}")
    for i, place in enumerate(rng(seed, "names").permutation(len(names))[:n_users]):
        yield _person(names[place], n_domains, drift, i % 2, rng(seed, "person", names[place]))


def _person(user_id: str, n_domains: int, drift: float, group: int, generator: np.random.Generator) -> Person:
    # The place of the home among cities and airports; and what there is to spend: little, more, much.
    home, means = int(generator.integers(5)), int(generator.integers(3))
    chosen = tuple(map(str, generator.permutation(list(domains()))[:n_domains]))
    wants: dict[tuple[str, str], Value] = {}
    for name in chosen:
        wants[name, WEBSITE] = _pick(domains()[name].hosts, generator)
        for facet in domains()[name].facets:
            if facet.name in _OF_HOME:
                value = facet.values[home]
            elif facet.kind == "cap" and "$" in facet.stated and generator.random() < _MEANS:
                value = facet.values[means]
            else:
                value = _pick(facet.values, generator)
            wants[name, facet.name] = value
    lately = draw_lately(wants, drift, generator)
    half, age = (n_domains + 1) // 2, int(generator.integers(19, 76))
    occupation = _pick(_words()["occupations"], generator)
    return Person(user_id, age, occupation, chosen[:half], chosen[half:], wants, lately, group)


def draw_lately(
    wants: dict[tuple[str, str], Value], drift: float, generator: np.random.Generator
) -> dict[tuple[str, str], Value]:
    """Return another value for a share (``drift``) of the preferences, which the last weeks show."""
    return {
        (domain, facet): other_value(domain, facet, value, generator)
        for (domain, facet), value in wants.items()
        if generator.random() < drift
    }


def other_value(domain: str, facet: str, value: Value, generator: np.random.Generator) -> Value:
    """Return any of the facet's values (or of the domain's hosts) but this one."""
    return _pick([each for each in values_of(domain, facet) if each != value], generator)


def values_of(domain: str, facet: str) -> tuple[Value, ...]:
    """Return what can be preferred: the facet's values, or the domain's hosts."""
    return domains()[domain].hosts if facet == WEBSITE else facet_of(domain, facet).values


def _words() -> dict[str, Any]:
    """Return names, occupations, and what records without a preference say: ``history.yaml``."""
    return read_yaml(__package__, "history.yaml")


def _pick(values: Sequence, generator: np.random.Generator) -> Any:
    return values[generator.integers(len(values))]


# --- a user's year -----------------------------------------------------------------------------------------


class Year:
    """What happens in one user's year, drawn by a generator."""

    def __init__(self, person: Person, settings: HistorySettings, generator: np.random.Generator):
        self.person, self.settings, self.generator = person, settings, generator

    def event(self) -> Iterator[Draft]:
        """Yield one event, taken apart: a search, what was seen and done, perhaps a look back; some noise."""
        weighted = self.person.often * _OFTEN + self.person.seldom
        domain = _pick(weighted, self.generator)
        time, lately, website = self.begin(domain)
        hours = np.sort(self.generator.random(7)) * 60 - 60  # before and up to the event's time
        at = [time + int(hour * HOUR) for hour in hours]
        yield self._plain("web search", domain, at[0], website)
        for moment, name in zip(at[1:], self.facets(domain), strict=False):
            if self.generator.random() < NOISE / _EVIDENT:
                yield self.noise(domain, name, moment, website)
            else:
                value = self.value(domain, name, lately)
                type_, phrase = self._phrase(domain, name, value)
                text = f"{domains()[domain].item}, {phrase}"
                yield Draft(moment, type_, text, website, Shown(domain, name, value))
        if self.generator.random() < 0.5:
            yield self._plain("web visit", domain, at[6], website)

    def begin(self, domain: str) -> tuple[int, bool, str]:
        """Draw up to when the actions of an event were, whether in the last weeks, and on which site."""
        # The actions take up to three days.
        time = NOW - _DAY - int(self.generator.random() * (_YEAR - 4 * _DAY))
        lately = time > NOW - _LATELY
        return time, lately, self.value(domain, WEBSITE, lately)

    def facets(self, domain: str) -> list[str]:
        """Draw the facets that an event shows."""
        facets = domains()[domain].facets
        places = self.generator.permutation(len(facets))[: self.generator.integers(2, 5)]
        return [facets[place].name for place in places]

    def value(self, domain: str, facet: str, lately: bool) -> Value:
        """Draw the preferred value, as often as set, or another; lately, perhaps a misleading one."""
        share = self.settings.site_share if facet == WEBSITE else self.settings.consistency
        wanted = self.person.wants[domain, facet]
        if lately:
            wanted = self.person.lately.get((domain, facet), wanted)
        if self.generator.random() < share:
            return wanted
        return other_value(domain, facet, wanted, self.generator)

    def noise(self, domain: str, facet: str, time: int, website: str) -> Draft:
        """Draw a cancellation of something that is not preferred, or a change, which shows nothing."""
        type_ = _types(domain)[0]
        if self.generator.random() < _CANCELLED:
            value = other_value(domain, facet, self.person.wants[domain, facet], self.generator)
            text = f"cancelled: {domains()[domain].item}, {self._phrase(domain, facet, value)[1]}"
            return Draft(time, type_, text, website, Shown(domain, facet, value, noise=True))
        text = _pick(_words()["changes"], self.generator).format(item=domains()[domain].item)
        return Draft(time, type_, text, website, Shown(domain, noise=True))

    def history(self, drafts: list[Draft]) -> History:
        """Return the user's history, its records in the order of time and numbered.

        First, a share of all records is made to name a preferred value, of those that show one. Such a
        record is a search: "sneakers in US 9". No other text names a value of its own sub-domain.
        """
        wants, truths = self.person.wants, [draft.shown for draft in drafts]
        able = [
            i for i, t in enumerate(truths) if t.facet and not t.noise and t.value == wants[t.domain, t.facet]
        ]
        for i in self.generator.permutation(able)[: round(self.settings.literal * len(drafts))]:
            draft, shown = drafts[i], drafts[i].shown
            stated = facet_of(shown.domain, shown.facet).state(shown.value)
            text = f"{domains()[shown.domain].item} {stated}"
            drafts[i] = replace(draft, type="web search", object=text)
        events, truth = [], {}
        order = sorted(drafts, key=lambda draft: (draft.timestamp, draft.type, draft.object, draft.website))
        for i, draft in enumerate(order):
            fields = {name: getattr(draft, name) for name in ("timestamp", "type", "object", "website")}
            events.append(BrowsingEvent(event_id=f"{self.person.user_id}-{i:05d}", **fields))
            truth[events[-1].event_id] = draft.shown
        return History(self.person, tuple(events), truth)

    def _phrase(self, domain: str, facet: str, value: Value) -> tuple[EventType, str]:
        """Draw a phrase that points to a value, and the type of its record.

        A phrase always comes in the same type of record: few short texts differ, and each is embedded.
        """
        phrases, own = facet_of(domain, facet).evidence[value_text(value)], 2 + self.person.group
        place = _pick([i for i in range(len(phrases)) if i % 4 < 2 or i % 4 == own], self.generator)
        return _types(domain)[place % 3], phrases[place]

    def _plain(self, type_: EventType, domain: str, time: int, website: str) -> Draft:
        text = _pick(_words()["records"][type_], self.generator).format(item=domains()[domain].item)
        return Draft(time, type_, text, website, Shown(domain))


def _types(domain: str) -> tuple[EventType, EventType, EventType]:
    operations = domains()[domain].operations
    if "booking" in operations:
        return ("booking", "web visit", "review")
    return ("purchase", "web visit", "review") if "cart" in operations else ("web visit",) * 3
