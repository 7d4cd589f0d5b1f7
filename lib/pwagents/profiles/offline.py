"""Profiles by statistics, without a language model: what a user buys, likes and rejects more than chance.

The offline form of Orion's global profile and micro-profiles (section 4.1): it reads the same behaviors and
makes the same objects, from behaviors and catalogue alone. :func:`collect_evidence` counts what speaks for
and against traits of products; :func:`count_facts` derives the eleven facts of PersonalWAB's profiles
(Figures 10 and 11) from it and from purchases, ratings and reviews. All thresholds are ours: in the papers a
language model decides.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from pwagents.profiles.catalogue import TOPIC, Catalogue, Trait, spaced_words
from pwagents.profiles.clusters import section
from pwagents.profiles.types import OTHER, GlobalProfile, MicroProfile
from pwagents.progress import progress
from pwagents.schema import Behavior, UserProfile
from pwagents.words import content_words, kind_of, word_list

_LIKED, _DISLIKED = 4, 2  # stars: at least for a product that was liked, at most for one that was disliked
_HALF_LIFE = 0.5  # a share of the history: behaviors with so many newer ones count half (tastes drift)
# Each trait of a disliked product is suspect. Those that the review names share the blame.
_SUSPICION, _BLAME = 0.5, 1.0
# One purchase makes no preference. Titles have many words ("topics"), some of which recur by chance: their
# thresholds are higher.
_LEAST_VOICES, _LEAST_TOPIC_LIKED = 2, 2  # liked products with a trait, plus reviews that praise it
_LEAST_LIFT, _LEAST_TOPIC_LIFT = 1.25, 3.0  # times as common as in the categories bought from
_LEAST_BLAME = 1.0  # a bad review that names it and at most one trait more; or two bad products with it
_RIVAL = 0.9  # of the best value's support, for a second value of the same attribute
_VALUES, _TOPICS = 2, 3  # at most, of an attribute and of the titles' other words
_GLOBAL_LINES, _MICRO_LINES, _NEGATIVE_LINES = 12, 10, 6
_KEYWORDS = 5  # of a field, at most
_ASPECT_WORDS = {  # options of the published prompt, for words of reviews
    **dict.fromkeys(("price", "cheap", "expensive", "value", "worth"), "Price"),
    **dict.fromkeys(("material", "materials", "fabric"), "Material"),
    **dict.fromkeys(("small", "tiny", "large", "fit", "sizing"), "Size"),
    **dict.fromkeys(("weight", "heavy", "light", "lightweight", "bulky"), "Weight"),
}


class OfflineProfiler:
    """Makes profiles by counting (:func:`collect_evidence`).

    A trait is a preference if at least two liked products or reviews support it and it is more common among
    the liked products than in their categories; of each attribute the best supported value remains. It is to
    be avoided if disliked products and their reviews blame it more than liked ones support it.
    """

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue

    def write_global(self, histories: Sequence[tuple[Behavior, ...]]) -> list[GlobalProfile]:
        """Make the global profile of each history (oldest first)."""
        profiles = []
        for history in progress(histories, "global profiles"):
            evidence = collect_evidence(history, self.catalogue)
            facts = count_facts(history, evidence, self.catalogue)
            wanted = _preferences(evidence, _GLOBAL_LINES)
            profiles.append(GlobalProfile(facts=facts, positive=wanted, negative=_avoidances(evidence)))
        return profiles

    def write_micro(self, samples: Sequence[tuple[str, tuple[Behavior, ...]]]) -> list[MicroProfile]:
        """Make the micro-profile of each sample: a cluster's name and behaviors of it, oldest first."""
        profiles = []
        for _, behaviors in progress(samples, "micro-profiles"):
            evidence = collect_evidence(behaviors, self.catalogue)
            wanted = _preferences(evidence, _MICRO_LINES)
            profiles.append(MicroProfile(recommendations=wanted, avoidances=_avoidances(evidence)))
        return profiles


@dataclass
class Evidence:
    """What a user's behaviors say about one trait."""

    trait: Trait
    liked: int = 0  # how many liked products have it
    praised: int = 0  # how many of their reviews name it
    support: float = 0.0  # the sum of both, newer behaviors weighing more
    blame: float = 0.0  # what disliked products and their reviews say against it
    lift: float = 0.0  # its share among the liked products, as a multiple of its share in their categories

    @property
    def is_preferred(self) -> bool:
        """Return whether the user wants the trait, by the thresholds above."""
        if self.trait.about == TOPIC:
            return self.liked >= _LEAST_TOPIC_LIKED and self.lift >= _LEAST_TOPIC_LIFT
        voices = self.liked + self.praised
        return voices >= _LEAST_VOICES and voices > self.blame and self.lift >= _LEAST_LIFT


def collect_evidence(behaviors: Sequence[Behavior], catalogue: Catalogue) -> list[Evidence]:
    """Return the evidence on each trait of the products bought (oldest first), in the order of purchase."""
    by_trait: dict[Trait, Evidence] = {}
    categories: dict[str, Counter] = defaultdict(Counter)  # attribute -> of liked products that have it
    for age, behavior in zip(range(len(behaviors) - 1, -1, -1), behaviors, strict=True):
        traits = catalogue.traits(behavior.parent_asin)
        named = _traits_named(behavior, traits)
        weight = 0.5 ** (age / (_HALF_LIFE * len(behaviors)))
        if behavior.review.rating >= _LIKED:
            category = catalogue.products[behavior.parent_asin].category
            for about in {trait.about for trait in traits}:
                categories[about][category] += 1
        for trait in traits:
            evidence = by_trait.setdefault(trait, Evidence(trait))
            if behavior.review.rating >= _LIKED:
                evidence.liked += 1
                evidence.praised += trait in named
                evidence.support += weight * (1 + (trait in named))
            elif behavior.review.rating <= _DISLIKED:
                evidence.blame += _SUSPICION + (_BLAME / len(named) if trait in named else 0)
    for trait, evidence in by_trait.items():
        # Expected by chance: of each liked product, the trait's share in that product's category.
        expected = sum(n * catalogue.share(trait, place) for place, n in categories[trait.about].items())
        evidence.lift = evidence.liked / expected if evidence.liked else 0.0
    return list(by_trait.values())


def count_facts(
    history: Sequence[Behavior], evidence: Sequence[Evidence], catalogue: Catalogue
) -> UserProfile:
    """Make the facts that purchases, ratings and reviews show; the history may be empty.

    Departure: gender, age and occupation are :data:`OTHER`, since counting does not tell them; the language
    model of the published profiles guesses.
    """
    products = [catalogue.products[b.parent_asin] for b in history]

    # Shopping: the prices paid, ranked among those of similar products; the sections bought from most, and
    # the words that titles of liked products share; the brands liked more than once and more than chance,
    # else those liked most.
    ranks = [rank for b in history if (rank := catalogue.price_rank(b.parent_asin)) is not None]
    mean_rank = fmean(ranks) if ranks else 0.5
    sections = Counter(map(section, products))
    topics = [e for e in evidence if e.trait.about == TOPIC and e.is_preferred]
    topics.sort(key=lambda e: (-e.liked * math.log(e.lift), e.trait))
    interests = [*most_common(sections, _KEYWORDS), *(e.trait.value for e in topics[:_KEYWORDS])]
    brands = [e for e in evidence if e.trait.about == "brand" and e.liked]
    brands.sort(key=lambda e: (-e.liked, e.trait))
    brands = [e for e in brands if e.liked >= 2 and e.lift >= 1.25] or brands

    # Behavior: the entropy of sections, as a share of its maximum for so many purchases; the length of
    # reviews, since users who write little want short answers.
    n = len(history)
    entropy = -sum(c / n * math.log(c / n) for c in sections.values())
    diversity = entropy / math.log(n) if n > 1 else 0.5
    words = median([len(b.review.text.split()) for b in history] or [12])
    interaction = "High" if words >= 45 else "Low" if words < 12 else "Medium"
    return UserProfile(
        gender=OTHER,
        age=OTHER,
        occupation=OTHER,
        price_sensitivity=_level(-mean_rank, -0.6, -0.4),  # users who pay little are sensitive
        shopping_interest=", ".join(interests) or OTHER,
        brand_preference=", ".join(e.trait.value for e in brands[:_KEYWORDS]) or OTHER,
        diversity_preference=_level(diversity, 0.35, 0.65),
        interaction_complexity=interaction,
        tone_and_style=_tone(history, interaction),
        item_reference=_item_reference(history, catalogue),
        focus_aspect=_focus(history, catalogue),
    )


def _level(value: float, low: float, high: float) -> str:
    return "High" if value > high else "Low" if value < low else "Medium"


def _tone(history: Sequence[Behavior], interaction: str) -> str:
    """Return keywords, and the user's ratings in numbers."""
    if not history:
        return OTHER
    ratings, reviews = [b.review.rating for b in history], [_review_text(b) for b in history]
    mean, low = fmean(ratings), fmean(rating <= _DISLIKED for rating in ratings)
    exclaiming = fmean("!" in review for review in reviews)
    personal = fmean(" i " in spaced_words(text) or " my " in spaced_words(text) for text in reviews)
    keywords = [
        "Positive" if mean >= _LIKED else "Critical" if mean < 3.5 else "Balanced",
        "Enthusiastic" if exclaiming > 0.4 else "Matter-of-fact" if exclaiming < 0.1 else "Lively",
        {"Low": "Brief", "Medium": "Concise", "High": "Detailed"}[interaction],
        *(["Personal"] if personal > 0.5 else []),
    ]
    return f"{', '.join(keywords)} (mean rating {mean:.1f} of 5, {low:.0%} low)"


def _item_reference(history: Sequence[Behavior], catalogue: Catalogue) -> str:
    """Return how often reviews name the product's brand, or what the product is."""
    named = {"brand": 0, "product": 0}
    for behavior in history:
        review, asin = spaced_words(_review_text(behavior)), behavior.parent_asin
        brands = [trait.value for trait in catalogue.traits(asin) if trait.about == "brand"]
        named["brand"] += any(spaced_words(brand) in review for brand in brands)
        named["product"] += spaced_words(kind_of(catalogue.products[asin])) in review
    shares = {thing: count / len(history) for thing, count in named.items() if history}
    often = {x: "Often" if n > 0.5 else "Sometimes" if n > 0.15 else "Seldom" for x, n in shares.items()}
    return ", ".join(f"{how} names the {thing}" for thing, how in often.items()) or OTHER


def _focus(history: Sequence[Behavior], catalogue: Catalogue) -> str:
    """Return what reviews name most: traits of the product, and words that judge products."""
    aspects: list[str] = []
    for behavior in history:
        named = _traits_named(behavior, catalogue.traits(behavior.parent_asin))
        judged = [word for word in content_words(behavior.review.text) if word in word_list("aspects")]
        words = [_ASPECT_WORDS.get(word, word.capitalize()) for word in judged]
        aspects += dict.fromkeys([*(trait.about.capitalize() for trait in named), *words])
    return ", ".join(most_common(aspects, _KEYWORDS)) or OTHER


def _preferences(evidence: Sequence[Evidence], most: int) -> tuple[str, ...]:
    """Return the best supported values of each attribute, attributes before topics."""
    by_about: dict[str, list[Evidence]] = defaultdict(list)
    for each in evidence:
        if each.is_preferred:
            by_about[each.trait.about].append(each)
    chosen: list[Evidence] = []
    for about, values in by_about.items():
        values.sort(key=lambda e: (-e.support, e.trait))
        values = values[: _TOPICS if about == TOPIC else _VALUES]
        chosen += [e for e in values if e.support >= _RIVAL * values[0].support]
    chosen.sort(key=lambda e: (e.trait.about == TOPIC, -e.support, e.trait))
    return tuple(e.trait.text for e in chosen[:most])


def _avoidances(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """Return what disliked products have in common, the most blamed first."""
    blamed = [e for e in evidence if e.blame >= max(_LEAST_BLAME, e.liked + e.praised + 0.5)]
    blamed.sort(key=lambda e: (-e.blame, e.trait))
    return tuple([e.trait.text for e in blamed if e.trait.about != TOPIC][:_NEGATIVE_LINES])


def _traits_named(behavior: Behavior, traits: Sequence[Trait]) -> list[Trait]:
    """Return the traits (without topics) whose value the review names."""
    review = spaced_words(_review_text(behavior))
    return [trait for trait in traits if trait.about != TOPIC and spaced_words(trait.value) in review]


def _review_text(behavior: Behavior) -> str:
    return f"{behavior.review.title} {behavior.review.text}".strip()


def most_common(values: Iterable[str], n: int) -> list[str]:
    """Return the ``n`` most common values, ties in alphabetical order."""
    counts = Counter(values)
    return sorted(counts, key=lambda value: (-counts[value], value))[:n]
