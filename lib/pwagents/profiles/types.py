"""What a profile is made of (Orion, section 4.1; PersonalWAB, Figures 10 and 11).

A preference is a line of text. Where it says what it is about, it begins with that and a colon ("color:
navy"), so that lines of statistics and of language models are read alike.
"""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pwagents.schema import Record, Text, UserProfile

# Where a line of a contextual profile comes from: the past, the user's own words, or what they rejected.
Provenance = Literal["history", "stated", "inferred"]
OTHER = "Other"  # the fact about a user that is not known, or that none of the options fits
_LONGEST = 3  # words of a value; a longer one is a sentence
_ABOUT = re.compile(r"\s*([A-Za-z][A-Za-z -]{0,30}?)\s*:\s*(\S.*)", re.DOTALL)


class GlobalProfile(Record):
    """A user as a whole (p_global): the three groups of facts, and what they like and dislike everywhere.

    ``facts`` has the fields and options of PersonalWAB's profiles; ``positive`` and ``negative`` are Orion's
    decoupling, a short sentence or phrase each.
    """

    facts: UserProfile
    positive: tuple[Text, ...] = ()
    negative: tuple[Text, ...] = ()


class MicroProfile(Record):
    """A user within one interest: domain recommendations (positive) and domain avoidances (negative)."""

    recommendations: tuple[Text, ...] = ()
    avoidances: tuple[Text, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """An interest cluster (c_i) of one user.

    Attributes:
        name: the category, or the categories, that its behaviours share.
        members: positions in the user's history, ascending.
        centre: (384,) unit vector (e_i): the mean embedding of its items, normalised.
    """

    name: str
    members: tuple[int, ...]
    centre: np.ndarray


@dataclass(frozen=True)
class UserProfiles:
    """All profiles of one user: ``micro[i]`` belongs to ``clusters[i]``. A short history has no cluster."""

    user_id: str
    whole: GlobalProfile
    clusters: tuple[Cluster, ...] = ()
    micro: tuple[MicroProfile, ...] = ()


class ProfileLine(Record):
    """One line of a contextual profile.

    Args:
        text: what it says.
        positive: wanted, or to be avoided.
        provenance: a later "stated" line overrides an "inferred" or "history" one about the same thing.
        about: what it is about ("color", "brand", "price", ...); empty where that is not known.
    """

    text: Text
    positive: bool
    provenance: Provenance
    about: str = ""

    @classmethod
    def of(cls, text: str, positive: bool, provenance: Provenance) -> "ProfileLine":
        """The line of a text, ``about`` read off its beginning."""
        found = _ABOUT.fullmatch(text)
        about = found[1].lower() if found else ""
        return cls(text=text, positive=positive, provenance=provenance, about=about)

    @property
    def value(self) -> str:
        """The text without what it is about: "navy" of "color: navy"."""
        found = _ABOUT.fullmatch(self.text)
        return found[2] if found else self.text


class ContextualProfile(Record):
    """What is held to matter now (P_ctx,t).

    Args:
        lines: what is wanted and what is to be avoided.
        words: what the instruction calls the product or the situation, where a method tells it.
        bought: ids of past purchases that fit it, oldest first, where a method tells them.
    """

    lines: tuple[ProfileLine, ...] = ()
    words: tuple[str, ...] = ()
    bought: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """What is wanted in the fewest words, "navy cotton towel": the known values, in the order of their
        lines, then the instruction's words.

        Left out are sentences, amounts of money, which no page has as words, and what is also avoided.
        """
        avoided = {line.value.lower() for line in self.lines if not line.positive}
        values: dict[str, str] = {}  # in small letters -> as it is written first
        for line in self.lines:
            is_amount = line.about == "price" and re.search(r"\d", line.value)
            if line.positive and line.about and not is_amount and len(line.value.split()) <= _LONGEST:
                values.setdefault(line.value.lower(), line.value)
        for word in self.words:
            values.setdefault(word.lower(), word)
        return " ".join(value for small, value in values.items() if small not in avoided)

    def told(self) -> str:
        """As text for a prompt: what is wanted, what is to be avoided, a line each; then what is wanted, in
        the fewest words (:attr:`short`), which a search can take over as they are, and the ids.

        Provenance and "not" stand before the words of a line: a small model that reads from left to right
        then knows what to make of them as they come.
        """
        parts = []
        for positive, heading in ((True, "Wants:"), (False, "Avoids:")):
            mark = "" if positive else "not "
            lines = [f"- [{x.provenance}] {mark}{x.text}" for x in self.lines if x.positive is positive]
            parts += [heading, *lines] if lines else []
        if short := self.short:
            parts.append(f"Wanted: {short}")
        if self.bought:
            parts.append(f"Bought before: {', '.join(self.bought)}")
        return "\n".join(parts)
