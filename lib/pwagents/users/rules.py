"""A user without a language model: controlled disclosure by rules, one fact a turn."""

import re
from collections.abc import Iterator, Mapping
from itertools import product as pairs

import numpy as np

from pwagents.schema import Product, Step, Task, UserProfile
from pwagents.seeds import rng
from pwagents.users.facts import (
    Fact,
    asked_slots,
    find_run,
    phrases,
    product_facts,
    review_facts,
    sentences,
    stems,
)
from pwagents.users.leaks import first_safe, leaks
from pwagents.web.environment import UserReply
from pwagents.web.functions import DETAILS_FUNCTION

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

    def __call__(self, task: Task, session: tuple[Step, ...], says: str) -> UserReply:
        """Answer the agent. Costs nothing."""
        manner, fact = self.react(task, session, says)
        generator = rng(self.seed, "rule user", task.task_id, str(len(session)))
        lines = self.phrasings(manner, fact, generator)
        return UserReply(first_safe(lines, task, self.products[task.target]))

    def facts(self, task: Task) -> tuple[Fact, ...]:
        """List all that the user can tell of a task without a leak; no value twice."""
        if task not in self._facts:
            product, profile = self.products[task.target], self.profiles.get(task.user_id)
            facts = review_facts(task.review) if task.type == "review" else product_facts(product, profile)
            first: dict[str, Fact] = {}
            for fact in facts:
                first.setdefault(fact.value.lower(), fact)
            self._facts[task] = tuple(
                fact
                for fact in first.values()
                if not all(leaks(sentence, task, product) for sentence in sentences(fact))
            )
        return self._facts[task]

    def react(self, task: Task, session: tuple[Step, ...], says: str) -> tuple[str, Fact | None]:
        """Choose the manner of the answer (of ``phrases.yaml``), and the fact that it tells."""
        facts = self.facts(task)
        lines = [task.instruction, *(step.observation.text for step in session if step.is_talk)]
        untold = [fact for fact in facts if all(find_run(fact.value, line) is None for line in lines)]

        # A question about something: a new fact about it. What the agent guessed right comes first.
        is_question = bool(_QUESTION.search(says))
        slots = asked_slots(says, task, facts) if is_question else []
        about = [fact for slot in slots for fact in facts if fact.slot == slot]
        right = [fact for fact in about if find_run(fact.value, says) is not None]
        about = [*right, *(fact for fact in about if fact not in right)]
        if new := [fact for fact in about if fact in untold]:
            return "tell", new[0]
        if slots and not about:
            return ("unknown" if "identity" in slots else "indifferent"), None

        # A result: whether it is right, and a hint where it is not and one is left.
        if task.type == "review":
            results = [step.action.arguments["review"] for step in session if is_review(step)]
            points = [fact for fact in facts if fact.slot == "mention"]
            missing = [fact for fact in points if results and find_run(fact.value, results[-1]) is None]
            is_right = 2 * len(missing) <= len(points)
        else:
            results = [step.observation.products for step in session if is_result(step)]
            missing, is_right = facts, bool(results) and task.target in results[-1]
        if results and is_right:
            return "satisfied", None
        if results:
            hints = [fact for fact in untold if fact in missing]
            return ("dissatisfied", hints[0]) if hints else ("disappointed", None)

        # Before any result: an old fact again, or the next one where the question is about anything at all.
        if about:
            return "repeat", about[0]
        if is_question and set(stems(says)) & set(stems(phrases()["open"])):
            return ("tell", untold[0]) if untold else ("nothing_more", None)
        return ("unknown" if is_question else "go_on"), None

    def phrasings(self, manner: str, fact: Fact | None, generator: np.random.Generator) -> Iterator[str]:
        """Say it in all ways, in a seeded order."""
        templates, texts = phrases()["manners"][manner], sentences(fact) if fact else [""]
        templates = [templates[i] for i in generator.permutation(len(templates))]
        texts = [texts[i] for i in generator.permutation(len(texts))]
        return (template.format(fact=text) for text, template in pairs(texts, templates))


def is_review(step: Step) -> bool:
    """Whether the agent published a review."""
    return step.action.name == "add_product_review" and not step.error


def is_result(step: Step) -> bool:
    """Whether the shop answered the task; looking a product up is the agent's own business."""
    return step.action.name not in ("respond", DETAILS_FUNCTION) and not step.error
