"""Instructions without a language model, for every source: the offline forms of :mod:`pwagents.tasks.llm`.

The wording is ours, from templates. As there, the traits of the profile decide how much is said and how.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pwagents.data.instructions import gives_away, kind_of, section_of, write_instruction
from pwagents.profiles.types import OTHER
from pwagents.progress import progress
from pwagents.schema import Product, TaskType, UserProfile
from pwagents.seeds import rng
from pwagents.tasks.briefs import Brief

# Words, at most; ours: the papers do not print their limits.
LIMITS: dict[TaskType, int] = {"search": 40, "recommend": 25, "review": 50}
AMBIGUOUS_LIMIT = 12
SHARED = 10  # products of a kind, at least, for its name to be a generic word

# What a trait adds to a request, by the trait's value.
_GREETINGS = ("Hi there! {request}", "Hello! {request}", "Hi! {request}")
_WARM = ("enthusiastic", "positive", "friendly", "warm", "appreciative", "cheerful")
_DIVERSITY = {
    "high": ("{request} It may well be something new to me.", "{request} I like to try things out."),
    "low": ("{request} It should be close to what I know.", "{request} Nothing too unusual, please."),
}
_FOCUS = ("{request} I look at {focus} first.", "{request} What counts for me: {focus}.")
_REVIEW_FOCUS = ("{request} Have an eye on {focus}.", "{request} I usually write about {focus}.")
_EXTRAS = {"low": 0, "medium": 1, "high": 3}  # phrases beside the request, by interaction complexity

_AMBIGUOUS: dict[TaskType, tuple[str, ...]] = {
    "search": (
        "Any {thing} for me?",
        "Find my kind of {thing}.",
        "Which {thing} would you pick for me?",
        "Help me choose the right {thing}.",
        "You know which {thing} I would take.",
    ),
    "recommend": (
        "Anything for me?",
        "Surprise me with something I would like.",
        "What would suit me today?",
        "Show me what fits my taste.",
    ),
    "review": (
        "Help me write a review of it.",
        "Write the review I would write.",
        "Put my opinion of it into words.",
        "Review it for me, my way.",
    ),
}


class OfflineInstructionWriter:
    """:func:`pwagents.data.instructions.write_instruction`, with phrases that the user's profile asks for.

    The profile's focus aspect, diversity preference and tone make a phrase each; the interaction complexity
    says how many of them are spoken (low: none, medium: one, high: all). Without a profile none is.
    """

    def __init__(self, seed: int = 0):
        self.seed = seed

    def __call__(self, briefs: Sequence[Brief]) -> list[str]:
        return [self._write(brief) for brief in briefs]

    def _write(self, brief: Brief) -> str:
        task, product = brief.task, brief.product
        generator = rng(self.seed, "instruction", task.task_id)
        request = write_instruction(task.type, product, task.review, brief.history, generator)
        drafts = _spoken(request, task.type, brief.profile, generator) if brief.profile else []
        return next((text for text in drafts if fits(text, brief, LIMITS[task.type])), request)


class OfflineAmbiguousWriter:
    """Generic requests that only a profile can resolve: the offline form of Orion's ambiguous set.

    A search names the kind of thing alone where at least ten products are of that kind ("charger"), else
    the category's section. A recommendation and a review name nothing at all.

    Args:
        products: the catalogue.
    """

    def __init__(self, products: Mapping[str, Product], seed: int = 0):
        self.seed = seed
        kinds = (kind_of(product) for product in progress(products.values(), "kinds of products"))
        self._sizes = Counter(kinds)

    def __call__(self, briefs: Sequence[Brief]) -> list[str]:
        return [self._write(brief) for brief in briefs]

    def _write(self, brief: Brief) -> str:
        task, product = brief.task, brief.product
        generator = rng(self.seed, "ambiguous instruction", task.task_id)
        templates = _AMBIGUOUS[task.type]
        order = [templates[i] for i in generator.permutation(len(templates))]
        drafts = [template.format(thing=thing) for thing in self._things(product) for template in order]
        safe = (text for text in drafts if fits(text, brief, AMBIGUOUS_LIMIT))
        return next(safe, None) or write_instruction(task.type, product, task.review, (), generator)

    def _things(self, product: Product) -> Iterator[str]:
        kind = kind_of(product)
        if self._sizes[kind] >= SHARED:
            yield kind
        yield f"item from {section_of(product.category)}"
        yield "item"


def fits(text: str, brief: Brief, limit: int) -> bool:
    """Whether a text has at most ``limit`` words and does not give the target, or the review, away."""
    short = 0 < len(text.split()) <= limit
    return short and not gives_away(text, brief.task.type, brief.product, brief.task.review)


def _spoken(
    request: str, task_type: TaskType, profile: UserProfile, generator: np.random.Generator
) -> list[str]:
    """Drafts: the request with as many phrases as the user likes to speak, then with fewer and fewer."""
    phrases = _phrases(task_type, profile, generator)
    number = _EXTRAS.get(profile.interaction_complexity.lower(), 1)
    texts = [request]
    for i in generator.permutation(len(phrases))[:number]:
        texts.append(phrases[i].replace("{request}", texts[-1]))  # no format(): a title may hold braces
    return texts[:0:-1]


def _phrases(task_type: TaskType, profile: UserProfile, generator: np.random.Generator) -> list[str]:
    """What the profile asks for, a phrase a trait."""
    phrases = []
    aspects = [aspect.strip().lower() for aspect in profile.focus_aspect.split(",")]
    # "Other" is what a profile says where nothing is known: nobody would say it of themselves.
    if focus := " and ".join(aspect for aspect in aspects[:2] if aspect and aspect != OTHER.lower()):
        template = _pick(_REVIEW_FOCUS if task_type == "review" else _FOCUS, generator)
        phrases.append(template.replace("{focus}", focus))
    diversity = profile.diversity_preference.lower()
    if task_type != "review" and diversity in _DIVERSITY:
        phrases.append(_pick(_DIVERSITY[diversity], generator))
    if any(word in profile.tone_and_style.lower() for word in _WARM):
        phrases.append(_pick(_GREETINGS, generator))
    return phrases


def _pick(options: Sequence[str], generator: np.random.Generator) -> str:
    return options[int(generator.integers(len(options)))]
