"""Who the users of the offline histories are and what they want: the first two of the paper's stages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pwagents.persona2web.domains import domains
from pwagents.persona2web.types import Facet, Value
from pwagents.seeds import rng
from pwagents.words import read_yaml

WEBSITE = "website"  # stands for a facet where it is the site that is preferred
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


def told() -> dict[str, Any]:
    """Names, occupations, and what records without a preference say: ``people.yaml``."""
    return read_yaml("pwagents.persona2web", "people.yaml")


def make_people(n_users: int, n_domains: int, drift: float, seed: int) -> Iterator[Person]:
    """Draw users, each with ``n_domains`` sub-domains.

    Args:
        drift: share of preferences against which the last weeks speak.

    Raises:
        ValueError: there are not so many names, or not so many sub-domains.
    """
    names = [f"{first}_{last}" for last in told()["last_names"] for first in told()["first_names"]]
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
        occupation=_pick(told()["occupations"], generator),
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
