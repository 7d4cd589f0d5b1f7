"""What can be counted of a user: evidence for and against traits of products, and the facts of a profile.

:func:`weigh` collects the evidence. :func:`profile_facts` makes the eleven facts of PersonalWAB's profiles
(Figures 10 and 11) of it and of purchases, ratings and reviews. All thresholds are ours: in the paper a
language model decides what is high and what is low.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median

from pwagents.data.instructions import content_words, kind_of, word_list
from pwagents.profiles.catalogue import TOPIC, Catalogue, Trait, section
from pwagents.profiles.types import OTHER
from pwagents.schema import Behavior, UserProfile

LIKED, DISLIKED = 4, 2  # stars: a product was liked from here on, disliked up to here
_HALF_LIFE = 0.5  # a share of the history: behaviours with so many newer ones count half (tastes drift)
# Of a disliked product each trait is suspect. Those that the review names share the blame among them.
_SUSPICION, _BLAME = 0.5, 1.0
_KEPT = 5  # keywords of a field, at most
_CHEAP, _DEAR = 0.4, 0.6  # mean rank of the prices paid: below is High price sensitivity, above is Low
_NARROW, _WIDE = 0.35, 0.65  # share of the largest possible entropy: below is Low diversity, above is High
_TERSE, _TALKATIVE = 12, 45  # median words of a review: below is Low, from here on High
_ASPECT_WORDS = {  # options of the published prompt, for words of reviews
    **dict.fromkeys(("price", "cheap", "expensive", "value", "worth"), "Price"),
    **dict.fromkeys(("material", "materials", "fabric"), "Material"),
    **dict.fromkeys(("small", "tiny", "large", "fit", "sizing"), "Size"),
    **dict.fromkeys(("weight", "heavy", "light", "lightweight", "bulky"), "Weight"),
}


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
            # Expected by chance: of each liked product, the trait's share in that product's category.
            places = categories[trait.about].items()
            evidence.lift = evidence.liked / sum(n * catalogue.share(trait, place) for place, n in places)
    return list(found.values())


def traits_named(behavior: Behavior, traits: Sequence[Trait]) -> list[Trait]:
    """The traits (topics aside) whose value the review names."""
    review = plain(f"{behavior.review.title} {behavior.review.text}")
    return [trait for trait in traits if trait.about != TOPIC and plain(trait.value) in review]


@lru_cache(maxsize=100_000)  # the same values and reviews come again for each user and product
def plain(text: str) -> str:
    """The words of a text in lower case, with a space around each, so that ``in`` finds whole words."""
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return f" {' '.join(words)} "


def profile_facts(
    history: Sequence[Behavior], evidence: Sequence[Evidence], catalogue: Catalogue
) -> UserProfile:
    """The facts that purchases, ratings and reviews show.

    Gender, age and occupation cannot be counted from them: they are :data:`OTHER`, where the language model
    of the published profiles guesses.

    Args:
        history: oldest first; may be empty.
        evidence: of the history (:func:`weigh`).
    """
    reviews = [f"{b.review.title} {b.review.text}".strip() for b in history]
    return UserProfile(
        gender=OTHER,
        age=OTHER,
        occupation=OTHER,
        price_sensitivity=_price_sensitivity(history, catalogue),
        shopping_interest=_shopping_interest(history, evidence, catalogue),
        brand_preference=_brand_preference(evidence),
        diversity_preference=_diversity(history, catalogue),
        interaction_complexity=_interaction(history),
        tone_and_style=_tone(history, reviews),
        item_reference=_item_reference(history, reviews, catalogue),
        focus_aspect=_focus(history, catalogue),
    )


def _price_sensitivity(history: Sequence[Behavior], catalogue: Catalogue) -> str:
    """From where the prices paid stand among those of like products."""
    ranks = [rank for b in history if (rank := catalogue.price_rank(b.parent_asin)) is not None]
    mean = fmean(ranks) if ranks else 0.5
    return "High" if mean < _CHEAP else "Low" if mean > _DEAR else "Medium"


def _shopping_interest(
    history: Sequence[Behavior], evidence: Sequence[Evidence], catalogue: Catalogue
) -> str:
    """The sections bought from most, and the words that titles of liked products share."""
    products = [catalogue.products[b.parent_asin] for b in history]
    places = _most_common((section(product) for product in products), _KEPT)
    topics = [e for e in evidence if e.trait.about == TOPIC and e.liked >= 2 and e.lift >= 3]
    topics.sort(key=lambda e: (-e.liked * math.log(e.lift), e.trait))
    return ", ".join([*places, *(e.trait.value for e in topics[:_KEPT])]) or OTHER


def _brand_preference(evidence: Sequence[Evidence]) -> str:
    """The brands liked more than once, and more than chance; else those liked most."""
    brands = [e for e in evidence if e.trait.about == "brand" and e.liked]
    brands.sort(key=lambda e: (-e.liked, e.trait))
    special = [e for e in brands if e.liked >= 2 and e.lift >= 1.25]
    return ", ".join(e.trait.value for e in (special or brands)[:_KEPT]) or OTHER


def _diversity(history: Sequence[Behavior], catalogue: Catalogue) -> str:
    """From the entropy of sections bought from, against the most that so many purchases could have."""
    counts = Counter(section(catalogue.products[b.parent_asin]) for b in history)
    n = counts.total()
    entropy = -sum(c / n * math.log(c / n) for c in counts.values())
    share = entropy / math.log(n) if n > 1 else 0.5
    return "High" if share > _WIDE else "Low" if share < _NARROW else "Medium"


def _interaction(history: Sequence[Behavior]) -> str:
    """From the length of reviews: who writes little wants short answers."""
    words = median([len(b.review.text.split()) for b in history] or [_TERSE])
    return "High" if words >= _TALKATIVE else "Low" if words < _TERSE else "Medium"


def _tone(history: Sequence[Behavior], reviews: Sequence[str]) -> str:
    """Keywords, and the user's ratings in numbers."""
    if not history:
        return OTHER
    ratings = [b.review.rating for b in history]
    mean, low = fmean(ratings), fmean(rating <= DISLIKED for rating in ratings)
    exclaiming = fmean("!" in review for review in reviews)
    personal = fmean(" i " in plain(review) or " my " in plain(review) for review in reviews)
    words = {"Low": "Brief", "Medium": "Concise", "High": "Detailed"}
    keywords = [
        "Positive" if mean >= LIKED else "Critical" if mean < 3.5 else "Balanced",
        "Enthusiastic" if exclaiming > 0.4 else "Matter-of-fact" if exclaiming < 0.1 else "Lively",
        words[_interaction(history)],
        *(["Personal"] if personal > 0.5 else []),
    ]
    return f"{', '.join(keywords)} (mean rating {mean:.1f} of 5, {low:.0%} low)"


def _item_reference(history: Sequence[Behavior], reviews: Sequence[str], catalogue: Catalogue) -> str:
    """How many reviews name the product's brand, or what it is."""
    if not history:
        return OTHER
    parts = []
    for thing in ("brand", "product"):
        share = fmean(
            any(plain(name) in plain(review) for name in _names(thing, behavior, catalogue))
            for behavior, review in zip(history, reviews, strict=True)
        )
        how_often = "often" if share > 0.5 else "sometimes" if share > 0.15 else "seldom"
        parts.append(f"{how_often.capitalize()} names the {thing}")
    return ", ".join(parts)


def _names(thing: str, behavior: Behavior, catalogue: Catalogue) -> list[str]:
    """What the brand, or the product, of a behaviour is called."""
    if thing == "product":
        return [kind_of(catalogue.products[behavior.parent_asin])]
    return [trait.value for trait in catalogue.traits(behavior.parent_asin) if trait.about == "brand"]


def _focus(history: Sequence[Behavior], catalogue: Catalogue) -> str:
    """What reviews name most: traits of the product, and words that judge products."""
    aspects: list[str] = []
    for behavior in history:
        named = traits_named(behavior, catalogue.traits(behavior.parent_asin))
        abouts = [trait.about.capitalize() for trait in named]
        judged = [word for word in content_words(behavior.review.text) if word in word_list("aspects")]
        aspects += dict.fromkeys([*abouts, *(_ASPECT_WORDS.get(w, w.capitalize()) for w in judged)])
    return ", ".join(_most_common(aspects, _KEPT)) or OTHER


def _most_common(values: Iterable[str], n: int) -> list[str]:
    counts = Counter(values)
    return sorted(counts, key=lambda value: (-counts[value], value))[:n]
