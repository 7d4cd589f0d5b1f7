"""What the rule-based user knows about a task, one fact at a time, and when a question is about one.

The facts come from the target's page (price in round numbers, store, details, single words of title and
features) or, for a review task, from the real review (stars and what it is about). Nothing else is known: not
the latent truth of the embedded world, not other products.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from pwagents.project import read_yaml
from pwagents.schema import Product, Review, Task, UserProfile
from pwagents.words import (
    content_words,
    kind_of,
    section_of,
    short_store,
    stars_in_words,
    word_list,
)

_PRICE_STEPS = ((10, 1), (50, 5), (200, 10), (1000, 50), (float("inf"), 100))  # below, rounded to (dollars)
_TIERS = ("budget", "midrange", "premium", "luxury")
_LOOKS = ("color", "material", "size")  # slots whose values are found in titles, too
_SINGLE_WORDS = 3  # of the title, and points of a review


class Fact(NamedTuple):
    """One thing that the user can tell: what it is about, and its value."""

    slot: str
    value: str


def phrases() -> dict:
    """The words and phrases of ``phrases.yaml``."""
    return read_yaml(__package__, "phrases.yaml")


def product_facts(product: Product, profile: UserProfile | None = None) -> Iterator[Fact]:
    """Read facts from a page, in the order in which they come to mind; last the user's priorities."""
    slots = phrases()["slots"]["product"]
    kind, store = kind_of(product), short_store(product.store)
    description = " ".join(product.description)
    if not kind.startswith("item from"):
        yield Fact("kind", kind)

    # "around 20 dollars" for 17.99, and the tier where the page begins with it ("A premium lamp for").
    if product.price is not None:
        step = next(step for below, step in _PRICE_STEPS if product.price < below)
        amount = max(step, step * round(product.price / step))
        tier = next((tier for tier in _TIERS if tier in description.lower().split()[:3]), "")
        price = f"around {amount} dollar{'s' * (amount != 1)}" + (f", so something {tier}" if tier else "")
        yield Fact("price", price if product.price else "nothing, it should be free")
    if store:
        yield Fact("store", store)

    # Details by the last word of their keys where it is a slot: "Special Feature" is about a feature.
    stated = [kind, store]
    for key, value in product.details.items():
        names = re.findall(r"[a-z]+", key.lower())
        value = re.split(r"[,;/(]", value.lower())[0].strip()
        is_dull = not set(phrases()["dull_keys"].split()).isdisjoint(names) or value in ("yes", "no")
        if names and not is_dull and _is_short(value, r"[\w .'-]+", most=3):
            yield Fact(names[-1] if names[-1] in slots else " ".join(names), value)
            stated.append(value)

    # Single words of the title that tell more: looks, and others that do not stand side by side.
    known = " ".join(stated).lower().split()
    words = [word for word in content_words(product.title) if word not in known]
    looks = [Fact(slot, word) for word in words for slot in _LOOKS if word in slots[slot]["values"].split()]
    yield from looks
    words = [word for word in words if word not in {fact.value for fact in looks}]
    for word in (words or content_words(" ".join(product.features)))[::2][:_SINGLE_WORDS]:
        yield Fact("feature", word)

    # What follows "for" in a description of one short sentence, as the embedded world's are.
    occasion = re.fullmatch(r"[^.]*? for (.+?)\.?", description.strip())
    if occasion and _is_short(occasion[1], r"[\w ,'-]+", most=8):
        yield Fact("occasion", occasion[1])
    yield Fact("category", section_of(product.category))
    if profile is not None and _is_short(profile.focus_aspect, r"[\w ,'-]+", most=8):
        yield Fact("priorities", profile.focus_aspect.lower())


def _is_short(text: str, pattern: str, most: int) -> bool:
    """Whether ``text`` is of the pattern and has at most ``most`` words."""
    return len(text.split()) <= most and re.fullmatch(pattern, text) is not None


def review_facts(review: Review) -> Iterator[Fact]:
    """Read facts from a review: its stars, and what it is about."""
    yield Fact("rating", stars_in_words(review.rating))
    words = content_words(review.text)
    aspects = [word for word in words if word in word_list("aspects")]
    for word in list(dict.fromkeys([*aspects, *words]))[:_SINGLE_WORDS]:
        yield Fact("mention", word)


def sentences(fact: Fact) -> list[str]:
    """Tell a fact, in all ways."""
    slots = phrases()["slots"]
    templates = (slots["product"] | slots["review"]).get(fact.slot, {}).get("say") or phrases()["other_slots"]
    texts = [template.format(v=fact.value, slot=fact.slot) for template in templates]
    return [text[0].upper() + text[1:] for text in texts]


def asked_slots(question: str, task: Task, facts: Sequence[Fact]) -> list[str]:
    """Find the slots that a question is about, in the order in which it comes to them.

    It is about a slot when it names it or any value of it: "Navy, or rather white?" is about the color.
    """
    slots = phrases()["slots"]
    about = slots["product"] | (slots["review"] if task.type == "review" else {})
    names = {slot: stems(f"{entry['ask']} {entry.get('values', '')}") for slot, entry in about.items()}
    names |= {fact.slot: stems(fact.slot) for fact in facts if fact.slot not in names}
    words = stems(question)
    first: dict[str, int] = {}
    for slot, slot_names in names.items():
        places = [i for i, word in enumerate(words) if word in slot_names]
        values = [find_run(fact.value, question) for fact in facts if fact.slot == slot]
        if places := places + [i for i in values if i is not None]:
            first[slot] = min(places)
    return sorted(first, key=first.__getitem__)


def find_run(run: str, text: str) -> int | None:
    """Find the first word at which ``text`` holds the words of ``run``; None where it holds them not."""
    part, words = stems(run), stems(text)
    places = range(len(words) - len(part) + 1)
    return next((i for i in places if words[i : i + len(part)] == part), None)


@lru_cache(maxsize=10_000)
def stems(text: str) -> tuple[str, ...]:
    """Split a text into words in lower case, without the s of a plural."""
    return tuple(word.rstrip("s") for word in re.findall(r"\w+", text.lower()))
