"""The dynamic profile update (DPU): how a contextual profile follows a session (Orion, section 4.2).

P_ctx,t = G_update(P_ctx,t-1, (a_t-1, o_t)): :class:`OfflineUpdater` does it by rules,
:class:`pwagents.profiles.llm.LlmUpdater` by a language model; :func:`settle` says for both which line
overrides which. Departure: an update also sees the instruction and the steps before, since "none of
these" means nothing without what was shown.
"""

import re
from collections.abc import Sequence
from operator import attrgetter

from pwagents.profiles.catalogue import (
    TOPIC,
    WORD_LISTS,
    Catalogue,
    Trait,
    expresses,
    find_bands,
    spaced_words,
    split_clauses,
)
from pwagents.profiles.contextual import ContextualProfile, ProfileLine, Update
from pwagents.schema import Step
from pwagents.words import content_words

_SEVERAL = ("feature", "mention")  # one may state a second value of these without taking back the first
# "$20", "around 20 dollars", "no more than 15 bucks"
_AMOUNT = re.compile(
    r"(?:\b(around|about|under|below|over|above|up to|at most|at least|(?:no )?(?:less|more) than)\s+)?"
    r"(?:\$\s?(\d+)|\b(\d+)\s?(?:dollars?|usd|bucks)\b)",
    re.IGNORECASE,
)
_OWN_WORDS = 6  # of an answer without any known value, at most
_FEW = 3  # products, at least, before what they share is inferred to be unwanted


def settle(profile: ContextualProfile, new: Sequence[ProfileLine]) -> ContextualProfile:
    """Put new lines before the old ones, less the old ones that they override; wishes before avoidances.

    A value of an attribute stands once, as the last word on it was. A stated wish overrides all other wishes
    about its attribute, whether from history, inferred, or stated earlier (but for attributes of which one
    may want several values). Nothing overrides what was stated but another statement.
    """

    stated = {(old.about, old.value.lower()) for old in profile.lines if old.provenance == "stated"}
    new = [x for x in new if x.provenance == "stated" or (x.about, x.value.lower()) not in stated]
    values = {(line.about, line.value.lower()) for line in new}
    wished = {line.about for line in new if line.provenance == "stated" and line.positive} - {"", TOPIC}
    rest = []
    for old in profile.lines:
        may_stay = old.provenance == "stated" and old.about in _SEVERAL
        is_rival = old.positive and old.about in wished and not may_stay
        if not is_rival and (old.about, old.value.lower()) not in values:
            rest.append(old)
    lines = sorted([*new, *rest], key=attrgetter("positive"), reverse=True)  # as they are told and read again
    return profile.model_copy(update={"lines": tuple(lines)})


def last_results(session: Sequence[Step]) -> tuple[str, ...]:
    """The ids that the shop showed last, before the session's last step."""
    return next((s.observation.products for s in reversed(session[:-1]) if s.observation.products), ())


class OfflineUpdater:
    """Updates a contextual profile by rules, without a language model.

    - What the user says in words of the catalogue (a color, a store, a price) is stated; an answer without
      any is stated in its own words, about what the question was about. "Not" before a value, in the same
      clause, makes it unwanted. A user who does not mind has no preference about that attribute any more.
    - After a complaint, what all products shown last have in common is inferred to be unwanted, unless the
      user asked for it.
    - Results, errors and published reviews say nothing by themselves.
    """

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue

    def __call__(self, profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
        """Make P_ctx,t of P_ctx,t-1 and the session so far, whose last step is the new one."""
        if not session or session[-1].error or session[-1].action.name != "respond":
            return Update(profile)
        about = self.catalogue.find_attribute(str(session[-1].action.arguments.get("content", "")))
        answer = session[-1].observation.text
        if expresses("indifferent", answer):
            rest = [c for c, _ in split_clauses(answer) if not expresses("indifferent", c)]
            lines = [x for x in profile.lines if not about or x.about != about or x.provenance == "stated"]
            profile = profile.model_copy(update={"lines": tuple(lines)})
            return Update(self.hear(profile, ". ".join(rest)))
        if expresses("dissatisfied", answer):
            # What all results share is unwanted, but for what the user asked for.
            results = last_results(session)
            shared = self.catalogue.traits(results[0]) if len(results) >= _FEW else ()
            for asin in results[1:]:
                shared = [trait for trait in shared if trait in self.catalogue.traits(asin)]
            stated = [x.text for x in profile.lines if x.positive and x.provenance == "stated"]
            request = spaced_words(" ".join([instruction, *stated]))
            shared = [t for t in shared if t.about != TOPIC and spaced_words(t.value) not in request]
            profile = settle(profile, [ProfileLine.of(trait.text, False, "inferred") for trait in shared])
            about = about or TOPIC  # a hint may be about anything
        elif expresses("unknown", answer):
            return Update(profile)
        return Update(self.hear(profile, answer, about))

    def hear(self, profile: ContextualProfile, text: str, about: str = "") -> ContextualProfile:
        """The profile after the user said ``text``, perhaps in answer to a question about an attribute."""
        clauses = split_clauses(text)
        is_wanted: dict[Trait, bool] = {}
        for clause, positive in clauses:
            is_wanted |= dict.fromkeys(self.catalogue.find(clause), positive)
            # Price bands and amounts of money: "premium", "around 20 dollars".
            is_wanted |= dict.fromkeys((Trait("price", band) for band in find_bands(clause)), True)
            for match in _AMOUNT.finditer(clause):
                bound = (match[1] or "around").lower()
                is_wanted[Trait("price", f"{bound} {match[2] or match[3]} dollars")] = True
        if not is_wanted:
            # Words that are no values; about anything at all, only words of titles tell.
            empty = WORD_LISTS["answer_words"].split()
            for clause, positive in clauses:
                words = [word for word in content_words(clause) if word not in empty][:_OWN_WORDS]
                own = [Trait(about, " ".join(words))] if about and words else []
                if about == TOPIC:
                    own = filter(self.catalogue.is_used, [Trait(TOPIC, word) for word in words if positive])
                is_wanted |= dict.fromkeys(own, positive)
        lines = [ProfileLine.of(trait.text, positive, "stated") for trait, positive in is_wanted.items()]
        return settle(profile, lines)
