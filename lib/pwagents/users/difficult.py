"""Users who make it harder: each differs from the cooperative one in a single way.

No paper has them; the shares are ours. What they say leaks no more than what the cooperative user says.
"""

from collections.abc import Iterator
from itertools import chain
from itertools import product as pairs

import numpy as np

from pwagents.profiles.contextual import ContextualProfile
from pwagents.schema import Step, Task
from pwagents.seeds import rng
from pwagents.shop.search import product_text
from pwagents.users.rules import Fact, RuleUser, find_run, is_result, product_facts

VAGUE = 0.5  # of the answers that would give something
WRONG = 0.1  # likewise


class TerseUser(RuleUser):
    """Says the value and nothing around it: "navy" in place of "Best in navy."."""

    def phrasings(self, manner: str, fact: Fact | None, generator: np.random.Generator) -> Iterator[str]:
        """Return the value first; a whole sentence if the value alone leaks."""
        return chain([fact.value] if fact else [], super().phrasings(manner, fact, generator))


class VagueUser(RuleUser):
    """Does not know what to say to half of the questions that the cooperative user would answer."""

    def react(
        self, task: Task, session: tuple[Step, ...], says: str, profile: ContextualProfile | None = None
    ) -> tuple[str, Fact | None]:
        manner, fact = super().react(task, session, says, profile)
        withholds = rng(self.seed, "vague user", task.task_id, str(len(session))).random() < VAGUE
        return ("unknown", None) if manner == "tell" and withholds else (manner, fact)


class WrongUser(RuleUser):
    """Gives a wrong answer to a tenth of the questions.

    It is true of another product of the category, and does not stand on the target's page. A fact for which a
    wrong one was given may still come out at a further question. Reviews, and hints on results, are right.
    """

    def react(
        self, task: Task, session: tuple[Step, ...], says: str, profile: ContextualProfile | None = None
    ) -> tuple[str, Fact | None]:
        manner, fact = super().react(task, session, says, profile)
        generator = rng(self.seed, "wrong user", task.task_id, str(len(session)))
        if manner != "tell" or generator.random() >= WRONG:
            return manner, fact
        # Facts of the same slot that products of the target's category have, and the target has not.
        target = self.products[task.target]
        page = product_text(target)
        peers = [product for product in self.products.values() if product.category == target.category]
        facts = {other for peer in peers for other in product_facts(peer) if other.slot == fact.slot}
        others = sorted(other for other in facts if find_run(other.value, page) is None)
        return manner, others[generator.integers(len(others))] if others else fact


class ImpatientUser(RuleUser):
    """Answers one question, and then none before they have seen something."""

    def react(
        self, task: Task, session: tuple[Step, ...], says: str, profile: ContextualProfile | None = None
    ) -> tuple[str, Fact | None]:
        manner, fact = super().react(task, session, says, profile)
        # Only answers since the last result count: who has seen something answers once more.
        last = max((i for i, step in enumerate(session) if is_result(step)), default=-1)
        answers = [step.observation.text for step in session[last + 1 :] if step.is_talk]
        known = [each.value for each in (*self.facts(task), *(profile.lines if profile else ()))]
        has_answered = any(find_run(value, text) is not None for value, text in pairs(known, answers))
        return ("impatient", None) if manner == "tell" and has_answered else (manner, fact)


DIFFICULT = {"terse": TerseUser, "vague": VagueUser, "wrong": WrongUser, "impatient": ImpatientUser}
