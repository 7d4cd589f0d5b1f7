"""Profiles of every make as texts, to be compared by :mod:`pwagents.profiles.consistency`.

A profile is one text or several (user_id -> texts). ``histories`` are what a profile may know of each user,
oldest first: ``benchmark.train_period(user)``, for instance.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from pwagents.data.instructions import content_words
from pwagents.profiles.clusters import item_text
from pwagents.profiles.types import UserProfiles
from pwagents.schema import Behavior, Product, UserProfile

Histories = Mapping[str, Sequence[Behavior]]
Texts = Mapping[str, Sequence[str]]

_KEYWORDS = 20
_MOST = {"categories": 3, "stores": 5, "words": 10}  # of an averaged profile


def facts_texts(profiles: Mapping[str, UserProfile]) -> Texts:
    """PersonalWAB's profiles: a text a fact."""
    return {user: _facts(profile) for user, profile in profiles.items()}


def micro_texts(profiles: Mapping[str, UserProfiles]) -> Texts:
    """Orion's profiles: a text a fact, one for the global preferences, and one for each micro-profile.

    Without what is to be avoided: an embedding takes it for what is wanted.
    """
    texts = {}
    for user, made in profiles.items():
        interests = zip(made.clusters, made.micro, strict=True)
        micro = [f"{cluster.name}: {'; '.join(profile.recommendations)}" for cluster, profile in interests]
        whole = ["; ".join(made.whole.positive)] if made.whole.positive else []
        texts[user] = [*_facts(made.whole.facts), *whole, *micro]
    return texts


def history_texts(histories: Histories, products: Mapping[str, Product]) -> Texts:
    """The raw history: each product bought is a text of its own."""
    return {
        user: [item_text(products[b.parent_asin]) for b in history] for user, history in histories.items()
    }


def averaged_texts(histories: Histories, products: Mapping[str, Product]) -> Texts:
    """A single profile over all interests: the categories, stores and title words bought most."""
    return {
        user: [_averaged([products[b.parent_asin] for b in history])] for user, history in histories.items()
    }


def keyword_texts(histories: Histories) -> Texts:
    """What users talk about: the keywords (tf-idf) of their reviews. Show it as "Apollonion (stand-in)".

    PersonalWAB compares with the profile generator of Apollonion, an agent that profiles its users from what
    they say in a dialogue, and describes it no further. Reviews are what comes nearest to a dialogue here.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=_review_words)
    weights = vectorizer.fit_transform(histories.values())
    weights.sort_indices()  # alphabetical order, which settles ties
    words = vectorizer.get_feature_names_out()
    texts = {}
    for user, row in zip(histories, weights, strict=True):
        best = np.argsort(-np.round(row.data, 9), kind="stable")[:_KEYWORDS]
        texts[user] = [", ".join(words[row.indices[best]])]
    return texts


def _facts(profile: UserProfile) -> list[str]:
    return [f"{name}: {value}" for name, value in profile.model_dump(by_alias=True).items()]


def _averaged(products: Sequence[Product]) -> str:
    named = {
        "categories": [product.category for product in products],
        "stores": [product.store for product in products if product.store],
        "words": [word for product in products for word in content_words(product.title)],
    }
    parts = []
    for name, values in named.items():
        counts = Counter(values)
        parts += sorted(counts, key=lambda value: (-counts[value], value))[: _MOST[name]]
    return ", ".join(parts)


def _review_words(history: Sequence[Behavior]) -> list[str]:
    """The telling words of all reviews, repeated as often as they occur; a dash where there are none."""
    reviews = (f"{b.review.title}. {b.review.text}" for b in history)
    return [word for review in reviews for word in content_words(review)] or ["-"]
