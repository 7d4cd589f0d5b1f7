"""Dialogues in PUMA's format that mean nothing, for the pre-training of the small base model.

They teach what a general language model knows already: to find in a list of products what was spoken of, to
notice what several of them share, to copy it into a call. Products, ids and requests are made up at random;
what to search for, recommend or write on a real task they do not teach.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pwagents.agents.memory import Entry
from pwagents.agents.plain import words
from pwagents.agents.puma import RECOMMEND, REVIEW, SEARCH, call_message, parameter_messages
from pwagents.data.synthetic.shop import Domain, Item, describe, domains, language
from pwagents.llm.chat import Message
from pwagents.schema import Product
from pwagents.seeds import rng
from pwagents.web.episode import BeliefState

LINES = (1, 13)  # remembered products: from 1 to 12
_REQUESTS = ("Get me {want} now.", "{want}, thanks.", "Today it is {want}.", "Bring {want}!")


def puma_dialogue(n: int, taken: frozenset[str], seed: int) -> list[Message]:
    """The n-th dialogue, always the same: an input of step 2 and a call.

    Args:
        taken: ids of real products, which no made-up product gets.
    """
    made = _Dialogue(taken, rng(seed, "PUMA text", str(n)))
    kind = made.generator.choice(["search", "recommend", "review"], p=[0.5, 0.25, 0.25])
    return getattr(made, kind)()


class _Dialogue:
    """One dialogue in the making."""

    def __init__(self, taken: frozenset[str], generator: np.random.Generator):
        self.taken, self.generator = taken, generator
        self.domain: Domain = self.pick(domains())
        self.type = self.pick(list(self.domain.types))

    def search(self) -> list[Message]:
        """The query: what is wanted, then the title from a store that is named, or else what recurs."""
        recurring = {slot: self.pick(values) for slot, values in self.some(self.domain.values.items(), 0.3)}
        entries = self.entries(lambda: (self.domain, recurring if self.generator.random() < 0.8 else {}))
        if self.generator.random() < 0.4:
            meant = self.pick(entries)
            query = f"{self.type} {' '.join(words(meant['title']))}"
            return self.messages(f"{self.type} from {meant['store']}", SEARCH, entries, query=query)
        counts = Counter(word for entry in entries[:4] for word in dict.fromkeys(words(entry["title"])))
        query = " ".join([self.type, *(word for word, n in counts.items() if n >= 3)])
        return self.messages(self.type, SEARCH, entries, query=query)

    def recommend(self) -> list[Message]:
        """The ids: those of the category that is named, at most ten, in their order."""
        pool = [self.pick(domains()) for _ in range(3)]
        entries = self.entries(lambda: (self.pick(pool), {}))
        category = self.pick(entries)["category"]
        ids = [entry["parent_asin"] for entry in entries if entry["category"] == category]
        latest = list(dict.fromkeys(ids))[-10:]
        return self.messages(f"things of {category}", RECOMMEND, entries, product_sequence=latest)

    def review(self) -> list[Message]:
        """The review: in the tone of the earlier ones, on what is to be mentioned."""
        tone = self.pick(list(language()["tones"].values()))
        entries = self.entries(lambda: (self.pick(domains()), {}))
        for entry in entries:
            mood, domain = self.pick(["high", "low"]), self.pick(domains())
            slot = self.pick(domain.slots)
            text = self.opinion(
                tone, mood, self.pick(list(domain.types)), slot, self.pick(domain.values[slot])
            )
            entry |= {"rating": 5.0 if mood == "high" else 2.0, "text": text}
        mood, slot = self.pick(["high", "low"]), self.pick(self.domain.slots)
        product, values = self.product(self.domain, {}, self.type)
        mention = language()["mention"][mood].format(v=values[slot], slot=language()["slot_names"][slot])
        request = f"words on the {self.type}, {'five' if mood == 'high' else 'two'} stars. {mention}"
        text = self.opinion(tone, mood, self.type, slot, values[slot])
        return self.messages(request, REVIEW, entries, product, review=text)

    def messages(
        self, want: str, function: str, entries: list[Entry], product: Product | None = None, **arguments: Any
    ) -> list[Message]:
        request = self.pick(_REQUESTS).format(want=want)
        state = BeliefState("U", request, request, product, ())
        return [*parameter_messages(state, function, entries), call_message(function, arguments)]

    def entries(self, draw: Callable[[], tuple[Domain, dict[str, str]]]) -> list[Entry]:
        """Remembered products of the domains, and with the values, that ``draw`` gives."""
        made = []
        for _ in range(int(self.generator.integers(*LINES))):
            domain, values = draw()
            product, _ = self.product(domain, values, self.pick(list(domain.types)))
            made.append(product.model_dump(include={"title", "parent_asin", "category", "price", "store"}))
        return made

    def product(self, domain: Domain, values: dict[str, str], kind: str) -> tuple[Product, dict[str, str]]:
        values = {slot: self.pick(options) for slot, options in domain.values.items()} | values
        return describe(self.made_up_id(), Item(domain, kind, values, 1.0), self.generator), values

    def opinion(self, tone: dict, mood: str, kind: str, slot: str, value: str) -> str:
        said = self.pick(language()["likes" if mood == "high" else "dislikes"][slot]).format(v=value)
        opener, closer = self.pick(tone["opener"][mood]), self.pick(tone["closer"][mood])
        return f"{opener.format(type=kind)} {said} {closer}"

    def made_up_id(self) -> str:
        while True:
            parts = [self.pick("BCDFGHJKLMNPQRSTVWXZ") + self.pick("AEIOU") for _ in range(3)]
            if (made := "B0" + "".join(parts)) not in self.taken:
                return made

    def pick(self, options: Sequence) -> Any:
        return options[int(self.generator.integers(len(options)))]

    def some(self, options, share: float) -> list:
        return [option for option in options if self.generator.random() < share]
