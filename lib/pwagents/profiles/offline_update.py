"""The dynamic profile update by rules: what a user's answer says, and what a complaint gives away."""

import re
from collections.abc import Iterator, Sequence

from pwagents.data.instructions import content_words
from pwagents.profiles.catalogue import TOPIC, Catalogue, Trait, attribute_of_word, stems, word_lists
from pwagents.profiles.facts import plain
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import Update, last_shown, settle
from pwagents.schema import Step

# Where the reach of a "not" ends; "anything but" is itself a "not".
_CLAUSE_END = re.compile(r"[.!?;,:]\s|(?<!anything) but\b|\brather\b", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(not|no|never|without|avoid|hate|dislike|except|instead of|anything but)\b|n't\b", re.IGNORECASE
)
# "$20", "around 20 dollars", "no more than 15 bucks"
_AMOUNT = re.compile(
    r"(?:\b(around|about|under|below|over|above|up to|at most|at least|(?:no )?(?:less|more) than)\s+)?"
    r"(?:\$\s?(\d+)|\b(\d+)\s?(?:dollars?|usd|bucks)\b)",
    re.IGNORECASE,
)
_OWN_WORDS = 6  # of an answer without any known value, at most
_FEW = 3  # products, at least, before what they share is inferred to be unwanted


class OfflineUpdater:
    """Updates a contextual profile by rules, without a language model.

    - What the user says in words of the catalogue (a color, a store, a price) is stated; an answer without
      any is stated in its own words, about what the question was about. "Not" before a value, in the same
      clause, makes it unwanted. A user who does not mind has no preference about that attribute any more.
    - After a complaint, what all products shown last have in common is inferred to be unwanted, unless the
      user asked for it.
    - Results, errors and published reviews say nothing by themselves.

    Args:
        catalogue: its values and stores are the words that are understood.
    """

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue

    def __call__(self, profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
        """P_ctx,t from P_ctx,t-1 and the session so far, whose last step is the new one."""
        if not session or session[-1].error or session[-1].action.name != "respond":
            return Update(profile)
        asked = self.asked(str(session[-1].action.arguments.get("content", "")))
        answer = session[-1].observation.text
        if _says("indifferent", answer):
            rest = [clause for clause in _CLAUSE_END.split(f"{answer} ") if not _says("indifferent", clause)]
            return Update(self.hear(_without(profile, asked), ". ".join(rest)))
        if _says("dissatisfied", answer):
            profile = settle(profile, self._rejected(profile, instruction, last_shown(session)))
            asked = asked or TOPIC  # a hint may be about anything
        elif _says("unknown", answer):
            return Update(profile)
        return Update(self.hear(profile, answer, asked))

    def hear(self, profile: ContextualProfile, text: str, asked: str = "") -> ContextualProfile:
        """The profile after the user said ``text``, perhaps in answer to a question about ``asked``."""
        clauses = [(clause, not _NEGATION.search(clause)) for clause in _CLAUSE_END.split(f"{text} ")]
        found: dict[Trait, bool] = {}  # -> whether it is wanted
        for clause, wanted in clauses:
            found |= dict.fromkeys((trait for _, trait in self.catalogue.find(clause)), wanted)
            found |= dict.fromkeys(_prices(clause), True)
        if not found:
            for clause, wanted in clauses:
                found |= dict.fromkeys(self._own_words(clause, wanted, asked), wanted)
        return settle(profile, [ProfileLine.of(t.text, wanted, "stated") for t, wanted in found.items()])

    def asked(self, question: str) -> str:
        """What a question is about: the first attribute that it names or has a value of ("color"), topics for
        one about anything at all, else nothing."""
        words, about = stems(question), attribute_of_word() | attribute_of_word("asked")
        named = [about[word] for word in words if word in about]
        named += [trait.about for _, trait in self.catalogue.find(question)]
        is_open = set(words) & set(word_lists()["open_words"].split())
        return next(iter(named), TOPIC if is_open else "")

    def _own_words(self, clause: str, wanted: bool, asked: str) -> list[Trait]:
        """A clause in words that are no values. About anything at all, only words of titles tell, and "not
        that" is no topic."""
        empty = word_lists()["answer_words"].split()
        words = [word for word in content_words(clause) if word not in empty][:_OWN_WORDS]
        if asked != TOPIC:
            return [Trait(asked, " ".join(words))] if asked and words else []
        return [Trait(TOPIC, word) for word in words if wanted and self.catalogue.is_used(Trait(TOPIC, word))]

    def _rejected(
        self, profile: ContextualProfile, instruction: str, shown: Sequence[str]
    ) -> list[ProfileLine]:
        """What all products shown share, but for what the user asked for."""
        if len(shown) < _FEW:
            return []
        stated = [line.text for line in profile.lines if line.positive and line.provenance == "stated"]
        asked_for = plain(" ".join([instruction, *stated]))
        shared = [t for t in self.catalogue.traits(shown[0]) if t.about != TOPIC]
        for asin in shown[1:]:
            shared = [trait for trait in shared if trait in self.catalogue.traits(asin)]
        return [ProfileLine.of(t.text, False, "inferred") for t in shared if plain(t.value) not in asked_for]


def _prices(clause: str) -> Iterator[Trait]:
    """Price bands and amounts of money: "premium", "around 20 dollars"."""
    words = set(stems(clause))
    yield from (
        Trait("price", b) for b, text in word_lists()["price_words"].items() if words & set(text.split())
    )
    for found in _AMOUNT.finditer(clause):
        bound = (found[1] or "around").lower()
        yield Trait("price", f"{bound} {found[2] or found[3]} dollars")


def _says(manner: str, text: str) -> bool:
    """Whether a text has a phrase of a manner: "indifferent", "dissatisfied" or "unknown"."""
    return any(re.search(phrase, text, re.IGNORECASE) for phrase in word_lists()["phrases"][manner])


def _without(profile: ContextualProfile, about: str) -> ContextualProfile:
    """The profile without wishes about an attribute, but for stated ones."""
    kept = [
        line for line in profile.lines if not (about and line.about == about and line.provenance != "stated")
    ]
    return profile.model_copy(update={"lines": tuple(kept)})
