"""How people name products, sections and stars, and which words of a text tell something."""

import re
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from pwagents.schema import Product, Review, TaskType

# What people call a thing of these categories; elsewhere the title's head noun says it.
_KINDS = {
    "Appstore for Android": "app",
    "Books": "book",
    "Buy a Kindle": "e-book",
    "Digital Music": "music album",
    "Gift Cards": "gift card",
    "Magazine Subscriptions": "magazine",
    "Movies & TV": "film or series",
    "Prime Video": "show to stream",
    "Software": "computer program",
    "Video Games": "video game",
}
# Sections whose names read oddly: "the buy a kindle section".
_SECTIONS = {"Appstore for Android": "apps", "Buy a Kindle": "e-books"}
_PHRASE_END = re.compile(r"[,|:;\u2013\u2014\u2022]| - |\b(?:for|with|by|in|of|from)\b", re.IGNORECASE)
_NUMBERS = ("zero", "one", "two", "three", "four", "five")


@cache
def read_yaml(package: str, name: str) -> Any:
    """Return the content of a YAML file beside the modules of a package; it is not to be changed."""
    return yaml.safe_load(files(package).joinpath(name).read_text("utf-8"))


def split_words(text: str) -> list[str]:
    """Split a text into its words, in lower case."""
    return re.findall(r"\w+", text.lower())


def content_words(text: str) -> list[str]:
    """List the distinct plain words of three letters or more, in lower case and in order, no stop words."""
    words = re.findall(r"(?<![\w'\u2019-])[A-Za-z]{3,15}(?![\w'\u2019-])", text)
    return list(dict.fromkeys(word.lower() for word in words if word.lower() not in word_list("stop_words")))


@cache
def word_list(name: str) -> frozenset[str]:
    """Read a list of ``words.yaml``: "stop_words", "aspects" (of products, in reviews) or "asking"."""
    return frozenset(read_yaml("pwagents", "words.yaml")[name].split())


def kind_of(product: Product) -> str:
    """Say what people call a product: a word for its category, or the head noun of its title.

    That is the last plain word before the first comma, dash or preposition: "charger" in "Anker (2 pack)
    Charger for iPhone". Where it is the title's first word (mostly a brand), it is "item from" the section.
    """
    if product.category in _KINDS:
        return _KINDS[product.category]
    title = re.sub(r"\(.*?\)|\[.*?\]", " ", product.title)
    nouns = content_words(_PHRASE_END.split(title)[0])
    is_first = nouns and title.lower().startswith(nouns[-1])
    return nouns[-1] if nouns and not is_first else f"item from {section_of(product.category)}"


def section_of(category: str) -> str:
    """Say a category as people do: "the home and kitchen section"; "the shop" where it says nothing."""
    name = _SECTIONS.get(category, category.replace("&", "and").lower())
    words = re.findall(r"[\w,'-]+", name)[:6]
    return f"the {' '.join(words)} section" if words and name != "other" else "the shop"


def short_store(store: str | None) -> str:
    """Cut a store's name at a bracket or comma; empty when longer than three words or no plain text."""
    name = re.split(r"[,(\[]", store or "")[0].strip()
    return name if len(name.split()) <= 3 and re.fullmatch(r"[\w .&'-]+", name) else ""


def stars_in_words(rating: float) -> str:
    """Say 3.5 as "three and a half stars"; other fractions are rounded."""
    half = abs(rating % 1 - 0.5) < 0.25
    number = int(rating) if half else round(rating)
    text = _NUMBERS[number] + (" and a half" if half else "")
    return f"{text} star" if text == "one" else f"{text} stars"


def gives_away(text: str, task_type: TaskType, product: Product, review: Review) -> bool:
    """Tell whether a text says more than an instruction may.

    That is the product's id or three words running of its title (all of a shorter one); for a review task,
    also four words running of the review (all of a shorter one).
    """
    if product.parent_asin.lower() in text.lower():
        return True
    words, sources = split_words(text), [(product.title, 3), (review.text, 4)]
    for source, n in sources if task_type == "review" else sources[:1]:
        source_words = split_words(source)
        n = min(n, len(source_words))
        runs = {tuple(source_words[i : i + n]) for i in range(len(source_words) - n + 1)}
        if n and any(tuple(words[i : i + n]) in runs for i in range(len(words) - n + 1)):
            return True
    return False
