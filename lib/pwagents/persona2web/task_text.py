"""What a query says and leaves out, read by rules from its text alone, for the offline agent.

The rules know the sub-domains and how queries word their facets, as a person who uses such sites would. They
know neither the user nor the goal.
"""

import re
from dataclasses import dataclass

from pwagents.persona2web.domains import domains, site_kinds, value_text
from pwagents.persona2web.types import Domain, Operation, Value

_VERBS: tuple[tuple[Operation, str], ...] = (  # the first that a text holds decides
    ("compare", r"\bcompar"),
    ("lookup", r"\b(what|which|how (many|much|long)|tell me|look up|check)\b"),
    ("cart", r"\b(add|buy|order|put|cart|basket)\b"),
    ("booking", r"\b(book|reserve|reservation|schedule|hold)\b"),
)


@dataclass(frozen=True)
class Asked:
    """What a query asks for.

    Attributes:
        host: of the site it names; empty where it names none.
        stated: values by facet. left_out: facets that it leaves to the user's habit.
    """

    domain: Domain
    operation: Operation
    host: str
    stated: dict[str, Value]
    left_out: tuple[str, ...]


def read_task(text: str) -> Asked:
    """Read a query; where it names no sub-domain that the rules know, the best guess is the first."""
    plain = " ".join(text.casefold().split())
    domain = max(domains().values(), key=lambda each: _named(each, plain))
    stated = {}
    for facet in domain.facets:
        for value in facet.values:
            if holds(plain, facet.stated.format(value_text(value))):
                stated[facet.name] = value
    left_out = tuple(
        facet.name for facet in domain.facets if facet.name not in stated and holds(plain, facet.usual)
    )
    return Asked(domain, _operation(plain, domain), _host(plain), stated, left_out)


def _named(domain: Domain, plain: str) -> tuple[int, int]:
    """How well a text fits a sub-domain: facets worded as there, then the item's or the sub-domain's name."""
    wordings = [facet.usual for facet in domain.facets]
    wordings += [facet.stated.format(value_text(value)) for facet in domain.facets for value in facet.values]
    named = 2 * max(holds(plain, domain.item), holds(plain, domain.name))
    return named + (bool(domain.fact) and holds(plain, domain.fact)), sum(holds(plain, w) for w in wordings)


def _operation(plain: str, domain: Domain) -> Operation:
    """The operation that the text's verbs tell, among those of the sub-domain."""
    for operation, verbs in _VERBS:
        if operation in domain.operations and re.search(verbs, plain):
            return operation
    return "search" if "search" in domain.operations else domain.operations[0]


def _host(plain: str) -> str:
    named = [host for host, (name, *_) in site_kinds().items() if holds(plain, host) or holds(plain, name)]
    return max(named, key=len, default="")


def holds(plain: str, words: str) -> bool:
    """Whether a text in small letters holds these words, whole, in any case."""
    return re.search(rf"(?<!\w){re.escape(' '.join(words.casefold().split()))}(?!\w)", plain) is not None
