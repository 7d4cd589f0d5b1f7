"""Instructions for real products without a language model: the offline form of PersonalWAB's Figures 12-14.

The rules are those of the figures: a search is somewhat vague and never gives the product away; a
recommendation is short, general and exploratory; a review asks for help in writing down the user's own
impressions, in other words than the review's. The wording comes from ``instructions.yaml``. One trait, not a
whole profile, shapes the tone: users who write short reviews write short instructions.
"""

from collections.abc import Sequence
from itertools import chain
from statistics import median

import numpy as np

from pwagents.schema import Behavior, Product, Review, TaskType
from pwagents.words import (
    content_words,
    gives_away,
    kind_of,
    read_yaml,
    section_of,
    short_store,
    split_words,
    stars_in_words,
    word_list,
)

MAX_WORDS = 40
_TERSE = 12  # users whose median review has fewer words get no closing phrase
_DRAFTS = 8  # before a plain phrase is taken: a draft's words of the title may give it away by chance
_PRICES = (5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)  # US dollars


def write_instruction(
    task_type: TaskType,
    product: Product,
    review: Review,
    history: Sequence[Behavior],
    rng: np.random.Generator,
) -> str:
    """Write an instruction of at most 40 words that asks for ``product`` without giving it away.

    What gives it away, :func:`pwagents.words.gives_away` says.

    Args:
        task_type: search, recommend or review.
        product: the target; only ``title`` and ``category`` need to be known.
        review: what the user really wrote about it; used by review instructions alone.
        history: the user's earlier behaviors, which set the tone.
        rng: chooses among the phrasings.
    """
    phrases = read_yaml("pwagents.data", "instructions.yaml")[task_type]
    kind, lengths = kind_of(product), [len(behavior.review.text.split()) for behavior in history]
    terse = bool(lengths) and median(lengths) < _TERSE

    def draft() -> str:
        if task_type == "search":
            text = _ask_for_product(phrases, product, rng)
        elif task_type == "recommend":
            text = _pick(phrases["asks"], rng).format(section=section_of(product.category))
        else:
            # Kind and stars, and one or two words of the review: aspects of products where it has any.
            stars = stars_in_words(review.rating)
            told = {"stars": stars, "stars_adjective": stars.removesuffix("s").replace(" ", "-")}
            text, said = _pick(phrases["asks"], rng).format(kind=kind, **told), content_words(review.text)
            if cues := _sample([word for word in said if word in word_list("aspects")] or said, rng):
                text += f" {_pick(phrases['cues'], rng).format(cues=' as well as '.join(cues))}"
        return text if terse or rng.random() < 0.5 else f"{text} {_pick(phrases['ends'], rng)}"

    drafts = (draft() for _ in range(_DRAFTS))  # one at a time: each takes draws from ``rng``
    for text in chain(drafts, phrases["plain"]):
        if not gives_away(text, task_type, product, review) and len(text.split()) <= MAX_WORDS:
            return text
    return phrases["plain"][-1]


def _ask_for_product(phrases: dict, product: Product, rng: np.random.Generator) -> str:
    """Name the kind of product and a clue, and, each in every other request, price and store."""
    details = []
    if product.price is not None:
        limit = next((limit for limit in _PRICES if product.price <= limit), None)
        price = "price is no obstacle" if limit is None else _pick(phrases["prices"], rng).format(n=limit)
        details.append(price)
    if store := short_store(product.store):
        details.append(_pick(phrases["stores"], rng).format(store=store))
    # Clues are words of the title, or of the first features, that do not just repeat the kind; a word that
    # shares four letters with it ("charger", "charging") would. All of a shorter title would be too much.
    kind = kind_of(product)
    title = product.title if len(split_words(product.title)) > 2 else ""
    for source in (title, " ".join(product.features[:3])):
        words = [word for word in content_words(source) if word[:4] != kind[:4]]
        if words:
            clues = " and ".join(_sample(words, rng))
            details.insert(0, _pick(phrases["clues"], rng).format(clues=clues))
            break
    named = details[:1] + [detail for detail in details[1:] if rng.random() < 0.5]
    if kind.endswith("s") and not kind.endswith(("ss", "us", "is")):
        thing = f"some {kind}"
    else:
        thing = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
    return ", ".join([_pick(phrases["asks"], rng).format(thing=thing), *named]) + "."


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _sample(words: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Draw one or two of the words."""
    n = 1 + int(rng.integers(2))
    return [words[i] for i in rng.permutation(len(words))[:n]]
