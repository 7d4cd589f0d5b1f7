"""The text that the small base model is pre-trained on: dialogues in the agents' format that mean nothing.

It teaches what a general language model knows already: the form of a thought and a call, to copy what a
profile, an answer or a list says, that an answer follows a question. Everyone in it is made up on the spot
and appears once; requests, ids and products are random and none of the benchmark's (the words they are made
of are the shop's own). What to ask, what to look for and when to stop it does not teach.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pwagents.data.synthetic.shop import Domain, Item, describe, domains, language
from pwagents.data.synthetic.words import with_article
from pwagents.llm.chat import Message
from pwagents.orion.agent import orion_messages
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import Updater
from pwagents.schema import Action, Behavior, Observation, Product, Review, Step
from pwagents.seeds import rng
from pwagents.users.facts import Fact, phrases, sentences
from pwagents.web.episode import BeliefState, Context
from pwagents.web.functions import FUNCTION_OF, compact_text, full_text

SHOWN = 2
_HASHED = 300  # dialogues and exercises: so many that another word in the shop's files is not missed
# Requests: in words that the tokenizer knows, and unlike all of the world's.
_FRAMES = (
    "Please order {want} now.",
    "{want}, thanks.",
    "Well, it is {want}.",
    "Please bring {want}!",
    "Just {want} this time.",
    "Do you have {want}?",
    "What I need is {want}.",
    "I would be happy with {want}, thank you!",
    "Hi, my friends like {want}.",
    "Could it be {want}?",
    "You know, I like {want} best.",
    "So it is {want} for me, please.",
    "We want {want} again.",
)
_SCENES = ("Nice things for {want}, thanks.", "Please bring something for {want}.", "Well, it is {want}.")
_REVIEWS = ("Just some words on the {want}, thanks.", "Do say something of the {want}.")
_FACT_OF = {"brand": "store", "tier": "price"}  # slot of the shop -> what the user calls it
_ABOUT_OF = {"tier": "price"}  # slot of the shop -> what profiles call it


class BaseText:
    """An endless supply of dialogues, the n-th one always the same.

    Args:
        update: how profiles follow answers, as in real episodes.
        taken: what no made-up product gets: :func:`ids_and_titles` of the real ones.
        seed: of everything.
    """

    def __init__(self, update: Updater, taken: Collection[str], seed: int):
        self.update, self.taken, self.seed = update, frozenset(taken), seed

    def content_hash(self) -> str:
        """16 hex digits that stand for the text: over its first dialogues and exercises."""
        digest = hashlib.sha256(json.dumps(sorted(self.taken)).encode())
        for n in range(_HASHED):
            made = [self.dialogue(n), self.exercise(n, 3)]
            digest.update(json.dumps(made, sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def dialogue(self, n: int) -> list[Message]:
        """The n-th dialogue, as messages."""
        return _Dialogue(self, rng(self.seed, "base text", str(n))).messages()

    def exercise(self, n: int, most_asked: int) -> list[Message]:
        """The n-th exercise in copying: a profile, answers, and the call that says it all again; short.

        Args:
            most_asked: questions, at most.
        """
        return _Dialogue(self, rng(self.seed, "base exercise", str(n))).exercise(most_asked)


def ids_and_titles(products: Mapping[str, Product]) -> frozenset[str]:
    """The ids and titles of products."""
    return frozenset(products) | {product.title for product in products.values()}


def text_without(products: Mapping[str, Product], seed: int) -> BaseText:
    """The text in which none of these products occurs; profiles are updated as in their shop."""
    return BaseText(OfflineUpdater(Catalogue(products)), ids_and_titles(products), seed)


class _Dialogue:
    """One dialogue in the making."""

    def __init__(self, text: BaseText, generator: np.random.Generator):
        self.text, self.generator = text, generator
        self.domain: Domain = self.pick(domains())
        self.type = self.pick(list(self.domain.types))
        self.values = {slot: self.pick(values) for slot, values in self.domain.values.items()}

    def messages(self) -> list[Message]:
        kinds = {self._search: 0.8, self._recommend: 0.1, self._review: 0.1}
        make = list(kinds)[self.generator.choice(len(kinds), p=list(kinds.values()))]
        return orion_messages(make(), SHOWN)

    def exercise(self, most_asked: int) -> list[Message]:
        asked = int(self.generator.integers(most_asked + 1))
        return orion_messages(self._request((), asked, plain=not most_asked), SHOWN)[:-1]

    def pick(self, options: Sequence) -> object:
        return options[int(self.generator.integers(len(options)))]

    def some(self, options: Sequence, share: float) -> list:
        return [option for option in options if self.generator.random() < share]

    def _search(self) -> BeliefState:
        asked = int(self.generator.choice(6, p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.1]))
        return self._stop(self._request(self._ids(), asked))

    def _request(self, bought: tuple[str, ...], asked: int, plain: bool = False) -> BeliefState:
        """A request, some questions and a search; ``plain``: the product alone is named."""
        stated = [] if plain else self.some(list(self.values), 0.3)
        want = self.type if plain else self.pick([self.type, self.type.split()[-1], self.domain.scenario])
        named = [language()["wishes"][slot].format(v=self.values[slot]) for slot in stated]
        thing = want if want == self.domain.scenario else with_article(want)
        request = self.pick(_FRAMES).format(want=" ".join([thing, ", ".join(named)]).strip())
        lines = self._lines({slot: self.values[slot] for slot in stated})
        state = self._begin(request, ContextualProfile(lines=tuple(lines)), bought)
        for slot in self._asked(stated, asked):
            state = self._ask(state, slot)
        return self._finish(state, want)

    def _recommend(self) -> BeliefState:
        state = self._begin(
            self.pick(_SCENES).format(want=self.domain.scenario),
            ContextualProfile(lines=tuple(self._lines({}))),
            self._ids(),
        )
        ids = list(state.context.bought)[-int(self.generator.integers(1, 6)) :]
        action = _act("nothing", FUNCTION_OF["recommend"], product_sequence=ids)
        return self._stop(self._take(state, action, self._results()))

    def _review(self) -> BeliefState:
        """A review that begins and ends as an earlier one does. Its end is in another tone than its
        beginning, as in no real review, so that it cannot happen to be one."""
        product = self._product()
        tones = language()["tones"]
        first, last = (list(tones)[i] for i in self.generator.permutation(len(tones))[:2])
        mood = self.pick(["high", "low"])
        slot = self.pick(list(self.values))
        opener, closer = self.pick(tones[first]["opener"][mood]), self.pick(tones[last]["closer"][mood])
        said = self.pick(language()["likes" if mood == "high" else "dislikes"][slot])
        stars = language()["stars"][int(self.generator.integers(4, 6) if mood == "high" else 2)]
        mention = language()["mention"][mood].format(v=self.values[slot], slot=language()["slot_names"][slot])
        request = f"{self.pick(_REVIEWS).format(want=self.type)} {stars} stars. {mention}"
        other = self.pick([t for domain in domains() for t in domain.types])
        past = Behavior(
            parent_asin="B0",
            timestamp=1,
            review=Review(rating=5, text=f"{opener.format(type=other)} {closer}"),
        )
        state = self._begin(request, ContextualProfile(lines=tuple(self._lines({}))), ())
        observation = f"{state.observation}\n\nThe product:\n{full_text(product)}"
        state = replace(state, observation=observation, product=product, history=(past,))
        text = " ".join([opener.format(type=self.type), said.format(v=self.values[slot]), closer])
        action = _act("nothing", FUNCTION_OF["review"], review=text)
        return self._stop(self._take(state, action, Observation(text="The review is published.")))

    def _begin(self, request: str, profile: ContextualProfile, bought: tuple[str, ...]) -> BeliefState:
        user = f"U{self.generator.integers(5000, 10000)}"
        context = Context(profile, bought)
        return BeliefState(user, request, f"User {user}: {request}", None, (), (), profile, context)

    def _lines(self, stated: dict[str, str]) -> Iterator[ProfileLine]:
        """A profile: what was stated, then what history says, then what is to be avoided. Now and then
        history speaks of another corner of the shop."""
        for slot, value in stated.items():
            yield ProfileLine.of(f"{_ABOUT_OF.get(slot, slot)}: {value}", True, "stated")
        domain: Domain = self.domain if self.generator.random() < 0.75 else self.pick(domains())
        left = [slot for slot in domain.values if slot not in stated]
        for i in self.generator.permutation(len(left)):
            if self.generator.random() < 0.7:
                value = self.pick(domain.values[left[i]])
                yield ProfileLine.of(f"{_ABOUT_OF.get(left[i], left[i])}: {value}", True, "history")
        for word in self.some(self.pick(list(domain.types)).split(), 0.5):
            yield ProfileLine.of(f"topic: {word}", True, "history")
        for _ in range(int(self.generator.integers(0, 3))):
            other: Domain = self.pick(domains())
            slot = self.pick([slot for slot in other.slots if slot != "tier"])
            yield ProfileLine.of(f"{slot}: {self.pick(other.values[slot])}", False, "history")

    def _asked(self, stated: Sequence[str], n: int) -> list[str]:
        """``n`` slots to ask about, most of them of this domain."""
        own = [slot for slot in self.values if slot not in stated]
        others = sorted({slot for domain in domains() for slot in domain.slots} - {*own, *stated})
        pools = [own if self.generator.random() < 0.75 else others for _ in range(n)]
        return list(dict.fromkeys(self.pick(pool) for pool in pools if pool))

    def _ask(self, state: BeliefState, slot: str) -> BeliefState:
        about = _ABOUT_OF.get(slot, slot)
        if slot in self.values:
            fact = Fact(_FACT_OF.get(slot, slot), self.values[slot])
            answer = self.pick(sentences(fact))
        else:
            answer = self.pick(phrases()["manners"]["indifferent"])
        named = [about, *self.some([_ABOUT_OF.get(s, s) for s in self.values if s != slot], 0.2)][:3]
        question = f"Which {about} would you like?"
        return self._take(
            state, _act(", ".join(named), "respond", content=question), Observation(text=answer)
        )

    def _finish(self, state: BeliefState, want: str) -> BeliefState:
        """A search for all that the profile wants and such products have, in the alphabetical order of what
        it is about."""
        had = {_ABOUT_OF.get(slot, slot) for slot in self.values}
        wanted = [line for line in state.profile.lines if line.positive and line.about in had]
        values = [line.value for line in sorted(wanted, key=lambda line: line.about)]
        action = _act("nothing", FUNCTION_OF["search"], query=" ".join([want, *values]))
        return self._take(state, action, self._results())

    def _stop(self, state: BeliefState) -> BeliefState:
        return self._take(state, _act("nothing", "stop"), Observation(text="The task has ended."))

    def _take(self, state: BeliefState, action: Action, observation: Observation) -> BeliefState:
        """The state after a step, its profile followed as in a real episode."""
        step = Step(action=action, observation=observation)
        profile = self.text.update(state.profile, state.instruction, (*state.session, step)).profile
        if profile != state.profile:
            step = step.model_copy(update={"profile": profile.told()})
        return replace(state, session=(*state.session, step), profile=profile)

    def _results(self) -> Observation:
        products = [self._product() for _ in range(SHOWN)]
        lines = [f"{i}. {compact_text(product)}" for i, product in enumerate(products, start=1)]
        return Observation(text="\n".join(lines), products=tuple(p.parent_asin for p in products))

    def _product(self) -> Product:
        """A product with an id and a title that no real product has."""
        while True:
            values = {slot: self.pick(values) for slot, values in self.domain.values.items()}
            item = Item(self.domain, self.type, values, 1.0)
            product = describe(self._ids(1)[0], item, self.generator)
            if product.title not in self.text.taken:
                return product

    def _ids(self, n: int = 5) -> tuple[str, ...]:
        """Ids that no real product has."""
        found: list[str] = []
        while len(found) < n:
            parts = [self.pick("BCDFGHJKLMNPQRSTVWXZ") + self.pick("AEIOU") for _ in range(3)]
            if (made := "B0" + "".join(parts)) not in self.text.taken:
                found.append(made)
        return tuple(found)


def _act(open_now: str, name: str, **arguments: object) -> Action:
    return Action(name=name, arguments=arguments, thought=f"<think>open: {open_now}</think>")
