"""Rule-based simulated users: controlled disclosure without a language model, one fact a turn.

The facts come from the target's page (price in round numbers, store, details, single words of title and
features) or, for a review task, from the real review (stars and what it is about). Nothing else is known: not
the latent truth of the synthetic world, not other products. Words and phrases stand in ``rules.yaml``.
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from itertools import product as pairs
from typing import NamedTuple

import numpy as np

from pwagents.profiles.contextual import ContextualProfile
from pwagents.schema import Product, Review, Step, Task, UserProfile
from pwagents.seeds import rng
from pwagents.shop.environment import DETAILS_FUNCTION, UserReply
from pwagents.shop.search import product_text
from pwagents.words import (
    content_words,
    gives_away,
    kind_of,
    read_yaml,
    section_of,
    short_store,
    stars_in_words,
    word_list,
)

_QUESTION = re.compile(
    r"\?|\b(what|which|how|do you|would you|could you|can you|tell me|let me know|describe|specify|share)\b",
    re.IGNORECASE,
)
_PRICE_STEPS = ((10, 1), (50, 5), (200, 10), (1000, 50), (float("inf"), 100))  # below, rounded to (dollars)
_TIERS = ("budget", "midrange", "premium", "luxury")
_LOOKS = ("color", "material", "size")  # slots whose values are found in titles, too
_SINGLE_WORDS = 3  # of the title, and points of a review

# What a user says where every line would leak.
REFUSALS = ("I'd rather not say.", "You have to find that out for me.", "I have no clue.")

phrases = partial(read_yaml, __package__, "rules.yaml")
# The modules that decide what the user says, for the keys of stored episodes.
CODE = ("schema", "seeds", "words", "profiles.contextual", "llm.prompts")
CODE += ("users.rules", "shop.environment", "shop.search")


class Fact(NamedTuple):
    """One thing that the user can tell: what it is about, and its value."""

    slot: str
    value: str


@dataclass(eq=False)
class RuleUser:
    """Answers what it is asked, with one fact at a time, and otherwise says what it thinks of the results.

    - A question about something it knows: one fact about it that it has not told yet; else, before results,
      an old one again, as such. About something it knows nothing of: it does not mind, or does not know.
    - Any other word after results: content when the target is among the products shown last (in a review
      task: when the review brings up at least half of its points), else not, with one fact as a hint.
    - A question about anything ("What are you looking for?"): the next fact.

    It is an offline form of PersonalWAB's Figure 15: it reads the target's page or the real review, and
    nothing that it says leaks (:func:`leaks`). What it told follows from the session, and the
    instruction's words count as told. ``seed`` chooses the wording; which fact is told does not depend on it.
    """

    products: Mapping[str, Product]
    profiles: Mapping[str, UserProfile] | None = None
    seed: int = 0
    _facts: dict[Task, tuple[Fact, ...]] = field(default_factory=dict, init=False)  # read from the pages once

    def __post_init__(self):
        # Lists are read before any episode: a file that cannot be read ends no run in the middle.
        phrases()
        word_list("stop_words")
        word_list("aspects")

    def __call__(
        self, task: Task, session: tuple[Step, ...], says: str, profile: ContextualProfile | None = None
    ) -> UserReply:
        """Answer the agent. Costs nothing.

        Args:
            profile: P_ctx,0, which the user knows too (Orion, 4.3): what they usually like counts if the
                target's page says nothing.
        """
        manner, fact = self.react(task, session, says, profile)
        generator = rng(self.seed, "rule user", task.task_id, str(len(session)))
        lines, product = self.phrasings(manner, fact, generator), self.products[task.target]
        safe = (line for line in (*lines, *REFUSALS) if not leaks(line, task, product))
        return UserReply(next(safe, "..."))

    def facts(self, task: Task) -> tuple[Fact, ...]:
        """List all that the user can tell of a task without a leak; no value twice."""
        if task not in self._facts:
            product, profile = self.products[task.target], (self.profiles or {}).get(task.user_id)
            facts = review_facts(task.review) if task.type == "review" else product_facts(product, profile)
            first: dict[str, Fact] = {}
            for fact in facts:
                first.setdefault(fact.value.lower(), fact)
            self._facts[task] = tuple(
                fact
                for fact in first.values()
                if not all(leaks(sentence, task, product) for sentence in sentences(fact))
            )
        return self._facts[task]

    def react(
        self, task: Task, session: tuple[Step, ...], says: str, profile: ContextualProfile | None = None
    ) -> tuple[str, Fact | None]:
        """Choose the manner of the answer (of ``rules.yaml``), and the fact that it tells."""
        facts = self.facts(task)
        lines = [task.instruction, *(step.observation.text for step in session if step.is_talk)]
        untold = [fact for fact in facts if all(find_run(fact.value, line) is None for line in lines)]

        # The slots that a question is about, in its order: it names them, or a value ("Navy, or white?").
        is_question = bool(_QUESTION.search(says))
        first: dict[str, int] = {}
        groups = phrases()["slots"]
        entries = groups["product"] | (groups["review"] if task.type == "review" else {})
        names = {slot: f"{entry['ask']} {entry.get('values', '')}" for slot, entry in entries.items()}
        names |= {fact.slot: fact.slot for fact in facts if fact.slot not in names}
        for slot, slot_names in names.items() if is_question else ():
            places = [i for i, word in enumerate(stems(says)) if word in stems(slot_names)]
            values = [find_run(fact.value, says) for fact in facts if fact.slot == slot]
            if places := places + [i for i in values if i is not None]:
                first[slot] = min(places)
        slots = sorted(first, key=first.get)

        # A question about something: a new fact about it. What the agent guessed right comes first.
        about = [fact for slot in slots for fact in facts if fact.slot == slot]
        right = [fact for fact in about if find_run(fact.value, says) is not None]
        about = [*right, *(fact for fact in about if fact not in right)]
        if new := [fact for fact in about if fact in untold]:
            return "tell", new[0]
        if slots and not about:
            if "identity" in slots:
                return "unknown", None
            lines = [line for line in profile.lines if line.positive] if profile else []
            usual = (Fact(x.about, x.value) for x in lines if x.about and find_run(x.about, says) is not None)
            wish = next(usual, None)
            return ("tell" if wish else "indifferent"), wish

        # A result: whether it is right, and a hint where it is not and one is left.
        if task.type == "review":
            results = [step.action.arguments["review"] for step in session if is_review(step)]
            points = [fact for fact in facts if fact.slot == "mention"]
            missing = [fact for fact in points if results and find_run(fact.value, results[-1]) is None]
            is_right = 2 * len(missing) <= len(points)
        else:
            results = [step.observation.products for step in session if is_result(step)]
            missing, is_right = facts, bool(results) and task.target in results[-1]
        if results and is_right:
            return "satisfied", None
        if results:
            hints = [fact for fact in untold if fact in missing]
            return ("dissatisfied", hints[0]) if hints else ("disappointed", None)

        # Before any result: an old fact again, or the next one where the question is about anything at all.
        if about:
            return "repeat", about[0]
        if is_question and set(stems(says)) & set(stems(phrases()["open"])):
            return ("tell", untold[0]) if untold else ("nothing_more", None)
        return ("unknown" if is_question else "go_on"), None

    def phrasings(self, manner: str, fact: Fact | None, generator: np.random.Generator) -> Iterator[str]:
        """Say it in all ways, in a seeded order."""
        templates, texts = phrases()["manners"][manner], sentences(fact) if fact else [""]
        templates = [templates[i] for i in generator.permutation(len(templates))]
        texts = [texts[i] for i in generator.permutation(len(texts))]
        return (template.format(fact=text) for text, template in pairs(texts, templates))


def is_review(step: Step) -> bool:
    """Whether the agent published a review."""
    return step.action.name == "add_product_review" and not step.error


def is_result(step: Step) -> bool:
    """Whether the shop answered the task; looking a product up is the agent's own business."""
    return step.action.name not in ("respond", DETAILS_FUNCTION) and not step.error


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
    for key, value in product.flat_details.items():
        names = re.findall(r"[a-z]+", key.lower())
        value = re.split(r"[,;/(]", value.lower())[0].strip()
        is_dull = not set(phrases()["dull_keys"].split()).isdisjoint(names) or value in ("yes", "no")
        if names and not is_dull and len(value.split()) <= 3 and re.fullmatch(r"[\w .'-]+", value):
            yield Fact(names[-1] if names[-1] in slots else " ".join(names), value)
            stated.append(value)

    # Single words of the title that tell more: looks, and others that do not stand side by side.
    stated_words = " ".join(stated).lower().split()
    words = [word for word in content_words(product.title) if word not in stated_words]
    looks = [Fact(slot, word) for word in words for slot in _LOOKS if word in slots[slot]["values"].split()]
    yield from looks
    words = [word for word in words if word not in {fact.value for fact in looks}]
    for word in (words or content_words(" ".join(product.features)))[::2][:_SINGLE_WORDS]:
        yield Fact("feature", word)

    # What follows "for" in a description of one short sentence, as the synthetic world's are.
    occasion = re.fullmatch(r"[^.]*? for (.+?)\.?", description.strip())
    if occasion and len(occasion[1].split()) <= 8 and re.fullmatch(r"[\w ,'-]+", occasion[1]):
        yield Fact("occasion", occasion[1])
    yield Fact("category", section_of(product.category))
    focus = profile.focus_aspect.lower() if profile else ""
    if len(focus.split()) <= 8 and re.fullmatch(r"[\w ,'-]+", focus):
        yield Fact("priorities", focus)


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


def find_run(run: str, text: str) -> int | None:
    """Find the first word at which ``text`` holds the words of ``run``; None where it holds them not."""
    part, words = stems(run), stems(text)
    places = range(len(words) - len(part) + 1)
    return next((i for i in places if words[i : i + len(part)] == part), None)


@lru_cache(maxsize=10_000)
def stems(text: str) -> tuple[str, ...]:
    """Split a text into words in lower case, without the s of a plural."""
    return tuple(word.rstrip("s") for word in re.findall(r"\w+", text.lower()))


def leaks(text: str, task: Task, product: Product) -> bool:
    """Whether a user's line gives away what the task asks for.

    It does when it holds the target's id, three consecutive words of its title or all of a shorter one (each
    also backwards, or its letters apart); in review tasks also four consecutive words of the real review or
    all of a shorter one. Other widths of letters, characters without width, underscores and HTML entities
    hide nothing; other spellings ("Cafe" for "Café") and codes such as base64 do.

    Args:
        product: the target of ``task``.
    """
    visible, title = _visible(text), _visible(product.title)
    # Without gaps only runs of eight letters and more count: shorter ones would be found in anything.
    letters = re.sub(r"[\W_]", "", visible).lower()
    words = re.findall(r"\w+", title.lower())
    runs = ["".join(words[i : i + 3]) for i in range(max(1, len(words) - 2))]
    hidden = [product.parent_asin.lower(), *(run for run in runs if len(run) >= 8)]
    if any(run in letters or run[::-1] in letters for run in hidden):
        return True
    if gives_away(text, task.type, product, task.review):
        return True
    product = product.model_copy(update={"title": title})
    review = task.review.model_copy(update={"text": _visible(task.review.text)})
    return gives_away(visible, task.type, product, review)


@lru_cache(maxsize=10_000)  # the same titles and reviews stand behind every line of a user
def _visible(text: str) -> str:
    """The text as a reader sees it, in letters of ordinary width, without underscores."""
    characters = unicodedata.normalize("NFKC", html.unescape(text))
    return "".join(c for c in characters if unicodedata.category(c) != "Cf").replace("_", " ")


# Users who make it harder: each differs from the cooperative one in a single way, and what they say leaks no
# more. No paper has them; the shares are ours.
VAGUE = 0.5  # of the answers that would give something
WRONG = 0.1  # likewise


class TerseUser(RuleUser):
    """Says the value and nothing around it: "navy" in place of "Best in navy."."""

    def phrasings(self, manner: str, fact: Fact | None, generator: np.random.Generator) -> Iterator[str]:
        """Return the value first; a whole sentence if the value alone leaks."""
        return chain([fact.value] if fact else [], super().phrasings(manner, fact, generator))


class VagueUser(RuleUser):
    """Does not know what to say to half of the questions that the cooperative user would answer."""

    def react(
        self, task: Task, session: tuple[Step, ...], says: str, profile: ContextualProfile | None = None
    ) -> tuple[str, Fact | None]:
        manner, fact = super().react(task, session, says, profile)
        withholds = rng(self.seed, "vague user", task.task_id, str(len(session))).random() < VAGUE
        return ("unknown", None) if manner == "tell" and withholds else (manner, fact)


class WrongUser(RuleUser):
    """Gives a wrong answer to a tenth of the questions.

    It is true of another product of the category, and does not stand on the target's page. A fact for which a
    wrong one was given may still come out at a further question. Reviews, and hints on results, are right.
    """

    def react(
        self, task: Task, session: tuple[Step, ...], says: str, profile: ContextualProfile | None = None
    ) -> tuple[str, Fact | None]:
        manner, fact = super().react(task, session, says, profile)
        generator = rng(self.seed, "wrong user", task.task_id, str(len(session)))
        if manner != "tell" or generator.random() >= WRONG:
            return manner, fact
        # Facts of the same slot that products of the target's category have, and the target has not.
        target = self.products[task.target]
        page = product_text(target)
        peers = [product for product in self.products.values() if product.category == target.category]
        facts = {other for peer in peers for other in product_facts(peer) if other.slot == fact.slot}
        others = sorted(other for other in facts if find_run(other.value, page) is None)
        return manner, others[generator.integers(len(others))] if others else fact


class ImpatientUser(RuleUser):
    """Answers one question, and then none before they have seen something."""

    def react(
        self, task: Task, session: tuple[Step, ...], says: str, profile: ContextualProfile | None = None
    ) -> tuple[str, Fact | None]:
        manner, fact = super().react(task, session, says, profile)
        # Only answers since the last result count: who has seen something answers once more.
        last = max((i for i, step in enumerate(session) if is_result(step)), default=-1)
        answers = [step.observation.text for step in session[last + 1 :] if step.is_talk]
        known = [each.value for each in (*self.facts(task), *(profile.lines if profile else ()))]
        has_answered = any(find_run(value, text) is not None for value, text in pairs(known, answers))
        return ("impatient", None) if manner == "tell" and has_answered else (manner, fact)


DIFFICULT = {"terse": TerseUser, "vague": VagueUser, "wrong": WrongUser, "impatient": ImpatientUser}
