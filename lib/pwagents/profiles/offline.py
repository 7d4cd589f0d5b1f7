"""Profiles by statistics, without a language model: what a user buys, likes and rejects more than chance.

The offline form of Orion's global profile and micro-profiles (section 4.1): it reads the same behaviours and
makes the same objects. It knows nothing but behaviours and catalogue.
"""

from collections import defaultdict
from collections.abc import Sequence

from pwagents.profiles.catalogue import TOPIC, Catalogue
from pwagents.profiles.facts import Evidence, profile_facts, weigh
from pwagents.profiles.types import GlobalProfile, MicroProfile
from pwagents.progress import progress
from pwagents.schema import Behavior

# Thresholds of a preference; ours, since in the papers a language model decides. One purchase makes none.
# Words of titles ("topics") are many, so that some recur by chance: they must stand out more.
_LEAST_VOICES, _LEAST_TOPIC_LIKED = 2, 2  # liked products with a trait, plus reviews that praise it
_LEAST_LIFT, _LEAST_TOPIC_LIFT = 1.25, 3.0  # times as common as in the categories bought from
_LEAST_BLAME = (
    1.0  # one bad review that names it, and at most one trait more; or two bad products that have it
)
_RIVAL = 0.9  # of the best value's support, for a second value of the same attribute
_VALUES, _TOPICS = 2, 3  # at most, of an attribute and of the titles' other words
_GLOBAL_LINES, _MICRO_LINES, _NEGATIVE_LINES = 12, 10, 6


class OfflineProfiler:
    """Makes profiles by counting (:func:`pwagents.profiles.facts.weigh`).

    A trait is a preference when at least two voices speak for it (liked products, reviews that praise it) and
    it is more common among the liked products than in their categories; of each attribute the best supported
    value is kept. It is to be avoided when disliked products and their reviews blame it, and liked ones
    speak less for it.

    Args:
        catalogue: what the behaviours are measured against.
    """

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue

    def whole(self, histories: Sequence[tuple[Behavior, ...]]) -> list[GlobalProfile]:
        """The global profile of each history (oldest first)."""
        return [self._whole(history) for history in progress(histories, "global profiles")]

    def micro(self, parts: Sequence[tuple[str, tuple[Behavior, ...]]]) -> list[MicroProfile]:
        """The micro-profile of each part: the name of a cluster, and behaviours of it, oldest first."""
        return [self._micro(behaviors) for _, behaviors in progress(parts, "micro-profiles")]

    def _whole(self, history: tuple[Behavior, ...]) -> GlobalProfile:
        evidence = weigh(history, self.catalogue)
        return GlobalProfile(
            facts=profile_facts(history, evidence, self.catalogue),
            positive=_preferences(evidence, _GLOBAL_LINES),
            negative=_avoidances(evidence),
        )

    def _micro(self, behaviors: tuple[Behavior, ...]) -> MicroProfile:
        evidence = weigh(behaviors, self.catalogue)
        return MicroProfile(
            recommendations=_preferences(evidence, _MICRO_LINES), avoidances=_avoidances(evidence)
        )


def _preferences(evidence: Sequence[Evidence], most: int) -> tuple[str, ...]:
    """The best supported values of each attribute, attributes before topics."""
    by_about: dict[str, list[Evidence]] = defaultdict(list)
    for found in evidence:
        if _is_preferred(found):
            by_about[found.trait.about].append(found)
    kept: list[Evidence] = []
    for about, values in by_about.items():
        values.sort(key=lambda found: (-found.support, found.trait))
        values = values[: _TOPICS if about == TOPIC else _VALUES]
        kept += [found for found in values if found.support >= _RIVAL * values[0].support]
    kept.sort(key=lambda found: (found.trait.about == TOPIC, -found.support, found.trait))
    return tuple(found.trait.text for found in kept[:most])


def _is_preferred(found: Evidence) -> bool:
    voices = found.liked + found.praised
    if found.trait.about == TOPIC:
        return found.liked >= _LEAST_TOPIC_LIKED and found.lift >= _LEAST_TOPIC_LIFT
    return voices >= _LEAST_VOICES and voices > found.blame and found.lift >= _LEAST_LIFT


def _avoidances(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """What disliked products have in common, the most blamed first."""
    blamed = [
        found
        for found in evidence
        if found.trait.about != TOPIC and found.blame >= max(_LEAST_BLAME, found.liked + found.praised + 0.5)
    ]
    blamed.sort(key=lambda found: (-found.blame, found.trait))
    return tuple(found.trait.text for found in blamed[:_NEGATIVE_LINES])
