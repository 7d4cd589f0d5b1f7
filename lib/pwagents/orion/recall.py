"""Which past purchases a contextual profile tells.

The recommender takes ids and nothing else. So of the interest that an instruction calls for, those ids are
told that have the most of what the user stated, by now. A question before a recommendation is then worth
something: with its answer the ids are told anew. An amount of money chooses none, a price band does.

Departure: Orion's profiles hold no ids, and the paper does not say how its recommendations come to theirs.
"""

from collections.abc import Sequence

from pwagents.orion.wishes import WishReader
from pwagents.profiles.types import ContextualProfile
from pwagents.profiles.update import Update, Updater
from pwagents.schema import Step

BOUGHT = 5  # ids told, at most


class Recall:
    """Tells ids beside a profile's lines.

    Args:
        read: knows what lines and products have in common.
    """

    def __init__(self, read: WishReader):
        self.read = read

    def __call__(self, profile: ContextualProfile, bought: Sequence[str]) -> ContextualProfile:
        """The profile with ids: of the products that have the most stated values, the last :data:`BOUGHT`.

        Args:
            bought: ids of one interest, oldest first; one that was bought twice is told once.
        """
        stated = [line for line in profile.lines if line.positive and line.provenance == "stated"]
        wanted = {(about, value.lower()) for line in stated for about, value in self.read.traits(line)}
        fits = [len(wanted.intersection(self._traits(asin))) for asin in bought]
        best = [asin for asin, n in zip(bought, fits, strict=True) if n == max(fits)]
        return profile.model_copy(update={"bought": tuple(dict.fromkeys(reversed(best)))[:BOUGHT][::-1]})

    def _traits(self, asin: str) -> list[tuple[str, str]]:
        return [(trait.about, trait.value.lower()) for trait in self.read.catalogue.traits(asin)]

    def after(self, update: Updater, bought: Sequence[str]) -> Updater:
        """An update of one episode's profile, and then of its ids."""

        def updated(profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
            made = update(profile, instruction, session)
            return made._replace(profile=self(made.profile, bought))

        return updated
