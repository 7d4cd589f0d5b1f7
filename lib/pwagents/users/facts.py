"""What the rule-based user knows about a task, one fact at a time, and when a question is about one.

The facts come from the target's page (price in round numbers, store, details, single words of title and
features) or, for a review task, from the real review (stars and what it is about). Nothing else is known: not
the latent truth of the embedded world, not other products.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from pwagents.data.instructions import (
    content_words,
    kind_of,
    section_of,
    short_store,
    stars_in_words,
    word_list,
)
from pwagents.project import read_yaml
from pwagents.schema import Product, Review, Task, UserProfile

_PRICE_STEPS = ((10, 1), (50, 5), (200, 10), (1000, 50), (float("inf"), 100))  # below, rounded to (dollars)
_TIERS = ("budget", "midrange", "premium", "luxury")
_LOOKS = ("color", "material", "size")  # slots whose values are found in titles, too
_WORDS_TOLD = 3  # single words of the title, and points of a review


class Fact(NamedTuple):
    """One thing that the user can tell: what it is about, and its value."""

    slot: str
    value: str


def known_facts(task: Task, product: Product, profile: UserProfile | None = None) -> tuple[Fact, ...]:
    """What the user knows, in the order in which it comes to mind; no value twice."""
    made = _review_facts(task.review) if task.type == "review" else product_facts(product, profile)
    first: dict[str, Fact] = {}
    for fact in made:
        first.setdefault(fact.value.lower(), fact)
    return tuple(first.values())


def sentences(fact: Fact) -> list[str]:
    """All ways to tell a fact."""
    slots = phrases()["slots"]
    templates = (slots["product"] | slots["review"]).get(fact.slot, {}).get("say") or phrases()["other_slots"]
    said = [template.format(v=fact.value, slot=fact.slot) for template in templates]
    return [sentence[0].upper() + sentence[1:] for sentence in said]


def asked_slots(question: str, task: Task, facts: Sequence[Fact]) -> list[str]:
    """The slots that a question is about, in the order in which it comes to them.

    It is about a slot when it names it or any value of it: "Navy, or rather white?" is about the color.
    """
    asking = _asking_words("product") | (_asking_words("review") if task.type == "review" else {})
    asking |= {fact.slot: frozenset(stems(fact.slot)) for fact in facts if fact.slot not in asking}
    words = stems(question)
    first: dict[str, int] = {}
    for slot, about in asking.items():
        places = [i for i, word in enumerate(words) if word in about]
        values = [find_run(fact.value, question) for fact in facts if fact.slot == slot]
        if places := places + [i for i in values if i is not None]:
            first[slot] = min(places)
    return sorted(first, key=first.__getitem__)


def find_run(run: str, text: str) -> int | None:
    """The place of the first word at which ``text`` holds the words of ``run``, None where it does not."""
    part, words = stems(run), stems(text)
    places = range(len(words) - len(part) + 1)
    return next((i for i in places if words[i : i + len(part)] == part), None)


@lru_cache(maxsize=10_000)
def stems(text: str) -> tuple[str, ...]:
    """Words in lower case, without the s of a plural."""
    return tuple(word.rstrip("s") for word in re.findall(r"\w+", text.lower()))


def phrases() -> dict:
    """The words and phrases of ``phrases.yaml``."""
    return read_yaml(__package__, "phrases.yaml")


@cache
def _asking_words(group: str) -> dict[str, frozenset[str]]:
    slots = phrases()["slots"][group]
    return {name: frozenset(stems(f"{slot['ask']} {slot.get('values', '')}")) for name, slot in slots.items()}


@cache
def _values(slot: str) -> frozenset[str]:
    return frozenset(phrases()["slots"]["product"][slot]["values"].split())


def product_facts(product: Product, profile: UserProfile | None = None) -> Iterator[Fact]:
    """What a product's page tells, and last the user's own priorities."""
    kind, store = kind_of(product), short_store(product.store)
    if not kind.startswith("item from"):
        yield Fact("kind", kind)
    if product.price is not None:
        yield Fact("price", _price(product))
    if store:
        yield Fact("store", store)
    details = list(_details(product))
    yield from details
    yield from _title_facts(product, " ".join([kind, store, *(fact.value for fact in details)]))
    if occasion := _occasion(product):
        yield Fact("occasion", occasion)
    yield Fact("category", section_of(product.category))
    if profile is not None and (focus := _short(profile.focus_aspect.lower(), r"[\w ,'-]+", most=8)):
        yield Fact("priorities", focus)


def _title_facts(product: Product, known: str) -> Iterator[Fact]:
    """Single words that tell more than ``known``: looks, and others that do not stand side by side."""
    words = [word for word in content_words(product.title) if word not in known.lower().split()]
    looks = [Fact(slot, word) for word in words for slot in _LOOKS if word in _values(slot)]
    yield from looks
    words = [word for word in words if word not in {fact.value for fact in looks}]
    for word in (words or content_words(" ".join(product.features)))[::2][:_WORDS_TOLD]:
        yield Fact("feature", word)


def _review_facts(review: Review) -> Iterator[Fact]:
    yield Fact("rating", stars_in_words(review.rating))
    words = content_words(review.text)
    aspects = [word for word in words if word in word_list("aspects")]
    for word in list(dict.fromkeys([*aspects, *words]))[:_WORDS_TOLD]:
        yield Fact("mention", word)


def _price(product: Product) -> str:
    """ "around 20 dollars" for 17.99, and the tier where the page begins with it ("A premium lamp for")."""
    if not product.price:
        return "nothing, it should be free"
    step = next(step for below, step in _PRICE_STEPS if product.price < below)
    amount = max(step, step * round(product.price / step))
    tier = next((tier for tier in _TIERS if tier in " ".join(product.description).lower().split()[:3]), "")
    return f"around {amount} dollar{'s' * (amount != 1)}" + (f", so something {tier}" if tier else "")


def _details(product: Product) -> Iterator[Fact]:
    for key, value in product.details.items():
        words = re.findall(r"[a-z]+", key.lower())
        value = _short(re.split(r"[,;/(]", value.lower())[0].strip(), r"[\w .'-]+", most=3)
        if words and value not in ("", "yes", "no") and not set(phrases()["dull_keys"].split()) & set(words):
            known = words[-1] in phrases()["slots"]["product"]  # "Special Feature" is about a feature
            yield Fact(words[-1] if known else " ".join(words), value)


def _occasion(product: Product) -> str:
    """What follows "for" in a description of one short sentence, as the embedded world's are."""
    match = re.fullmatch(r"[^.]*? for (.+?)\.?", " ".join(product.description).strip())
    return _short(match[1], r"[\w ,'-]+", most=8) if match else ""


def _short(text: str, pattern: str, most: int) -> str:
    """``text`` where it is plain and has at most ``most`` words, nothing otherwise."""
    return text if len(text.split()) <= most and re.fullmatch(pattern, text) else ""
