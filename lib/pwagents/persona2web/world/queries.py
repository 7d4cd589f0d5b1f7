"""Queries at three levels of ambiguity: written from what users want, and read again by rules.

Level 0 names the website and every value; level 1 leaves out the website; level 2 the masked values, too, for
which "my usual size" stands. Levels 1 and 2 say "on my preferred website", as in the paper; in the files that
were released the website is merely dropped.

The rules that read a query, for the offline agent, know the sub-domains and how queries word their facets, as
a person who uses such sites would. They know neither the user nor the goal.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pwagents.persona2web.world.domains import domains, facet_of, item_fits, site_kinds, values_pattern
from pwagents.persona2web.world.history import NOW, History, Person
from pwagents.persona2web.world.types import Domain, Goal, Level, Operation, Site, Value, WebTask
from pwagents.seeds import rng
from pwagents.settings import QuerySettings

COMPARED = 2  # items that a task of comparing asks for

# Of the 100 texts that are known: what is to be done, and how many values are masked.
OPERATIONS: dict[Operation, float] = {"search": 43, "booking": 23, "cart": 17, "lookup": 13, "compare": 4}
MASKED = {1: 11, 2: 79, 3: 10}

_ASKED: dict[Operation, str] = {
    "search": "{where}find {item}{wanted}.",
    "cart": "{where}find {item}{wanted} and add it to the cart.",
    "booking": "{where}reserve {item}{wanted}, but stop before payment.",
    "lookup": "{where}look up the {fact} of {item}{wanted}.",
    "compare": "{where}find {item}{wanted} and compare two that fit.",
}


def make_tasks(
    histories: Mapping[str, History], sites: Mapping[str, Site], settings: QuerySettings, seed: int
) -> list[WebTask]:
    """Return tasks of each user, each in another of the user's sub-domains."""
    tasks = []
    for user_id, history in histories.items():
        generator = rng(seed, "tasks", user_id)
        names = history.person.domains
        if len(names) < settings.tasks_per_user:
            found = f"user {user_id} has {len(names)}"
            raise ValueError(f"tasks_per_user is {settings.tasks_per_user}, but {found} sub-domains")
        for i, place in enumerate(generator.permutation(len(names))[: settings.tasks_per_user]):
            goal = _goal(history.person, domains()[names[place]], sites, generator)
            texts = {level: query(goal, level) for level in (0, 1, 2)}
            task_id = f"{user_id}-{i + 1}"
            tasks.append(WebTask(task_id=task_id, user_id=user_id, now=NOW, texts=texts, goal=goal))
    return tasks


def query(goal: Goal, level: Level) -> str:
    """Return the text of a goal at a level of ambiguity."""
    domain = domains()[goal.domain]
    wanted = [facet_of(domain.name, name).state(value) for name, value in goal.stated.items()]
    for name, value in goal.masked.items():
        facet = facet_of(domain.name, name)
        wanted.append(facet.usual if level == 2 else facet.state(value))
    where = f"At {goal.host}, " if level == 0 else "On my preferred website, "
    article = "" if domain.item in ("milk", "sneakers") else "an " if domain.item[0] in "aeiou" else "a "
    about = {"where": where, "item": article + domain.item, "fact": domain.fact}
    text = _ASKED[goal.operation].format(wanted="".join(f" {each}" for each in wanted), **about)
    return text[0].upper() + text[1:]


def _goal(person: Person, domain: Domain, sites: Mapping[str, Site], generator: np.random.Generator) -> Goal:
    """Return a goal that enough items of the preferred site meet; its level 2 names no masked value."""
    host = str(person.wants[domain.name, "website"])
    operation = _draw({name: OPERATIONS[name] for name in domain.operations}, generator)
    names = [facet.name for facet in domain.facets]
    needed = COMPARED if operation == "compare" else 1
    while True:
        chosen = [names[i] for i in generator.permutation(len(names))[: _draw(MASKED, generator) + 1]]
        masked = {name: person.wants[domain.name, name] for name in chosen[1:]}
        items = [item for item in sites[host].items if item.domain == domain.name]
        fitting = [item for item in items if item_fits(item, masked)]
        values = facet_of(domain.name, chosen[0]).values
        able = [v for v in values if sum(item_fits(i, {chosen[0]: v}) for i in fitting) >= needed]
        if not able:
            continue
        stated = {chosen[0]: able[generator.integers(len(able))]}
        goal = Goal(domain=domain.name, host=host, operation=operation, stated=stated, masked=masked)
        if not values_pattern(tuple(masked.values())).search(query(goal, 2)):
            return goal


def _draw(weights: Mapping, generator: np.random.Generator):
    """Return a key, with a probability that goes by its weight."""
    ends = np.cumsum(list(weights.values()))
    return list(weights)[int(np.searchsorted(ends, generator.random() * ends[-1], side="right"))]


_VERBS: tuple[tuple[Operation, str], ...] = (  # the first that a text holds decides
    ("compare", r"\bcompar"),
    ("lookup", r"\b(what|which|how (many|much|long)|tell me|look up|check)\b"),
    ("cart", r"\b(add|buy|order|put|cart|basket)\b"),
    ("booking", r"\b(book|reserve|reservation|schedule|hold)\b"),
)


@dataclass(frozen=True)
class Asked:
    """What a query asks for: site (empty if it names none), values, facets that it leaves to habit."""

    domain: Domain
    operation: Operation
    host: str
    stated: dict[str, Value]
    left_out: tuple[str, ...]


def read_task(text: str) -> Asked:
    """Read a query; where it names no sub-domain that the rules know, the best guess is the first."""
    plain = " ".join(text.casefold().split())
    # How well it fits a sub-domain: the item's or its own name and its fact, then its facets' wordings.
    best, domain = (-1, -1), None
    for each in domains().values():
        named = 2 * (holds(plain, each.item) or holds(plain, each.name))
        named += bool(each.fact) and holds(plain, each.fact)
        wordings = [facet.usual for facet in each.facets]
        wordings += [facet.state(value) for facet in each.facets for value in facet.values]
        fit = (named, sum(holds(plain, wording) for wording in wordings))
        if fit > best:
            best, domain = fit, each
    values = [(facet, value) for facet in domain.facets for value in facet.values]
    stated = {facet.name: value for facet, value in values if holds(plain, facet.state(value))}
    usual = [facet.name for facet in domain.facets if holds(plain, facet.usual)]
    left_out = tuple(name for name in usual if name not in stated)
    hosts = [host for host, (name, *_) in site_kinds().items() if holds(plain, host) or holds(plain, name)]
    verbs = (each for each, words in _VERBS if each in domain.operations and re.search(words, plain))
    often = "search" if "search" in domain.operations else domain.operations[0]
    return Asked(domain, next(verbs, often), max(hosts, key=len, default=""), stated, left_out)


def holds(plain: str, words: str) -> bool:
    """Return whether a text in small letters holds these words, whole, in any case."""
    return re.search(rf"(?<!\w){re.escape(' '.join(words.casefold().split()))}(?!\w)", plain) is not None
