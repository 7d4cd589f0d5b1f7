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
    """A user as a whole: p_global of Orion, section 4.1."""

    facts: UserProfile  # PersonalWAB's three groups of fields, with its options
    positive: tuple[Text, ...] = ()  # rho+_global: what the user likes everywhere
    negative: tuple[Text, ...] = ()  # rho-_global: what to keep away from the user everywhere


class MicroProfile(Record):
    """A user within one interest: p_micro,i of Orion, section 4.1."""

    recommendations: tuple[Text, ...] = ()  # rho+_micro,i
    avoidances: tuple[Text, ...] = ()  # rho-_micro,i


@dataclass(frozen=True)
class Cluster:
    """An interest cluster (c_i) of one user."""

    name: str  # the category, or the categories, that its behaviours share
    members: tuple[int, ...]  # positions in the user's history, ascending
    centre: np.ndarray  # (384,) unit vector (e_i): the mean embedding of its items, normalised


@dataclass(frozen=True)
class UserProfiles:
    """All profiles of one user (P_u): ``micro[i]`` is of ``clusters[i]``. Short histories have neither."""

    user_id: str
    whole: GlobalProfile
    clusters: tuple[Cluster, ...] = ()
    micro: tuple[MicroProfile, ...] = ()


class ProfileLine(Record):
    """One line of a contextual profile."""

    text: Text
    positive: bool  # wanted, or to be avoided
    provenance: Provenance  # a later "stated" line overrides others about the same thing
    about: str = ""  # "color", "brand", "price", ...; empty where that is not known

    @classmethod
    def of(cls, text: str, positive: bool, provenance: Provenance) -> "ProfileLine":
        """Make the line of a text; read ``about`` off its beginning."""
        about = match[1].lower() if (match := _ABOUT.fullmatch(text)) else ""
        return cls(text=text, positive=positive, provenance=provenance, about=about)

    @property
    def value(self) -> str:
        """The text without what it is about: "navy" of "color: navy"."""
        match = _ABOUT.fullmatch(self.text)
        return match[2] if match else self.text


class ContextualProfile(Record):
    """What is held to matter now: P_ctx,t of Orion, sections 4.1 and 4.2."""

    lines: tuple[ProfileLine, ...] = ()
    words: tuple[str, ...] = ()  # the instruction's, for product or situation, where a method has them
    bought: tuple[str, ...] = ()  # ids of past purchases that fit, oldest first, where a method has them

    @property
    def query(self) -> str:
        """What is wanted in the fewest words: the values in the order of their lines, then the words.

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

    def describe(self) -> str:
        """Write the profile as text for a prompt: wishes and avoidances, a line each; the query; the ids."""
        parts = []
        for positive, heading in ((True, "Wants:"), (False, "Avoids:")):
            # Provenance and "not" stand first: a small model that reads from left to right then knows what
            # to make of the words as they come.
            mark = "" if positive else "not "
            lines = [f"- [{x.provenance}] {mark}{x.text}" for x in self.lines if x.positive is positive]
            parts += [heading, *lines] if lines else []
        if query := self.query:
            parts.append(f"Wanted: {query}")
        if self.bought:
            parts.append(f"Bought before: {', '.join(self.bought)}")
        return "\n".join(parts)
