"""What a profile is made of (Orion, section 4.1; PersonalWAB, Figures 10 and 11).

A preference is a line of text. Where it says what it is about, it begins with that and a colon ("color:
navy"), so that lines of statistics and of language models are read alike.
"""

import re
from dataclasses import dataclass
from typing import Literal

from pwagents.profiles.clusters import Cluster
from pwagents.schema import Record, Text, UserProfile

# Where a line of a contextual profile comes from: the past, the user's own words, or what they rejected.
Provenance = Literal["history", "stated", "inferred"]
OTHER = "Other"  # the fact about a user that is not known, or that none of the options fits
_ABOUT = re.compile(r"\s*([A-Za-z][A-Za-z -]{0,30}?)\s*:\s*(\S.*)", re.DOTALL)
# A line of a contextual profile in a prompt; what belongs to it reaches to the next one.
_LINE = re.compile(r"^- \[(history|stated|inferred)\] (.+?)(?=\n- \[|\Z)", re.DOTALL | re.MULTILINE)


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

    @property
    def is_amount(self) -> bool:
        """Whether it is an amount of money, which no search reads: "price: around 20 dollars"."""
        return self.about == "price" and any(map(str.isdigit, self.value))


class ContextualProfile(Record):
    """What is held to matter now: P_ctx,t of Orion, sections 4.1 and 4.2."""

    lines: tuple[ProfileLine, ...] = ()

    def describe(self) -> str:
        """Write the profile as text for a prompt: wishes and avoidances, a line each."""
        parts = []
        for positive, heading in ((True, "Wants:"), (False, "Avoids:")):
            # Provenance and "not" stand first: a small model that reads from left to right then knows what
            # to make of the words as they come.
            mark = "" if positive else "not "
            lines = [f"- [{x.provenance}] {mark}{x.text}" for x in self.lines if x.positive is positive]
            parts += [heading, *lines] if lines else []
        return "\n".join(parts)

    @classmethod
    def read(cls, text: str) -> "ContextualProfile":
        """Read back what :meth:`describe` wrote; the avoided lines stand behind the wanted ones."""
        # The heading tells which are avoided: a wish may begin with "not", too ("not too sweet").
        wanted, _, avoided = f"\n{text}".partition("\nAvoids:\n")
        lines = [ProfileLine.of(match[2], True, match[1]) for match in _LINE.finditer(wanted)]
        for match in _LINE.finditer(avoided):
            lines.append(ProfileLine.of(match[2].removeprefix("not "), False, match[1]))
        return cls(lines=tuple(lines))
