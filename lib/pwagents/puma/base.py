"""Dialogues in PUMA's format that mean nothing, for the pre-training of the small base model.

They teach what a general language model knows already: to find in a list of products what was spoken of, to
notice what several of them share, to copy it into a call. Products, ids and requests are made up at random;
what to search for, recommend or write on a real task they do not teach.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pwagents.agents.memory import Entry
from pwagents.agents.plain import words
from pwagents.data.synthetic.shop import Domain, Item, describe, domains, language
from pwagents.llm.chat import Message
from pwagents.llm.folder import read_tokenizer
from pwagents.lm.cache import cached_model
from pwagents.lm.card import write_card
from pwagents.lm.load import load_model
from pwagents.lm.settings import SftSettings, deciding
from pwagents.lm.sft import fine_tune
from pwagents.orion.base import base_for
from pwagents.orion.base_text import ids_and_titles
from pwagents.project import code_hash
from pwagents.puma.agent import (
    IDENTIFY_RULES,
    PARAMETER_RULES,
    RECOMMEND,
    REVIEW,
    SEARCH,
    call_message,
    parameter_messages,
)
from pwagents.puma.settings import PumaNotebook
from pwagents.schema import Benchmark, Product
from pwagents.seeds import derive_seed, rng
from pwagents.settings import plain
from pwagents.web.episode import BeliefState
from pwagents.web.functions import FUNCTION_OF

_FIXED_TEXTS = (IDENTIFY_RULES, *PARAMETER_RULES.values(), *FUNCTION_OF.values())
LINES = (1, 13)  # remembered products: from 1 to 12
_REQUESTS = ("Get me {want} now.", "{want}, thanks.", "Today it is {want}.", "Bring {want}!")


def puma_dialogue(n: int, taken: frozenset[str], seed: int) -> list[Message]:
    """The n-th dialogue, always the same: an input of step 2 and a call.

    Args:
        taken: ids and titles of real products, which no made-up product gets.
    """
    made = _Dialogue(taken, rng(seed, "PUMA text", str(n)))
    kind = made.generator.choice(["search", "recommend", "review"], p=[0.6, 0.15, 0.25])
    return getattr(made, kind)()


class _Dialogue:
    """One dialogue in the making."""

    def __init__(self, taken: frozenset[str], generator: np.random.Generator):
        self.taken, self.generator = taken, generator
        self.domain: Domain = self.pick(domains())
        self.type = self.pick(list(self.domain.types))

    def search(self) -> list[Message]:
        """The query: all that the request names, then what recurs of the rest; or the title from a store."""
        recurring = {slot: self.pick(values) for slot, values in self.some(self.domain.values.items(), 0.3)}
        entries = self.entries(lambda: (self.domain, recurring if self.generator.random() < 0.8 else {}))
        if self.generator.random() < 0.2:
            meant = self.pick(entries)
            query = f"{self.type} {' '.join(words(meant['title']))}"
            return self.messages(f"{self.type} from {meant['store']}", SEARCH, entries, query=query)
        named = {slot: self.pick(values) for slot, values in self.some(self.domain.values.items(), 0.3)}
        left_open = {
            word
            for slot, values in self.domain.values.items()
            if slot not in named
            for word in words(" ".join(values))
        }
        counts = Counter(word for entry in entries[:4] for word in dict.fromkeys(words(entry["title"])))
        recurs = [word for word, n in counts.items() if n >= 3 and word in left_open]
        query = " ".join([self.type, *words(" ".join(named.values())), *recurs])
        return self.messages(", ".join([self.type, *named.values()]), SEARCH, entries, query=query)

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
        """A made-up product, and its values: with ``values``, unless a real product has them."""
        while True:
            drawn = {slot: self.pick(options) for slot, options in domain.values.items()} | values
            syllables = [self.pick("BCDFGHJKLMNPQRSTVWXZ") + self.pick("AEIOU") for _ in range(3)]
            made = describe("B0" + "".join(syllables), Item(domain, kind, drawn, 1.0), self.generator)
            if made.parent_asin not in self.taken and made.title not in self.taken:
                return made, drawn
            values = {}  # they may say all that a title says

    def opinion(self, tone: dict, mood: str, kind: str, slot: str, value: str) -> str:
        said = self.pick(language()["likes" if mood == "high" else "dislikes"][slot]).format(v=value)
        opener, closer = self.pick(tone["opener"][mood]), self.pick(tone["closer"][mood])
        return f"{opener.format(type=kind)} {said} {closer}"

    def pick(self, options: Sequence) -> Any:
        return options[int(self.generator.integers(len(options)))]

    def some(self, options, share: float) -> list:
        return [option for option in options if self.generator.random() < share]


def puma_base(settings: PumaNotebook, benchmark: Benchmark, products: Mapping[str, Product]) -> Path:
    """The folder of the model that all trainings start from, made where it is the small one.

    That is the small base model of Orion's notebooks, which then reads dialogues in PUMA's format.

    Args:
        benchmark: the one that is tested on, as in Orion's notebooks.
        products: all real ones, those to learn with among them.

    Raises:
        DataError: with ``stored_runs_only``, a small model that is not there.
    """
    models, seed, only = settings.output_dir / "models", settings.seed, settings.stored_runs_only
    if not settings.base.is_small:
        return settings.base.folder(models, stored_only=only)
    shared = base_for(benchmark.products, models, seed, settings.base.steps, stored_only=only)
    return read_puma_text(shared, models, products, settings.base.dialogues, seed, stored_only=only)


def read_puma_text(
    base: Path,
    models: Path,
    products: Mapping[str, Product],
    dialogues: int,
    seed: int,
    *,
    stored_only: bool = False,
) -> Path:
    """The folder of a base model that has also read dialogues in PUMA's format, with all of its weights.

    Args:
        base: the folder of the base model (:func:`pwagents.orion.base.base_model`).
        models: where the model goes.
        products: the real ones, of which no id and no title occurs.
        dialogues: how many are read, each once.
        stored_only: train nothing; the model must be there.

    Raises:
        DataError: it is not there, and nothing may be trained.
    """
    config = SftSettings(num_train_epochs=1.0, per_device_train_batch_size=16, learning_rate=3e-3, seed=seed)
    taken = ids_and_titles(products)
    facts = {"dialogues": dialogues, "real products": len(taken) // 2, "seed": seed, "from": base.name}

    def make(folder: Path) -> None:
        model, tokenizer = _with_fixed_texts(base, config)
        told = (puma_dialogue(n, taken, seed) for n in range(dialogues))
        fine_tune(model, tokenizer, list(told), config, folder)
        what = "The small base model after made-up dialogues in PUMA's format; it knows no task."
        write_card(folder, "base-puma", what, facts, plain(config), base=str(base))

    names = hashlib.sha256("\n".join(sorted(taken)).encode()).hexdigest()
    code = code_hash("puma", "agents", "web", "lm", "data")
    parts = facts | {"settings": deciding(config), "taken": names, "code": code}
    return cached_model(models, "base-puma", parts, make, stored_only=stored_only)


def _with_fixed_texts(base: Path, config: SftSettings) -> tuple[Any, Any]:
    """A base model and its tokenizer, to which each of PUMA's fixed texts is a further token."""
    import torch
    from tokenizers import AddedToken

    tokenizer = read_tokenizer(base)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in _FIXED_TEXTS])
    model = load_model(base, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "tokens of PUMA's texts"))
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return model, tokenizer
