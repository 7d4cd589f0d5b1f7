"""What a user's behaviours say for and against the traits of products."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pwagents.profiles.catalogue import TOPIC, Catalogue, Trait
from pwagents.schema import Behavior

LIKED, DISLIKED = 4, 2  # stars: a product was liked from here on, disliked up to here
_HALF_LIFE = 0.5  # of the behaviours looked at: after so many newer ones, support counts half
_SUSPICION, _BLAME = 0.5, 1.0  # for each trait of a disliked product; shared by those that its review names


@dataclass
class Evidence:
    """What a user's behaviours say about one trait.

    Attributes:
        liked: how many liked products have it.
        praised: how many of their reviews name it.
        support: the sum of both, newer behaviours weighing more.
        blame: what disliked products and their reviews say against it.
        lift: its share among the liked products, as a multiple of its share in their categories.
    """

    trait: Trait
    liked: int = 0
    praised: int = 0
    support: float = 0.0
    blame: float = 0.0
    lift: float = 0.0


def weigh(behaviors: Sequence[Behavior], catalogue: Catalogue) -> list[Evidence]:
    """The evidence on each trait of the products bought, in the order of first purchase.

    Args:
        behaviors: oldest first.
    """
    found: dict[Trait, Evidence] = {}
    categories: dict[str, Counter] = defaultdict(Counter)  # attribute -> of liked products that have it
    for age, behavior in zip(range(len(behaviors) - 1, -1, -1), behaviors, strict=True):
        traits = catalogue.traits(behavior.parent_asin)
        named = traits_named(behavior, traits)
        weight = 0.5 ** (age / (_HALF_LIFE * len(behaviors)))
        if behavior.review.rating >= LIKED:
            category = catalogue.products[behavior.parent_asin].category
            for about in {trait.about for trait in traits}:
                categories[about][category] += 1
        for trait in traits:
            evidence = found.setdefault(trait, Evidence(trait))
            if behavior.review.rating >= LIKED:
                evidence.liked += 1
                evidence.praised += trait in named
                evidence.support += weight * (1 + (trait in named))
            elif behavior.review.rating <= DISLIKED:
                evidence.blame += _SUSPICION + (_BLAME / len(named) if trait in named else 0)
    for trait, evidence in found.items():
        if evidence.liked:
            places = categories[trait.about].items()
            evidence.lift = evidence.liked / sum(n * catalogue.share(trait, place) for place, n in places)
    return list(found.values())


def traits_named(behavior: Behavior, traits: Sequence[Trait]) -> list[Trait]:
    """The traits (topics aside) whose value the review names."""
    review = plain(f"{behavior.review.title} {behavior.review.text}")
    return [trait for trait in traits if trait.about != TOPIC and plain(trait.value) in review]


def plain(text: str) -> str:
    """Its words in lower case, with a space around each, so that ``in`` finds whole words."""
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return f" {' '.join(words)} "
