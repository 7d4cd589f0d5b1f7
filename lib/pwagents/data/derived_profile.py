"""A user's profile in the fields that PersonalWAB publishes, counted from what they bought and wrote.

Published code wants a profile of every user, for its user simulator. Where the data have none, this one is
written beside them. It is made of what lies before the user's first test task; the published ones are written
by a language model from the whole history. Who the user is cannot be counted: "Other". The three levels that
published code looks up are "High", "Medium" and "Low".
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, quantiles

from pwagents.schema import Behavior, Benchmark, Product, UserProfile

LEVELS = ("Low", "Medium", "High")
NAMED = 3  # categories and brands, at most


def derived_profile(benchmark: Benchmark, user: str) -> UserProfile:
    """The profile of one user; nothing in particular of one without purchases."""
    behaviors = benchmark.train_period(user) if user in benchmark.behaviors else ()
    bought = [benchmark.products[behavior.parent_asin] for behavior in behaviors]
    dear = _share_dear(bought, benchmark.products)
    variety = len({product.category for product in bought}) / len(bought) if bought else 0.5
    length = mean(len(b.review.text.split()) for b in behaviors) if behaviors else 40
    return UserProfile(
        gender="Other",
        age="Other",
        occupation="Other",
        price_sensitivity=_level(1 - dear, 1 / 3, 2 / 3),
        shopping_interest=_most(product.category for product in bought),
        brand_preference=_most(product.store for product in bought if product.store),
        diversity_preference=_level(variety, 0.2, 0.5),
        interaction_complexity=_level(length, 20, 60),
        tone_and_style=_tone(behaviors),
        item_reference=_most(name for product in bought for name in product.details),
        focus_aspect="Price" if dear < 1 / 3 else "Average Rating",
    )


def _level(value: float, low: float, high: float) -> str:
    return LEVELS[(value >= low) + (value >= high)]


def _share_dear(bought: Sequence[Product], products: Mapping[str, Product]) -> float:
    """The share of purchases dearer than the median price of their category; .5 where none is known."""
    usual: dict[str, float | None] = {}
    for category in {product.category for product in bought}:
        prices = [p.price for p in products.values() if p.category == category and p.price is not None]
        usual[category] = quantiles(prices, n=2)[0] if len(prices) > 1 else None
    known = [p for p in bought if p.price is not None and usual[p.category] is not None]
    return mean(p.price > usual[p.category] for p in known) if known else 0.5


def _most(names: Iterable[str]) -> str:
    """The most frequent names; ties by name."""
    counts = Counter(names)
    return ", ".join(sorted(counts, key=lambda name: (-counts[name], name))[:NAMED]) or "None in particular"


def _tone(behaviors: Sequence[Behavior]) -> str:
    if not behaviors:
        return "Neutral"
    return "Positive" if mean(b.review.rating for b in behaviors) >= 4 else "Critical"
