"""The people of the synthetic world: who they are (latent truth) and what they buy because of it."""

from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np

from pwagents.data.synthetic.shop import Domain, Item, Shelf, domains, language

DISLIKED_SLOTS = ("material", "style", "flavor", "diet", "scent", "color")


@dataclass(frozen=True)
class Interest:
    """One of a user's interests: a domain, how often it comes up, and what the user prefers in it.

    ``initial`` and ``current`` map each slot to the preferred value before and after the user's tastes
    drift; they are the same where nothing drifts.
    """

    domain: Domain
    weight: float
    initial: dict[str, str]
    current: dict[str, str]


@dataclass(frozen=True)
class Person:
    """Latent truth about one user. For evaluation and the user simulator alone; no agent sees it.

    Likes belong to one interest, dislikes to the person: the division of Orion's contextual profile, which
    joins the global profile's negatives with the positives of the interest at hand (section 4.1).
    """

    user_id: str
    interests: tuple[Interest, ...]
    dislikes: frozenset[str]  # values avoided in every domain
    tone: str
    sentences: int  # how many attributes a review talks about, 1 to 4
    drift_at: float  # share of the history after which the current preferences hold

    def preferences(self, interest: Interest, progress: float) -> dict[str, str]:
        """Say what the user prefers in ``interest`` after a share ``progress`` (0 to 1) of all purchases."""
        return interest.current if progress >= self.drift_at else interest.initial

    @property
    def averaged(self) -> dict[str, str]:
        """Take the weightiest value of each slot over all interests: one profile, as Orion argues against."""
        weights: dict[str, dict[str, float]] = {}
        for interest in self.interests:
            for slot, value in interest.current.items():
                by_value = weights.setdefault(slot, {})
                by_value[value] = by_value.get(value, 0.0) + interest.weight
        # Sorted, so that of equal weights the first by the alphabet wins.
        return {slot: max(sorted(by), key=by.__getitem__) for slot, by in weights.items()}


def make_person(user_id: str, n_interests: int, drift: float, generator: np.random.Generator) -> Person:
    """Draw one person with ``n_interests`` different interests.

    Args:
        drift: the probability that the preferences of an interest drift; then half of its slots change.
    """
    chosen = generator.choice(len(domains()), size=n_interests, replace=False)
    dislikes = frozenset(map(str, generator.choice(_shared_values(), size=3, replace=False)))
    weights = generator.dirichlet(np.full(n_interests, 2.0))  # uneven, yet hardly any interest near zero
    # Frugal here, premium there: interests start with the tiers in turns, so that one profile for two or more
    # interests is wrong in one of them. Other slots differ by chance.
    tiers = list(domains()[0].values["tier"])
    generator.shuffle(tiers)
    interests = []
    for i, (index, weight) in enumerate(zip(chosen, weights, strict=True)):
        domain = domains()[index]
        initial = {slot: _draw_value(values, dislikes, generator) for slot, values in domain.values.items()}
        initial["tier"] = tiers[i % len(tiers)]
        current = dict(initial)
        if generator.random() < drift:
            for slot in generator.choice(domain.slots, size=len(domain.slots) // 2, replace=False):
                others = [v for v in domain.values[slot] if v != initial[slot]]
                current[str(slot)] = _draw_value(others, dislikes, generator)
        interests.append(Interest(domain, float(weight), initial, current))
    return Person(
        user_id=user_id,
        interests=tuple(interests),
        dislikes=dislikes,
        tone=str(generator.choice(list(language()["tones"]))),
        sentences=int(generator.integers(1, 5)),
        # Within the history (the first 80%), so that purchases on both sides show the change and tasks are
        # about what holds now. With five purchases in all (60%), it may come one later.
        drift_at=float(generator.uniform(0.35, 0.65)),
    )


@cache
def _shared_values() -> list[str]:
    """List what people can dislike: values of the disliked slots that at least four domains have.

    A dislike should matter in several interests; otherwise it could not be told from a preference in one.
    """
    counts = Counter(
        value for domain in domains() for slot in DISLIKED_SLOTS for value in domain.values.get(slot, ())
    )
    return sorted(value for value, count in counts.items() if count >= 4)


def _draw_value(values, avoid: frozenset[str], generator: np.random.Generator) -> str:
    left = [value for value in values if value not in avoid]
    return left[generator.integers(len(left))]


@dataclass(frozen=True)
class Purchase:
    """One purchase with the truth behind it: the interest it came from and what the user preferred then."""

    asin: str
    interest: Interest
    preferences: dict[str, str]
    rating: int


class Shopper:
    """Lets one person buy, one purchase at a time.

    A purchase follows a mood (the interest, which tends to stay the same from one purchase to the next) and a
    wish (each slot's preferred value, or with probability ``whim`` a random one). Of the products of a type
    the person takes the one that fits the wish best; popular ones win close calls. Groceries and care
    products are often bought again. Now and then the person buys something they dislike, and says so.

    Args:
        repurchase: the probability that a purchase repeats the last liked one of its department; all others
            are then of products new to the person, as long as the department has any. None: habits decide.
    """

    # One purchase must not give the preferences away, several together should: about half of all wishes (47%,
    # as there are six slots and a whim may draw the preferred value) are the preferences to the letter.
    whim = 0.15
    same_mood = 0.3  # interests come in runs, so what was bought last hints at, but does not tell, the next
    rebuy = 0.35  # of consumables; without repeats nothing could be recommended from a user's own purchases
    mistake = 0.08  # so that reviews show what a person dislikes

    def __init__(
        self,
        person: Person,
        items: dict[str, Item],
        shelves: dict[str, Shelf],
        generator: np.random.Generator,
        repurchase: float | None = None,
    ):
        self.person, self.items, self.shelves, self.generator = person, items, shelves, generator
        self.repurchase, self.bought = repurchase, set[str]()
        self.mood: Interest | None = None
        self.liked: dict[str, str] = {}  # domain -> the last liked product

    def buy(self, progress: float) -> Purchase:
        """Make the next purchase, after a share ``progress`` of all purchases."""
        if self.mood is None or self.generator.random() >= self.same_mood:
            weights = [interest.weight for interest in self.person.interests]
            self.mood = self.person.interests[self.generator.choice(len(weights), p=weights)]
        domain = self.mood.domain
        preferences = self.person.preferences(self.mood, progress)
        asin = None
        rebuy = self.rebuy if self.repurchase is None else self.repurchase
        if (domain.consumable or self.repurchase is not None) and self.generator.random() < rebuy:
            asin = self.liked.get(domain.name)
        asin = asin or self._choose(domain, preferences)
        self.bought.add(asin)
        # Stars agree with the truth: 1 or 2 with something disliked, else 3 to 5 by what fits.
        values = self.items[asin].values
        if self.person.dislikes.isdisjoint(values.values()):
            matches = sum(values[slot] == value for slot, value in preferences.items())
            rating = min(max(1 + matches + int(self.generator.integers(0, 2)), 3), 5)
        else:
            rating = int(self.generator.integers(1, 3))
        if rating >= 4:
            self.liked[domain.name] = asin
        return Purchase(asin, self.mood, preferences, rating)

    def _choose(self, domain: Domain, preferences: dict[str, str]) -> str:
        types = list(domain.types)
        if self.repurchase is not None:  # types of which something is left to be bought for the first time
            types = [t for t in types if not self.bought.issuperset(self.shelves[t].asins)] or types
        shelf = self.shelves[types[self.generator.integers(len(types))]]
        wish = {}
        for slot, preferred in preferences.items():
            has_whim = self.generator.random() < self.whim
            values = domain.values[slot]
            wish[slot] = values[self.generator.integers(len(values))] if has_whim else preferred
        # A random utility model (multinomial logit): the best of scores with Gumbel noise of scale s is a
        # draw from softmax(score / s). With s = 0.3, a product is taken with a probability in proportion to
        # its popularity times exp(matches / 0.3): a match more is worth a factor of 28. A disliked value
        # costs as much as four matches; in a mistake it is worth two, and something disliked is bought.
        dislike_cost = -2.0 if self.generator.random() < self.mistake else 4.0
        scores = shelf.matches(wish) - dislike_cost * shelf.disliked(self.person.dislikes)
        if self.repurchase is not None:
            scores = np.where([asin in self.bought for asin in shelf.asins], -np.inf, scores)
        noise = self.generator.gumbel(0.0, 0.3, len(shelf.asins))
        return shelf.asins[int(np.argmax(scores + 0.3 * shelf.log_popularity + noise))]
