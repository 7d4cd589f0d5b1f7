"""What is held to matter to a user in one session: the contextual profile (Orion, sections 4.1 and 4.2).

A preference is a line of text. If it says what it is about, it begins with that and a colon ("color: navy"),
so that lines of statistics and of language models are read alike.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from pwagents.schema import Record, Step, Text, Usage

# Where a line comes from: the past, the user's own words, or what they rejected.
Provenance = Literal["history", "stated", "inferred"]
_ABOUT = re.compile(r"\s*([A-Za-z][A-Za-z -]{0,30}?)\s*:\s*(\S.*)", re.DOTALL)
# A line in a prompt; what belongs to it reaches to the next one.
_LINE = re.compile(r"^- \[(history|stated|inferred)\] (.+?)(?=\n- \[|\Z)", re.DOTALL | re.MULTILINE)


class ProfileLine(Record):
    """One line of a contextual profile."""

    text: Text
    positive: bool  # wanted, or to be avoided
    provenance: Provenance  # a later "stated" line overrides others about the same thing
    about: str = ""  # "color", "brand", "price", ...; empty if that is not known

    @classmethod
    def of(cls, text: str, positive: bool, provenance: Provenance) -> "ProfileLine":
        """Make the line of a text; read ``about`` off its beginning."""
        about = match[1].lower() if (match := _ABOUT.fullmatch(text)) else ""
        return cls(text=text, positive=positive, provenance=provenance, about=about)

    @property
    def value(self) -> str:
        """Return the text without what it is about: "navy" of "color: navy"."""
        match = _ABOUT.fullmatch(self.text)
        return match[2] if match else self.text

    @property
    def is_amount(self) -> bool:
        """Return whether it is an amount of money, which no search reads: "price: around 20 dollars"."""
        return self.about == "price" and any(map(str.isdigit, self.value))


class ContextualProfile(Record):
    """What is held to matter now: P_ctx,t."""

    lines: tuple[ProfileLine, ...] = ()

    def describe(self) -> str:
        """Return the profile as text for a prompt: wishes and avoidances, a line each."""
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
        # The heading says which are avoided: a wish may begin with "not", too ("not too sweet").
        wanted, _, avoided = f"\n{text}".partition("\nAvoids:\n")
        lines = [ProfileLine.of(match[2], True, match[1]) for match in _LINE.finditer(wanted)]
        for match in _LINE.finditer(avoided):
            lines.append(ProfileLine.of(match[2].removeprefix("not "), False, match[1]))
        return cls(lines=tuple(lines))


class Purchase(NamedTuple):
    """A past purchase as an agent reads of it."""

    asin: str
    title: str
    category: str
    month: str  # such as "2017-03"


class Context(NamedTuple):
    """What retrieval finds in a user's profiles for an instruction, before the first step (Orion, 4.1)."""

    profile: ContextualProfile  # P_ctx,0
    purchases: tuple[Purchase, ...] = ()  # of the interest called for and of others, oldest first


class Update(NamedTuple):
    """The next contextual profile, and what it cost if a language model made it."""

    profile: ContextualProfile
    usage: Usage | None = None


# G_update: P_ctx,t-1, the instruction, and the session so far, whose last step is the new one -> P_ctx,t.
Updater = Callable[[ContextualProfile, str, Sequence[Step]], Update]
