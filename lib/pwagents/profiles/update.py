"""The dynamic profile update (DPU): how a contextual profile changes in a session (Orion, section 4.2).

P_ctx,t = G_update(P_ctx,t-1, (a_t-1, o_t)): :class:`OfflineUpdater` applies rules,
:class:`pwagents.profiles.llm.LlmUpdater` a language model; :func:`merge_lines` decides for both which line
overrides which. Departure: an update also sees the instruction and the earlier steps, since "none of these"
means nothing without the results.
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

_SEVERAL = ("feature", "mention")  # stating a second value of these does not withdraw the first
# "$20", "around 20 dollars", "no more than 15 bucks"
_AMOUNT = re.compile(
    r"(?:\b(around|about|under|below|over|above|up to|at most|at least|(?:no )?(?:less|more) than)\s+)?"
    r"(?:\$\s?(\d+)|\b(\d+)\s?(?:dollars?|usd|bucks)\b)",
    re.IGNORECASE,
)
_MOST_WORDS = 6  # of an answer without any known value
_LEAST_RESULTS = 3  # before what all of them share is inferred to be unwanted


def merge_lines(profile: ContextualProfile, new: Sequence[ProfileLine]) -> ContextualProfile:
    """Return the profile with new lines first and without the lines that they override; wishes come first.

    Each value of an attribute has one line, the latest. A stated wish overrides all other wishes about its
    attribute, whether from history, inferred, or stated earlier (except for attributes of which a user may
    want several values). Only another statement overrides a stated line.
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
    lines = sorted([*new, *rest], key=attrgetter("positive"), reverse=True)  # as prompts list them
    return profile.model_copy(update={"lines": tuple(lines)})


def last_results(session: Sequence[Step]) -> tuple[str, ...]:
    """Return the product ids of the latest results before the session's last step."""
    return next((s.observation.products for s in reversed(session[:-1]) if s.observation.products), ())


class OfflineUpdater:
    """Updates a contextual profile by rules, without a language model.

    - Values of the catalogue in an answer (a color, a store, a price) become stated lines; an answer without
      any becomes a line in its own words about the attribute that the question named. "Not" before a value,
      in the same clause, makes it unwanted. If the user does not mind, preferences about that attribute that
      were not stated are dropped.
    - After a complaint, what all products of the latest results share is inferred to be unwanted, unless the
      user asked for it.
    - Results, errors and published reviews alone change nothing.
    """

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue

    def __call__(self, profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
        """Return P_ctx,t, given P_ctx,t-1 and the session so far, whose last step is the new one."""
        if not session or session[-1].error or session[-1].action.name != "respond":
            return Update(profile)
        about = self.catalogue.find_attribute(str(session[-1].action.arguments.get("content", "")))
        answer = session[-1].observation.text
        if expresses("indifferent", answer):
            rest = [c for c, _ in split_clauses(answer) if not expresses("indifferent", c)]
            lines = [x for x in profile.lines if not about or x.about != about or x.provenance == "stated"]
            profile = profile.model_copy(update={"lines": tuple(lines)})
            return Update(self.apply_statement(profile, ". ".join(rest)))
        if expresses("dissatisfied", answer):
            # What all results share is unwanted, except for what the user asked for.
            results = last_results(session)
            shared = self.catalogue.traits(results[0]) if len(results) >= _LEAST_RESULTS else ()
            for asin in results[1:]:
                shared = [trait for trait in shared if trait in self.catalogue.traits(asin)]
            stated = [x.text for x in profile.lines if x.positive and x.provenance == "stated"]
            request = spaced_words(" ".join([instruction, *stated]))
            shared = [t for t in shared if t.about != TOPIC and spaced_words(t.value) not in request]
            unwanted = [ProfileLine.of(trait.text, False, "inferred") for trait in shared]
            profile = merge_lines(profile, unwanted)
            about = about or TOPIC  # a hint may be about anything
        elif expresses("unknown", answer):
            return Update(profile)
        return Update(self.apply_statement(profile, answer, about))

    def apply_statement(self, profile: ContextualProfile, text: str, about: str = "") -> ContextualProfile:
        """Return the profile after the user said ``text``.

        Args:
            about: the attribute that the answered question named; empty if it named none.
        """
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
            # Words that are no known values; after an open question only words of titles count.
            empty = WORD_LISTS["answer_words"].split()
            for clause, positive in clauses:
                words = [word for word in content_words(clause) if word not in empty][:_MOST_WORDS]
                own = [Trait(about, " ".join(words))] if about and words else []
                if about == TOPIC:
                    own = filter(self.catalogue.is_used, [Trait(TOPIC, word) for word in words if positive])
                is_wanted |= dict.fromkeys(own, positive)
        lines = [ProfileLine.of(trait.text, positive, "stated") for trait, positive in is_wanted.items()]
        return merge_lines(profile, lines)
