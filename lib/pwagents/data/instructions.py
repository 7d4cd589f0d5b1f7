"""Instructions for real products without a language model: the offline form of PersonalWAB's Figures 12-14.

The rules are those of the figures: a search is somewhat vague and never gives the product away; a
recommendation is short, general and exploratory; a review asks for help in writing down the user's own
impressions, in other words than the review's. The wording comes from our templates. One trait, not a whole
profile, shapes the tone: users who write short reviews write short instructions.
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from statistics import median

import numpy as np

from pwagents.project import read_yaml
from pwagents.schema import Behavior, Product, Review, TaskType

MAX_WORDS = 40
_TERSE = 12  # users whose median review has fewer words get no closing phrase
_DRAFTS = 8  # before a plain phrase is taken: a draft's words of the title may give it away by chance

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
_PRICES = (5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)  # US dollars
_NUMBERS = ("zero", "one", "two", "three", "four", "five")

_SEARCH = (
    "I'm looking for {thing}",
    "Could you help me find {thing}",
    "I could use {thing}",
    "Trying to find {thing}",
    "Time to buy {thing}",
    "Show me {thing}",
    "On the hunt for {thing}",
    "What have you got if I want {thing}",
)
_PRICE_PHRASES = ("for under {n} dollars", "at no more than {n} dollars", "that stays below {n} dollars")
_STORE_PHRASES = ("preferably by {store}", "{store} would be my first choice", "I tend to like {store}")
_CLUE_PHRASES = ("think {clues}", "something along the lines of {clues}", "words in my head: {clues}")
_SEARCH_ENDS = ("I don't remember more than that.", "Close matches are fine too.", "Thanks a lot!")

_RECOMMEND = (
    "Anything new in {section} that might suit me?",
    "What would you suggest for me from {section}?",
    "I'm in the mood to browse {section}. Surprise me.",
    "Any ideas in {section}, given what I usually buy?",
    "I feel like treating myself to something from {section}. What fits my taste?",
    "Recommend me something from {section}.",
    "Not sure what I want, perhaps something from {section}?",
    "Which things in {section} would someone like me enjoy?",
)
_RECOMMEND_ENDS = ("I'm open to new things.", "No rush, just exploring.", "Variety is welcome.")

_REVIEW = (
    "Help me write a review of the {kind} I bought: {stars} from me.",
    "I want to post my thoughts on the {kind}, worth {stars}.",
    "Please draft a {stars_adjective} review for my {kind}.",
    "Can you put together what I think of the {kind}? I would give it {stars}.",
    "Time to rate the {kind}: {stars}. Write it up for me, please.",
    "Turn my impressions of the {kind} into a review, {stars} overall.",
)
_CUE_PHRASES = (
    "Touch on {cues}.",
    "Don't leave out {cues}.",
    "It should bring up {cues}.",
    "Key points: {cues}.",
)
_REVIEW_ENDS = ("Keep it in my usual style.", "Make it sound like me.", "Honest and to the point, please.")

# For products that every description would give away. The last two of a row share no word, so one of the two
# always passes.
_PLAIN: dict[TaskType, tuple[str, ...]] = {
    "search": ("I need help to find something in your shop.", "Search please", "Find things"),
    "recommend": ("What do you suggest for someone like me?", "Suggestions please", "Surprise me"),
    "review": ("Help me put my opinion of a purchase into words.", "Review please", "Opinion help"),
}


def write_instruction(
    task_type: TaskType,
    product: Product,
    review: Review,
    history: Sequence[Behavior],
    rng: np.random.Generator,
) -> str:
    """An instruction of at most 40 words that asks for ``product`` without giving it away.

    It never holds the product's id, three consecutive words of its title or (shorter titles) all of it, and a
    review instruction never holds four consecutive words of the review or all of a shorter one.

    Args:
        task_type: search, recommend or review.
        product: the target; only ``title`` and ``category`` need to be known.
        review: what the user really wrote about it; used by review instructions alone.
        history: the user's earlier behaviours, which set the tone.
        rng: chooses among the phrasings.
    """
    terse = _is_terse(history)
    draft = {"search": _search, "recommend": _recommend, "review": _review}[task_type]
    drafts = (draft(product, review, terse, rng) for _ in range(_DRAFTS))
    for text in chain(drafts, _PLAIN[task_type]):
        if not gives_away(text, task_type, product, review) and len(text.split()) <= MAX_WORDS:
            return text
    return _PLAIN[task_type][-1]


def gives_away(text: str, task_type: TaskType, product: Product, review: Review) -> bool:
    """Whether an instruction tells more of the product, or of the review, than it may."""
    if product.parent_asin.lower() in text.lower() or _shares_run(text, product.title, 3):
        return True
    return task_type == "review" and _shares_run(text, review.text, 4)


def _shares_run(text: str, source: str, n: int) -> bool:
    """Whether ``text`` holds ``n`` consecutive words of ``source``, or all of a shorter source."""
    words, source_words = _words(text), _words(source)
    n = min(n, len(source_words))
    runs = {tuple(source_words[i : i + n]) for i in range(len(source_words) - n + 1)}
    return n > 0 and any(tuple(words[i : i + n]) in runs for i in range(len(words) - n + 1))


def _search(product: Product, review: Review, terse: bool, rng: np.random.Generator) -> str:
    details = []
    if product.price is not None:
        details.append(_price_phrase(product.price, rng))
    if store := short_store(product.store):
        details.append(_pick(_STORE_PHRASES, rng).format(store=store))
    if clues := _clues(product, rng):
        details.insert(0, _pick(_CLUE_PHRASES, rng).format(clues=" and ".join(clues)))
    kept = details[:1] + [detail for detail in details[1:] if rng.random() < 0.5]
    request = _pick(_SEARCH, rng).format(thing=_a(kind_of(product)))
    return _with_end(", ".join([request, *kept]) + ".", _SEARCH_ENDS, terse, rng)


def _recommend(product: Product, review: Review, terse: bool, rng: np.random.Generator) -> str:
    request = _pick(_RECOMMEND, rng).format(section=section_of(product.category))
    return _with_end(request, _RECOMMEND_ENDS, terse, rng)


def _review(product: Product, review: Review, terse: bool, rng: np.random.Generator) -> str:
    stars = stars_in_words(review.rating)
    adjective = f"{stars.removesuffix('s').replace(' ', '-')}"
    text = _pick(_REVIEW, rng).format(kind=kind_of(product), stars=stars, stars_adjective=adjective)
    if cues := _cues(review, rng):
        text += " " + _pick(_CUE_PHRASES, rng).format(cues=" as well as ".join(cues))
    return _with_end(text, _REVIEW_ENDS, terse, rng)


def _with_end(text: str, ends: Sequence[str], terse: bool, rng: np.random.Generator) -> str:
    return text if terse or rng.random() < 0.5 else f"{text} {_pick(ends, rng)}"


def _is_terse(history: Sequence[Behavior]) -> bool:
    lengths = [len(behavior.review.text.split()) for behavior in history]
    return bool(lengths) and median(lengths) < _TERSE


def kind_of(product: Product) -> str:
    """What people call the product: a word for its category, or the head noun of its title's first phrase.

    The noun is the last plain word before the first comma, dash or preposition: "charger" in "Anker (2 pack)
    USB-C Charger for iPhone". Where there is none, or where it is the title's first word (mostly a brand), it
    is "item from" the section.
    """
    if product.category in _KINDS:
        return _KINDS[product.category]
    title = re.sub(r"\(.*?\)|\[.*?\]", " ", product.title)
    nouns = content_words(_PHRASE_END.split(title)[0])
    is_first = nouns and title.lower().startswith(nouns[-1])
    return nouns[-1] if nouns and not is_first else f"item from {section_of(product.category)}"


def section_of(category: str) -> str:
    """A category as people say it: "the home and kitchen section"; "the shop" where it says nothing."""
    name = _SECTIONS.get(category, category.replace("&", "and").lower())
    words = re.findall(r"[\w,'-]+", name)[:6]
    return f"the {' '.join(words)} section" if words and name != "other" else "the shop"


def _clues(product: Product, rng: np.random.Generator) -> list[str]:
    """One or two telling words of the title, or of the first features, that do not just repeat the kind.

    A word that shares four letters with the kind ("charger", "charging") would repeat it.
    """
    title = product.title if len(_words(product.title)) > 2 else ""  # all of a shorter one would be too much
    for text in (title, " ".join(product.features[:3])):
        words = [word for word in content_words(text) if word[:4] != kind_of(product)[:4]]
        if words:
            return _sample(words, 1 + int(rng.integers(2)), rng)
    return []


def _cues(review: Review, rng: np.random.Generator) -> list[str]:
    """One or two words that tell what the review is about: aspects of products where it names any."""
    words = content_words(review.text)
    aspects = [word for word in words if word in word_list("aspects")]
    return _sample(aspects or words, 1 + int(rng.integers(2)), rng)


def _price_phrase(price: float, rng: np.random.Generator) -> str:
    limit = next((limit for limit in _PRICES if price <= limit), None)
    if limit is None:
        return "price is no obstacle"
    return _pick(_PRICE_PHRASES, rng).format(n=limit)


def short_store(store: str | None) -> str:
    """A store's name up to a bracket or comma; empty when it is longer than three words or no plain text."""
    name = re.split(r"[,(\[]", store or "")[0].strip()
    return name if len(name.split()) <= 3 and re.fullmatch(r"[\w .&'-]+", name) else ""


def stars_in_words(rating: float) -> str:
    """3.5 as "three and a half stars"; other fractions are rounded."""
    half = abs(rating % 1 - 0.5) < 0.25
    number = int(rating) if half else round(rating)
    text = _NUMBERS[number] + (" and a half" if half else "")
    return f"{text} star" if text == "one" else f"{text} stars"


def _a(noun: str) -> str:
    if noun.endswith("s") and not noun.endswith(("ss", "us", "is")):
        return f"some {noun}"
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def content_words(text: str) -> list[str]:
    """The distinct plain words of three letters or more, stop words left out, in lower case and in order."""
    words = re.findall(r"(?<![\w'\u2019-])[A-Za-z]{3,15}(?![\w'\u2019-])", text)
    return list(dict.fromkeys(word.lower() for word in words if word.lower() not in word_list("stop_words")))


@cache
def word_list(name: str) -> frozenset[str]:
    """A list of ``instruction_words.yaml``: "stop_words" or "aspects" (of products, in reviews)."""
    return frozenset(read_yaml("pwagents.data", "instruction_words.yaml")[name].split())


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _sample(words: Sequence[str], n: int, rng: np.random.Generator) -> list[str]:
    return [words[i] for i in rng.permutation(len(words))[:n]]
