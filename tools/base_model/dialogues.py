"""The text of Orion's small base model: dialogues in the agent's format that mean nothing.

It teaches what a general language model knows already: the form of a thought and a call, to repeat what a
request, a profile, a list or an earlier review says, that an answer follows a question. Everyone in it is
made up on the spot and appears once; requests, ids and products are random and none of the benchmark's (the
words they are made of are the shop's own). Many requests are of words that nobody would say together: what
can be guessed from its neighbours need not be copied, and copying is what is to be learned. A query is put
together from the request, the profile's lines and the answers, a recommendation takes the purchases that hold
what was said, as the offline teacher's do; whether to ask and for what, and what a real request asks for, it
does not teach. Where the profile is not updated, the answers stand in the dialogue alone.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from base_model.exercises import Maker, ids_and_titles, shop_words
from base_model.pretrain import ALL_STEPS, Lesson
from base_model.small import make_tokenizer
from pwagents.data.synthetic.shop import BASIC_SLOTS, SYLLABLES, Domain, domains, language
from pwagents.data.synthetic.words import with_article
from pwagents.llm.chat import Message
from pwagents.llm.fence import CLOSE, OPEN
from pwagents.lm.tokens import Example, tokenize_conversation
from pwagents.orion.agent import PURCHASES, RULES, orion_messages
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.contextual import (
    Context,
    ContextualProfile,
    ProfileLine,
    Provenance,
    Purchase,
    Updater,
)
from pwagents.profiles.update import OfflineUpdater
from pwagents.schema import (
    FUNCTION_OF,
    TASK_TYPES,
    Action,
    Behavior,
    Observation,
    Product,
    Review,
    Step,
    TaskType,
)
from pwagents.seeds import rng
from pwagents.shop.environment import BeliefState, compact_text, full_text
from pwagents.users.rules import Fact, phrases, sentences
from pwagents.words import content_words, kind_of, read_yaml

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SHOWN = 2
ODD = 0.5  # the probability of words that nobody would say together
ODD_REQUEST = (4, 12)  # how many they are in a request, the last number excluded
FEW_BOUGHT = 5  # purchases told in an exercise, at most
NOT_UPDATED = 0.3  # the probability that answers change no profile
SAME_KIND = 8  # dialogues in a row: two kinds in a batch of 16
_FACT_OF = {"brand": "store", "tier": "price", "type": "kind"}  # slot of the shop -> what the user calls it
_ABOUT_OF = {"tier": "price"}  # slot of the shop -> what profiles call it
# Requests: in words that the tokenizer knows, and unlike all of the world's.
FRAMES = (
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
SCENES = ("Nice things for {want}, thanks.", "Please bring something for {want}.", "Well, it is {want}.")
REVIEWS = ("Just some words on the {want}, thanks.", "Do say something of the {want}.")
# The boilerplate of calls and profiles, a token each.
QUERY, END_OF_QUERY = '{"name": "search_product_by_query", "arguments": {"query": "', '"}}'
IDS, END_OF_IDS = '{"name": "get_recommendations_by_history", "arguments": {"product_sequence": ["', '"]}}'
_CALLS = (
    QUERY,
    END_OF_QUERY,
    IDS,
    END_OF_IDS,
    '{"name": "add_product_review", "arguments": {"review": "',
    '{"name": "respond", "arguments": {"content": "',
    '{"name": "stop", "arguments": {}}',
    '", "',
)
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", OPEN, CLOSE)
_HEADS = (
    f"\n\nProfile:\n{OPEN}\nWants:\n",
    f"Profile:\n{OPEN}\nAvoids:\n",
    "\nAvoids:\n",
    f"\n\nPast purchases:\n{OPEN}\n",
)
_OTHERS = "How many stars would you give it What should the review mention"  # words beside the shop's


class DialogueText:
    """An endless supply of dialogues, the n-th one always the same.

    Args:
        update: how profiles follow answers, as in real episodes.
        taken: what no made-up product gets: ids and titles of the real ones.
        seed: of everything.
        tell: the agent's way to tell a belief state as messages; its second argument is how many products.
        rules: of the agent, one token.
        most_bought: purchases told, at most.
    """

    # From short to long. First comes copying a request, then putting a call together from a request, a
    # profile and answers, in exercises that hold little else: trajectories alone teach it neither.
    lessons = (
        Lesson(limit=0, batch_size=32, learning_rate=3e-3, accuracy=0.9, most_steps=200),
        Lesson(limit=2, batch_size=32, learning_rate=3e-3, accuracy=0.95, most_steps=500),
        Lesson(limit=None, batch_size=16, learning_rate=3e-3, accuracy=ALL_STEPS, most_steps=600),
    )

    def __init__(
        self,
        update: Updater,
        taken: Collection[str],
        seed: int,
        tell: Callable[[BeliefState, int], list[Message]],
        rules: str,
        most_bought: int,
    ):
        self.update, self.taken, self.seed = update, frozenset(taken), seed
        self.tell, self.rules, self.most_bought = tell, rules, most_bought

    def tokenizer(self) -> "PreTrainedTokenizerFast":
        """Return the tokenizer, which needs no training."""
        return dialogue_tokenizer(self.rules)

    def example(self, tokenizer: "PreTrainedTokenizerFast", n: int, lesson: Lesson) -> Example:
        """Return the n-th text of a lesson, as tokens."""
        messages = self.dialogue(n) if lesson.limit is None else self.exercise(n, lesson.limit)
        return tokenize_conversation(tokenizer, messages)

    def copied(self, tokenizer: "PreTrainedTokenizerFast", example: Example) -> list[bool]:
        """Return which tokens progress is measured on: a query, or ids, with the end of the call."""
        ids = example.input_ids
        for begin, end in ((QUERY, END_OF_QUERY), (IDS, END_OF_IDS)):
            begin, end = tokenizer.convert_tokens_to_ids([begin, end])
            if begin in ids:
                first = ids.index(begin) + 1
                last = ids.index(end, first)
                return [first <= i <= last for i in range(len(ids))]
        return [False] * len(ids)

    def dialogue(self, n: int) -> list[Message]:
        """Return the n-th dialogue, as messages."""
        task = TASK_TYPES[n // SAME_KIND % len(TASK_TYPES)]
        made = _Dialogue(self, task, rng(self.seed, "base text", str(n)))
        kinds = {"search": made.search, "recommend": made.recommend, "review": made.review}
        return self.tell(kinds[task](), SHOWN)

    def exercise(self, n: int, most_asked: int) -> list[Message]:
        """Return the n-th exercise in copying: a request, what is known, answers, and the call made of them.

        Args:
            most_asked: questions before a search, at most; with 0, the call repeats the request, or all ids.
        """
        generator = rng(self.seed, "base exercise", str(n))
        made = _Dialogue(self, "recommend" if n % 2 else "search", generator)
        if not most_asked:
            return self.tell(made.repeated(), SHOWN)[:-1]
        state = made.chosen(FEW_BOUGHT) if made.task == "recommend" else made.requested((), most_asked + 1)
        return self.tell(state, SHOWN)[:-1]  # without what the call brings


def dialogue_text(products: Mapping[str, Product], seed: int) -> "DialogueText":
    """Return the dialogues in the agent's own form."""
    update, taken = OfflineUpdater(Catalogue(products)), ids_and_titles(products)
    return DialogueText(update, taken, seed, orion_messages, RULES, PURCHASES)


def dialogue_tokenizer(rules: str) -> "PreTrainedTokenizerFast":
    """Return a tokenizer of the shop's words and of the boilerplate, a token each."""
    slots = {slot for domain in domains() for slot in domain.slots if slot not in BASIC_SLOTS}
    lines = [
        f"- [{provenance}] {mark}{about}: "
        for provenance in get_args(Provenance)
        for mark in ("", "not ")
        for about in ["brand", "price", "topic", *sorted(slots)]
    ]
    categories = sorted({f"| {domain.category} |" for domain in domains()})
    words = [*sorted(shop_words()), *(f"{mark}{part}" for mark in ("B0", "##") for part in SYLLABLES)]
    # What ambiguous requests are made of, and the parts of a month.
    requests = " ".join(
        text
        for texts in read_yaml("pwagents.tasks", "writers.yaml")["offline"]["ambiguous"].values()
        for text in texts
    )
    words += [*re.findall(r"[A-Za-z]+", f"{requests} {_OTHERS}"), *map(str, range(1996, 2031))]
    words += [f"{month:02}" for month in range(1, 13)]
    return make_tokenizer(words, fixed=[*_CALLS, *_MARKS, *_HEADS, *categories, *lines, rules])


class _Dialogue(Maker):
    """One dialogue in the making; what makes it returns the belief state at its end."""

    def __init__(self, text: DialogueText, task: TaskType, generator: np.random.Generator):
        super().__init__(text.taken, generator)
        self.text, self.task = text, task
        self.domain: Domain = self.pick(domains())
        self.odd, self.is_updated = generator.random() < ODD, generator.random() >= NOT_UPDATED
        self.answers: dict[str, str] = {}  # what was asked for -> the value told
        self.type = self.words(1, 4) if self.odd else self.pick(list(self.domain.types))
        self.values = {
            slot: self.words(1, 2) if self.odd else self.pick(values)
            for slot, values in self.domain.values.items()
        }

    def search(self) -> BeliefState:
        return self._stop(self.requested(self._bought(self.text.most_bought), 7))

    def recommend(self) -> BeliefState:
        return self._stop(self.chosen(self.text.most_bought))

    def chosen(self, most_bought: int) -> BeliefState:
        """A recommendation by the purchases told that hold most of what was said; by all where none does."""
        bought = self._bought(most_bought)
        named = self.pick(bought).title.partition(",")[0].split()[-1]
        says, asks = self.generator.random(2) < 0.5
        scene = named if says else self.words(1, 4) if self.odd else self.domain.scenario
        state = self._begin(self.pick(SCENES).format(want=scene), self._profile({}), bought)
        if asks:
            self.type = named
            state = self._answered(state, "type")
        state = self._ask(state, ["type"], self._questions(5))
        said = " ".join([scene, *(step.observation.text for step in state.session)])
        words = {*content_words(said.lower())}
        fits = [len(words.intersection(re.findall("[a-z]+", x.title.lower()))) for x in bought]
        ids = [x.asin for x, n in zip(bought, fits, strict=True) if n == max(fits)]
        return self._take(
            state, self._act("nothing", FUNCTION_OF["recommend"], product_sequence=ids), self._results()
        )

    def review(self) -> BeliefState:
        """A review that begins and ends as an earlier one does. Its end is in another tone than its
        beginning, as in no real review, so that it cannot happen to be one."""
        product = self.product(self.domain)
        mood = self.pick(["high", "low"])
        slot = self.pick(list(self.values))
        value = self.values[slot]
        likes = language()["likes" if mood == "high" else "dislikes"]
        opener, closer = self._frame(mood)
        between = [
            self.pick(likes[other]).format(v=self.words(1, 2)) for other in self.some(list(self.values), 0.3)
        ]
        earlier = " ".join([opener.format(type=self.words(1, 3)), *between, closer])
        stars = language()["stars"][int(self.generator.integers(4, 6) if mood == "high" else 2)]
        mention = language()["mention"][mood].format(v=value, slot=language()["slot_names"][slot])
        is_asked = self.generator.random() < 0.5
        kind = kind_of(product) if is_asked else self.type
        request = "Just some words on it, thanks."
        if not is_asked:
            request = f"{self.pick(REVIEWS).format(want=kind)} {stars} stars. {mention}"
        past = Behavior(parent_asin="B0", timestamp=1, review=Review(rating=5, text=earlier))
        state = self._begin(request, self._profile({slot: value}))
        observation = f"{state.observation}\n\nThe product:\n{full_text(product)}"
        state = replace(state, observation=observation, product=product, history=(past,))
        if is_asked:
            state = self._told(state, "How many stars would you give it?", Fact("rating", f"{stars} stars"))
            state = self._told(state, "What should the review mention?", Fact("mention", value))
        text = " ".join([opener.format(type=kind), likes[slot][0].format(v=value), closer])
        action = self._act("nothing", FUNCTION_OF["review"], review=text)
        return self._stop(self._take(state, action, Observation(text="The review is published.")))

    def repeated(self) -> BeliefState:
        """A request of words that nobody would say together, and a call that repeats it, or all ids."""
        words = " ".join(content_words(self.words(*ODD_REQUEST)) or ["nothing"])
        call, bought = {"query": words}, ()
        if self.task == "recommend":
            bought = self._bought(FEW_BOUGHT)
            call = {"product_sequence": [x.asin for x in bought]}
        state = self._begin(f"{words}.", ContextualProfile(), bought)
        return self._take(state, self._act("nothing", FUNCTION_OF[self.task], **call), self._results())

    def requested(self, bought: tuple[Purchase, ...], below: int) -> BeliefState:
        """A request, fewer than ``below`` questions, and a search put together from all that was told."""
        stated = {slot: self.values[slot] for slot in self.some(list(self.values), self.pick([0, 0.3]))}
        request, words = self._wish(stated)
        state = self._begin(request, self._profile(stated), bought)
        state = self._ask(state, list(stated), self._questions(below))

        # Values of attributes that nobody spoke of, those of the answers, and none that is to be avoided.
        abouts = {_ABOUT_OF.get(slot, slot): value for slot, value in stated.items()}
        lines, wanted = state.profile.lines, dict.fromkeys([*words, *abouts.values()])
        spoken_of = {*abouts, *self.answers, "topic"}
        for line in lines:
            if line.positive and (line.provenance == "stated" or line.about not in spoken_of):
                wanted[line.value] = None
        if not self.is_updated:
            wanted |= dict.fromkeys(self.answers.values())
        query = " ".join(
            value for value in wanted if not any(x.value == value and not x.positive for x in lines)
        )
        action = self._act("nothing", FUNCTION_OF["search"], query=query or state.instruction)
        return self._take(state, action, self._results())

    def _wish(self, stated: Mapping[str, str]) -> tuple[str, list[str]]:
        """A request for a thing with some values, and what it calls the thing; an odd one: any words."""
        named = ", ".join(language()["wishes"][slot].format(v=value) for slot, value in stated.items())
        if self.odd and self.generator.random() < 0.5:
            odd = self.words(*ODD_REQUEST)
            return f"{odd} {named}".strip() + ".", content_words(odd)  # but for stop words, all are copied
        whole, head = with_article(self.type), with_article(self.type.split()[-1])
        thing = self.pick([whole, head, f"something for {self.domain.scenario}"])
        return self.pick(FRAMES).format(want=f"{thing} {named}".strip()), content_words(thing)

    def _frame(self, mood: str) -> tuple[str, str]:
        """How a review of that mood begins, with a place for the thing, and how it ends."""
        if self.odd:
            before, after, last = (self.words(1, 5) for _ in range(3))
            return f"{before} my {{type}}, {after}.", f"{last}."
        tones = language()["tones"]
        first, last = (list(tones)[i] for i in self.generator.permutation(len(tones))[:2])
        return self.pick(tones[first]["opener"][mood]), self.pick(tones[last]["closer"][mood])

    def _begin(
        self, request: str, profile: ContextualProfile, purchases: tuple[Purchase, ...] = ()
    ) -> BeliefState:
        user = f"U{self.generator.integers(5000, 10000)}"
        context = Context(profile, purchases)
        return BeliefState(user, request, f"User {user}: {request}", None, (), (), profile, context)

    def _profile(self, stated: Mapping[str, str]) -> ContextualProfile:
        """What history says, and what is to be avoided; what the request states is none of it."""
        wanted = [*self._wanted(stated)]
        values = {line.value.lower() for line in wanted}
        avoided = [line for line in self._avoided() if line.value.lower() not in values]
        return ContextualProfile(lines=(*wanted, *avoided))

    def _wanted(self, stated: Mapping[str, str]) -> Iterator[ProfileLine]:
        slots = list(self.values)
        known = int(self.generator.integers(0 if stated else 1, len(slots) + 1))
        for i in self.generator.permutation(len(slots))[:known]:
            value = self.words(1, 2) if self.odd else self.pick(self.domain.values[slots[i]])
            yield ProfileLine.of(f"{_ABOUT_OF.get(slots[i], slots[i])}: {value}", True, "history")
        for word in self.some([self.pick(list(self.domain.types)).split()[-1]], 0.5):
            yield ProfileLine.of(f"topic: {word}", True, "history")

    def _avoided(self) -> Iterator[ProfileLine]:
        for _ in range(int(self.generator.integers(0, 3))):
            other: Domain = self.pick(domains())
            slot = self.pick([slot for slot in other.slots if slot != "tier"])
            yield ProfileLine.of(f"{slot}: {self.pick(other.values[slot])}", False, "history")

    def _questions(self, below: int) -> int:
        """None often, else any number below one."""
        return int(self.generator.integers(below)) if self.generator.random() < 0.7 else 0

    def _ask(self, state: BeliefState, stated: Sequence[str], n: int) -> BeliefState:
        """The state after ``n`` questions, most of them about slots of this domain."""
        own = [slot for slot in (*self.values, "type") if slot not in stated]
        others = sorted({slot for domain in domains() for slot in domain.slots} - {*own, *stated})
        pools = [own if self.generator.random() < 0.75 else others for _ in range(n)]
        for slot in dict.fromkeys(self.pick(pool) for pool in pools if pool):
            state = self._answered(state, slot)
        return state

    def _answered(self, state: BeliefState, slot: str) -> BeliefState:
        about = _ABOUT_OF.get(slot, slot)
        if value := (self.values | {"type": self.type}).get(slot):
            self.answers[about] = value
            answer = self.pick(sentences(Fact(_FACT_OF.get(slot, slot), value)))
        else:
            answer = self.pick(phrases()["manners"]["indifferent"])
        named = [about, *self.some([_ABOUT_OF.get(s, s) for s in self.values if s != slot], 0.2)][:3]
        question = f"Which {about} would you like?"
        action = self._act(", ".join(named), "respond", content=question)
        return self._take(state, action, Observation(text=answer))

    def _told(self, state: BeliefState, question: str, fact: Fact) -> BeliefState:
        action = self._act(fact.slot, "respond", content=question)
        return self._take(state, action, Observation(text=self.pick(sentences(fact))))

    def _stop(self, state: BeliefState) -> BeliefState:
        return self._take(state, self._act("nothing", "stop"), Observation(text="The task has ended."))

    def _act(self, open_now: str, name: str, **arguments: object) -> Action:
        return Action(name=name, arguments=arguments, thought=f"<think>{self.task}, open: {open_now}</think>")

    def _take(self, state: BeliefState, action: Action, observation: Observation) -> BeliefState:
        """The state after a step, its profile followed as in a real episode."""
        step = Step(action=action, observation=observation)
        profile = state.profile
        if self.is_updated:
            profile = self.text.update(profile, state.instruction, (*state.session, step)).profile
        if profile != state.profile:
            step = step.model_copy(update={"profile": profile.describe()})
        return replace(state, session=(*state.session, step), profile=profile)

    def _results(self) -> Observation:
        products = [self.product(self.domain) for _ in range(SHOWN)]
        lines = [f"{i}. {compact_text(product)}" for i, product in enumerate(products, start=1)]
        return Observation(text="\n".join(lines), products=tuple(p.parent_asin for p in products))

    def _bought(self, most: int) -> tuple[Purchase, ...]:
        """Purchases of this domain and of another, one or more, in the order of their months."""
        places = [self.domain, self.pick(domains())]
        made = [self.product(self.pick(places)) for _ in range(int(self.generator.integers(1, most + 1)))]
        months = sorted(int(month) for month in self.generator.integers(12 * 2015, 12 * 2024, len(made)))
        return tuple(
            Purchase(each.parent_asin, each.title, each.category, f"{month // 12}-{month % 12 + 1:02}")
            for each, month in zip(made, months, strict=True)
        )
