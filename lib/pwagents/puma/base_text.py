"""What the small base model reads in PUMA's format: exercises and dialogues that mean nothing.

They teach what a general language model knows already: to repeat what it reads, or a list, to write in the
manner of earlier texts. Products, ids and requests are made up at random, and most requests are of words that
nobody would say together: what can be guessed from its neighbours need not be copied, and copying is what is
to be learned. What to search for, recommend or write on a real task they do not teach.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from pwagents.agents.memory import Entry
from pwagents.data.synthetic.shop import Domain, Item, describe, domains, language, made_up_id
from pwagents.data.synthetic.words import with_article
from pwagents.llm.chat import Message
from pwagents.llm.fence import fence
from pwagents.puma.agent import (
    OFTEN,
    PAST,
    RECOMMEND,
    REVIEW,
    SEARCH,
    call_message,
    parameter_messages,
)
from pwagents.puma.labels import offline_query
from pwagents.schema import Product
from pwagents.seeds import rng
from pwagents.web.environment import BeliefState
from pwagents.words import content_words

# How many products are remembered, the last number excluded; of reviews few, as their lines are long.
LINES, LINES_OF_A_LIST, LINES_OF_REVIEWS = (1, 9), (1, 11), (1, 5)
MOST_WORDS = 3  # in the name of a thing that does not exist
SAME_KIND = 16  # dialogues in a row: a batch is of one kind
SHARED = 0.6  # the probability that a product of an interest has the value that the others have
_REQUESTS = (
    "Get me {want} now.",
    "Today it is {want}.",
    "Do you have {want} for me?",
    "What I need is {want}.",
    "It could be {want}, I think.",
    "I would like {want}, if you can.",
    "Do find {want}, thanks.",
)


class PumaText:
    """An endless supply of dialogues and exercises, the n-th one always the same.

    Each is an input of step 2, and a call.

    Args:
        taken: ids and titles of real products, which no made-up product gets.
    """

    def __init__(self, taken: frozenset[str], seed: int):
        self.taken, self.seed = taken, seed

    def dialogue(self, n: int) -> list[Message]:
        """A request, what is remembered, and what follows from both."""
        made = self._made("PUMA text", n)
        kinds = [made.search] * 2 + [made.recommend] + [made.review] * 2
        return kinds[n // SAME_KIND % len(kinds)]()

    def exercise(self, n: int, most: int) -> list[Message]:
        """What is often bought, and the content words of a request: to find the next word that counts is
        harder than to repeat all, and reviews need it.

        Args:
            most: wishes in a request.
        """
        return self._made("PUMA exercise", n).repeat_words(most)

    def _made(self, kind: str, n: int) -> "_Dialogue":
        return _Dialogue(self.taken, rng(self.seed, kind, str(n)))


class _Dialogue:
    """One dialogue in the making."""

    def __init__(self, taken: frozenset[str], generator: np.random.Generator):
        self.taken, self.generator = taken, generator
        self.domain: Domain = self.pick(domains())
        self.type = self.pick(list(self.domain.types))

    def search(self) -> list[Message]:
        """The query: the word that recurs in what is remembered, and the request."""
        liked = {slot: self.pick(values) for slot, values in self.domain.values.items()}
        entries = self.entries(lambda: (self.domain, dict(self.some(liked.items(), SHARED))))
        request = self.pick([self.wish, *[self.nonsense] * 3])(2)
        return self.messages(request, SEARCH, entries, query=offline_query(request, entries))

    def recommend(self) -> list[Message]:
        """The numbers of all lines."""
        entries = self.entries(lambda: (self.domain, {}), LINES_OF_A_LIST)
        entries = list({entry["parent_asin"]: entry for entry in entries}.values())
        numbers = [str(number) for number in range(1, len(entries) + 1)]
        request = self.request(f"things for {self.domain.scenario}")
        return self.messages(request, RECOMMEND, entries, product_sequence=numbers)

    def review(self) -> list[Message]:
        """The review: in the tone and at the length of the earlier ones, on what is to be mentioned first."""
        tone = self.pick(list(language()["tones"].values()))
        sentences = int(self.generator.integers(1, 5))
        entries = self.entries(lambda: (self.pick(domains()), {}), LINES_OF_REVIEWS)
        for entry in entries:
            mood, domain = self.pick(["high", "low"]), self.pick(domains())
            kind = self.pick(list(domain.types))
            _, values = self.product(domain, {}, kind)
            text = self.opinion(tone, mood, kind, self.shuffled(values)[:sentences])
            entry |= {"rating": 5.0 if mood == "high" else 2.0, "text": text}
        mood = self.pick(["high", "low"])
        product, values = self.product(self.domain, {}, self.type)
        topics = self.shuffled(values)[:sentences]
        slot, value = topics[0]
        mention = language()["mention"][mood].format(v=value, slot=language()["slot_names"][slot])
        stars = "five" if mood == "high" else "two"
        request = f"words on the {self.type}, {stars} stars. {mention}"
        text = self.opinion(tone, mood, self.type, topics)
        return self.messages(self.request(request), REVIEW, entries, product, review=text)

    def repeat_words(self, most: int) -> list[Message]:
        """A word that is often bought, perhaps, and the content words of a request."""
        request = self.nonsense(most)
        asked = [word for word in re.findall(r"[^\W\d_]+", request) if content_words(word)]
        if self.generator.random() < 0.5:
            return self.messages(request, SEARCH, [], query=" ".join(asked))
        often = self.word()
        messages = self.messages(request, SEARCH, [], query=" ".join([often, *asked]))
        told = fence(f"{OFTEN} {often}")
        messages[1] |= {"content": f"{PAST}\n{told}\n\n{request}"}
        return messages

    def wish(self, most: int) -> str:
        """A request for a thing, or for something for a situation, that names some of its values."""
        values = {slot: self.pick(options) for slot, options in self.domain.values.items()}
        thing = self.pick([with_article(self.type), f"things for {self.domain.scenario}"])
        return self.wanted(thing, self.shuffled(values)[: int(self.generator.integers(most + 1))])

    def nonsense(self, most: int) -> str:
        """A request of words that nobody would say together."""
        thing = " ".join(self.word() for _ in range(int(self.generator.integers(1, MOST_WORDS + 1))))
        thing = self.pick([with_article(thing), f"things for {thing}"])
        slots = {slot: self.word() for slot in language()["wishes"]}
        return self.wanted(thing, self.shuffled(slots)[: int(self.generator.integers(most + 1))])

    def wanted(self, thing: str, values: list[tuple[str, str]]) -> str:
        wishes = ", ".join(language()["wishes"][slot].format(v=value) for slot, value in values)
        return self.request(f"{thing} {wishes}".strip())

    def word(self) -> str:
        """Any word that tells something of a product."""
        return self.pick(_words())

    def request(self, want: str) -> str:
        return self.pick(_REQUESTS).format(want=want)

    def messages(
        self,
        request: str,
        function: str,
        entries: list[Entry],
        product: Product | None = None,
        **arguments: Any,
    ) -> list[Message]:
        state = self.state(request, product)
        return [*parameter_messages(state, function, entries), call_message(function, arguments)]

    def state(self, request: str, product: Product | None = None) -> BeliefState:
        return BeliefState("U", request, request, product, ())

    def entries(
        self, draw: Callable[[], tuple[Domain, dict[str, str]]], lines: tuple[int, int] = LINES
    ) -> list[Entry]:
        """Remembered products of the domains, and with the values, that ``draw`` gives."""
        made = []
        for _ in range(int(self.generator.integers(*lines))):
            domain, values = draw()
            product, _ = self.product(domain, values, self.pick(list(domain.types)))
            made.append(product.model_dump(include={"title", "parent_asin", "category", "price", "store"}))
        return made

    def product(self, domain: Domain, values: dict[str, str], kind: str) -> tuple[Product, dict[str, str]]:
        """A made-up product, and its values: with ``values``, unless a real product has them."""
        while True:
            drawn = {slot: self.pick(options) for slot, options in domain.values.items()} | values
            made = describe(made_up_id(self.pick), Item(domain, kind, drawn, 1.0), self.generator)
            if made.parent_asin not in self.taken and made.title not in self.taken:
                return made, drawn
            values = {}  # they may say all that a title says

    def opinion(self, tone: dict, mood: str, kind: str, topics: Sequence[tuple[str, str]]) -> str:
        """A review of somebody of that tone and mood, a sentence a topic (slot, value)."""
        said = [
            self.pick(language()["likes" if mood == "high" else "dislikes"][slot]).format(v=value)
            for slot, value in topics
        ]
        opener, closer = self.pick(tone["opener"][mood]), self.pick(tone["closer"][mood])
        return " ".join([opener.format(type=kind), *said, closer])

    def pick(self, options: Sequence) -> Any:
        return options[int(self.generator.integers(len(options)))]

    def some(self, options, share: float) -> list:
        return [option for option in options if self.generator.random() < share]

    def shuffled(self, values: dict) -> list[tuple]:
        items = list(values.items())
        return [items[i] for i in self.generator.permutation(len(items))]


@cache
def _words() -> tuple[str, ...]:
    """The content words of the shop's types, values and situations, as they are written."""
    names = [
        name
        for domain in domains()
        for name in [*domain.types, *chain(*domain.values.values()), domain.scenario]
    ]
    return tuple(dict.fromkeys(word for name in names for word in name.split() if content_words(word)))
