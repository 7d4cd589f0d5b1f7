"""What PUMA's small base model reads: prompts in PUMA's form whose completions are copies.

It teaches what a general language model knows already: to write in full what a prompt begins, to repeat the
ids of a list, to write in the manner of earlier texts. Products, ids and requests are made up at random, and
most requests are of words that nobody would say together: what can be guessed from its neighbours need not be
copied. What to search for, recommend or write on a real task, and which tool does it, these do not teach.

The prompts are :mod:`pwagents.puma.memory`'s own. Their form is the published one (PersonalWAB's repository,
``PUMA/utils.py``), the words are ours.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from base_model.pretrain import ALL_STEPS, Lesson
from base_model.small import make_tokenizer
from pwagents.agents.messages import TASK_SPECIFIC, write_entries
from pwagents.data.synthetic.shop import (
    CONSONANTS,
    SYLLABLES,
    VOWELS,
    Domain,
    Item,
    describe,
    domains,
    language,
)
from pwagents.lm.tokens import Example
from pwagents.puma.memory import FUNCTION, JOB, PARAMETER, parameter_prompt
from pwagents.schema import FUNCTION_OF, Product
from pwagents.seeds import rng
from pwagents.words import content_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SEARCH, RECOMMEND, REVIEW = (FUNCTION_OF[task] for task in ("search", "recommend", "review"))
ITEMS = (1, 7)  # how many are remembered, the last number excluded
SAME_KIND = 16  # texts in a row: a batch is of one kind
REQUESTS = (
    "Get me {want} now.",
    "Today it is {want}.",
    "Do you have {want} for me?",
    "What I need is {want}.",
    "It could be {want}, I think.",
    "I would like {want}, if you can.",
    "Do find {want}, thanks.",
)
# The boilerplate of prompts, a token each.
FIXED = (
    f"{JOB} {PARAMETER}\n### Instruction:",
    f"{JOB} {FUNCTION}\n### Instruction: ",
    "\n\nMemory: ",
    "\n\nTool: ",
    "\n\n### Tool Parameter:\n",
    "\n\n### Tool:\n",
    *FUNCTION_OF.values(),
)
_OTHERS = (
    "User The task has ended Error No product was found An earlier review is published open nothing search "
    "recommend Title Id Average Ratings Price Store Features Description Details Department Category"
)


class Maker:
    """Draws words, products and ids that no real product has.

    Args:
        taken: ids and titles of real products (:func:`ids_and_titles`).
    """

    def __init__(self, taken: Collection[str], generator: np.random.Generator):
        self.taken, self.generator = taken, generator

    def pick(self, options: Sequence) -> Any:
        """Return one of them, each as likely."""
        return options[int(self.generator.integers(len(options)))]

    def some(self, options: Sequence, share: float) -> list:
        """Return each of them with a probability."""
        return [option for option in options if self.generator.random() < share]

    def words(self, least: int, below: int) -> str:
        """Return from ``least`` to ``below`` - 1 words of the shop and of those who talk about it."""
        return " ".join(self.pick(_words()) for _ in range(int(self.generator.integers(least, below))))

    def product(self, domain: Domain) -> Product:
        """Return a product with an id and a title that no real product has."""
        while True:
            values = {slot: self.pick(values) for slot, values in domain.values.items()}
            item = Item(domain, self.pick(list(domain.types)), values, 1.0)
            product = describe(self.ids(1)[0], item, self.generator)
            if product.title not in self.taken:
                return product

    def ids(self, n: int) -> tuple[str, ...]:
        """Return ids that no real product has."""
        made: list[str] = []
        while len(made) < n:
            one = "B0" + "".join(self.pick(CONSONANTS) + self.pick(VOWELS) for _ in range(3))
            if one not in self.taken:
                made.append(one)
        return tuple(made)


def ids_and_titles(products: Mapping[str, Product]) -> frozenset[str]:
    """Return the ids and titles of products."""
    return frozenset(products) | {product.title for product in products.values()}


@cache
def shop_words() -> frozenset[str]:
    """Return the words of the shop's pages, reviews, requests and answers; none tells of a user or task."""
    sources = [
        files("pwagents.data.synthetic").joinpath(name).read_text("utf-8")
        for name in ("shop.yaml", "language.yaml")
    ]
    sources += [files("pwagents.users").joinpath("rules.yaml").read_text("utf-8")]
    words = set(re.findall(r"[A-Za-z]+", " ".join(re.sub(r"#.*", "", text) for text in sources)))
    values = {value for domain in domains() for slot in domain.values for value in domain.values[slot]}
    words |= {value.capitalize() for value in values} | {word.lower() for word in words}
    slots = {slot.capitalize() for domain in domains() for slot in domain.slots}
    return frozenset(words | slots | {*_OTHERS.split()} | {str(number) for number in range(10, 100)})


@cache
def _words() -> tuple[str, ...]:
    return tuple(sorted(word for word in shop_words() if word.isalpha()))


class ExerciseText:
    """An endless supply of prompts with completions, the n-th one always the same.

    Args:
        products: real ones, whose ids and titles no made-up product gets.
        seed: of everything.
    """

    # Plain repetition of words first: so small a model does not learn to copy from long texts alone.
    lessons = (
        Lesson(limit=6, batch_size=32, learning_rate=3e-3, accuracy=0.97, most_steps=150),
        Lesson(limit=None, batch_size=16, learning_rate=3e-3, accuracy=ALL_STEPS, most_steps=500),
    )

    def __init__(self, products: Mapping[str, Product], seed: int):
        self.taken, self.seed = ids_and_titles(products), seed

    def tokenizer(self) -> "PreTrainedTokenizerFast":
        """Return the tokenizer, which needs no training."""
        words = [*sorted(shop_words()), *(f"{mark}{part}" for mark in ("B0", "##") for part in SYLLABLES)]
        return make_tokenizer(words, fixed=FIXED)

    def example(self, tokenizer: "PreTrainedTokenizerFast", n: int, lesson: Lesson) -> Example:
        """Return the n-th text of a lesson, as tokens."""
        prompt, completion = self.exercise(n, lesson.limit)
        begin = tokenizer(prompt)["input_ids"]
        written = [*tokenizer(completion)["input_ids"], tokenizer.eos_token_id]
        return Example([*begin, *written], [0] * len(begin) + [1] * len(written))

    def copied(self, tokenizer: "PreTrainedTokenizerFast", example: Example) -> list[bool]:
        """Return which tokens a lesson's progress is measured on: all of a completion."""
        return list(map(bool, example.mask))

    def exercise(self, n: int, most_words: int | None = None) -> tuple[str, str]:
        """Return the n-th prompt and its completion.

        Args:
            most_words: of a request to be repeated without any memory; None: with one, of all three tools.
        """
        made = _Exercise(self.taken, rng(self.seed, "plain text", str(n)))
        if most_words:
            return made.repeat(most_words)
        return (made.search, made.recommend, made.review, made.recommend)[n // SAME_KIND % 4]()


class _Exercise(Maker):
    """One exercise in the making."""

    def repeat(self, most: int) -> tuple[str, str]:
        """The request's words that tell something."""
        words = self.words(1, most + 1)
        return parameter_prompt(self._request(words), "", SEARCH), _telling(words)

    def search(self) -> tuple[str, str]:
        """A title in the memory, in full, whose beginning the request says; else the request's words."""
        products = self._products()
        title = self.pick(products).title.split()
        named = self.generator.random() < 0.5 and len(title) > 1
        want = " ".join(title[: int(self.generator.integers(1, len(title)))]) if named else self.words(1, 6)
        return self._prompt(SEARCH, want, products), " ".join(title) if named else _telling(want)

    def recommend(self) -> tuple[str, str]:
        """All ids in the memory."""
        products = self._products()
        ids = ", ".join(product.parent_asin for product in products)
        return self._prompt(RECOMMEND, self.words(1, 6), products), ids

    def review(self) -> tuple[str, str]:
        """A review that begins and ends as an earlier one, on the value that the request mentions."""
        domain, tones = self.pick(domains()), list(language()["tones"].values())
        mood = self.pick(["high", "low"])
        slot = self.pick(list(domain.values))
        value, kind = self.pick(domain.values[slot]), self.pick(list(domain.types))
        opener, closer = (self.pick(self.pick(tones)[part][mood]) for part in ("opener", "closer"))
        likes = language()["likes" if mood == "high" else "dislikes"]
        kinds = self.words(1, 3), self.words(1, 2)
        earlier = [opener.format(type=kinds[0]), self.pick(likes[slot]).format(v=kinds[1]), closer]
        entries = [{"rating": 5.0 if mood == "high" else 2.0, "text": " ".join(earlier)}]
        mention = language()["mention"][mood].format(v=value, slot=language()["slot_names"][slot])
        product = self.product(domain)
        told = f"Title: {product.title}\nPrice: {product.price}\nStore: {product.store}"
        request = self._request(f"words on the {kind}")
        request = f"{request} {mention}\n{told}\nMain Category: {product.category}"
        memory = write_entries(TASK_SPECIFIC[REVIEW], entries, {})
        text = " ".join([opener.format(type=kind), likes[slot][0].format(v=value), closer])
        return parameter_prompt(request, memory, REVIEW), text

    def _products(self) -> list[Product]:
        domain = self.pick(domains())
        return [self.product(domain) for _ in range(int(self.generator.integers(*ITEMS)))]

    def _prompt(self, tool: str, want: str, products: list[Product]) -> str:
        form = TASK_SPECIFIC[tool]
        entries = [
            product.model_dump(include={"title", "parent_asin", "category", "price", "store"})
            for product in products
        ]
        memory = "|".join(write_entries(form, [entry], {}) for entry in entries)
        return parameter_prompt(self._request(want), memory, tool)

    def _request(self, want: str) -> str:
        return self.pick(REQUESTS).format(want=want)


def _telling(words: str) -> str:
    """The words that tell something, as they stand; where none does, all."""
    return " ".join(word for word in words.split() if content_words(word)) or words
