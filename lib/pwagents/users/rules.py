"""A user without a language model: controlled disclosure by rules, one fact a turn."""

import re
from collections.abc import Iterator, Mapping
from itertools import product as pairs

import numpy as np

from pwagents.schema import Product, Task, UserProfile
from pwagents.seeds import rng
from pwagents.users.facts import Fact, asked_slots, find_run, known_facts, phrases, sentences, stems
from pwagents.users.leaks import first_safe, leaks
from pwagents.users.session import conversation, last_review, last_shown
from pwagents.web.environment import Exchange, UserReply

_QUESTION = re.compile(
    r"\?|\b(what|which|how|do you|would you|could you|can you|tell me|let me know|describe|specify|share)\b",
    re.IGNORECASE,
)


class RuleUser:
    """Answers what it is asked, with one fact at a time, and otherwise says what it thinks of the results.

    - A question about something it knows: one fact about it that it has not told yet; else, before results,
      an old one again, as such. About something it knows nothing of: it does not mind, or does not know.
    - Any other word after results: content when the target is among the products shown last (in a review
      task: when the review brings up at least half of its points), else not, with one fact as a hint.
    - A question about anything ("What are you looking for?"): the next fact.

    It is an offline form of PersonalWAB's Figure 15: it reads the target's page or the real review, and
    nothing that it says leaks (:mod:`pwagents.users.leaks`). What it told follows from the session, and the
    instruction's words count as told.

    Args:
        products: the catalogue.
        profiles: user_id -> profile, where the benchmark has them.
        seed: chooses the wording; which fact is told does not depend on it.
    """

    def __init__(
        self,
        products: Mapping[str, Product],
        profiles: Mapping[str, UserProfile] | None = None,
        seed: int = 0,
    ):
        self.products, self.profiles, self.seed = products, profiles or {}, seed
        self._facts: dict[Task, tuple[Fact, ...]] = {}  # read from the pages once

    def __call__(self, task: Task, session: tuple[Exchange, ...], says: str) -> UserReply:
        """The user's answer. Costs nothing."""
        manner, fact = self.react(task, session, says)
        generator = rng(self.seed, "rule user", task.task_id, str(len(session)))
        lines = self.phrasings(manner, fact, generator)
        return UserReply(first_safe(lines, task, self.products[task.target]))

    def facts(self, task: Task) -> tuple[Fact, ...]:
        """All that the user can tell of a task without a leak."""
        if task not in self._facts:
            product = self.products[task.target]
            self._facts[task] = tuple(
                fact
                for fact in known_facts(task, product, self.profiles.get(task.user_id))
                if not all(leaks(sentence, task, product) for sentence in sentences(fact))
            )
        return self._facts[task]

    def react(self, task: Task, session: tuple[Exchange, ...], says: str) -> tuple[str, Fact | None]:
        """The manner of the answer (of ``phrases.yaml``), and the fact that it tells."""
        facts = self.facts(task)
        heard = [task.instruction, *(answer for _, answer in conversation(session))]
        untold = [fact for fact in facts if all(find_run(fact.value, line) is None for line in heard)]
        missing = _missing(task, session, facts)
        is_question = bool(_QUESTION.search(says))
        slots = asked_slots(says, task, facts) if is_question else []
        about = [fact for slot in slots for fact in facts if fact.slot == slot]
        about.sort(key=lambda fact: find_run(fact.value, says) is None)  # what the agent guessed right, first
        if new := [fact for fact in about if fact in untold]:
            return "tell", new[0]
        if slots and not about:
            return ("unknown" if "identity" in slots else "indifferent"), None
        if missing is not None:
            return _judge(missing, untold)
        if about:
            return "repeat", about[0]
        if is_question and set(stems(says)) & set(stems(phrases()["open"])):
            return ("tell", untold[0]) if untold else ("nothing_more", None)
        return ("unknown" if is_question else "go_on"), None

    def phrasings(self, manner: str, fact: Fact | None, generator: np.random.Generator) -> Iterator[str]:
        """All ways to say it, in a seeded order."""
        templates = _shuffled(phrases()["manners"][manner], generator)
        told = _shuffled(sentences(fact), generator) if fact else [""]
        return (template.format(fact=sentence) for sentence, template in pairs(told, templates))


def _judge(missing: tuple[Fact, ...], untold: list[Fact]) -> tuple[str, Fact | None]:
    """What to say of a result, with a hint where there is one left."""
    if not missing:
        return "satisfied", None
    hints = [fact for fact in untold if fact in missing]
    return ("dissatisfied", hints[0]) if hints else ("disappointed", None)


def _missing(task: Task, session: tuple[Exchange, ...], facts: tuple[Fact, ...]) -> tuple[Fact, ...] | None:
    """The facts that the last result does not live up to; none when it is right. None: no result yet."""
    if task.type == "review":
        if (review := last_review(task, session)) is None:
            return None
        points = [fact for fact in facts if fact.slot == "mention"]
        missing = tuple(fact for fact in points if find_run(fact.value, review) is None)
        return missing if 2 * len(missing) > len(points) else ()
    shown = last_shown(session)
    return None if shown is None else () if task.target in shown else facts


def _shuffled(options: list[str], generator: np.random.Generator) -> list[str]:
    return [options[i] for i in generator.permutation(len(options))]
