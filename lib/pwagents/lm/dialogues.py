"""The text of Orion's small base model: dialogues in the agent's format that mean nothing.

It teaches what a general language model knows already: the form of a thought and a call, to repeat what a
request, a profile, a list or an earlier review says, that an answer follows a question. Everyone in it is
made up on the spot and appears once; requests, ids and products are random and none of the benchmark's (the
words they are made of are the shop's own). Many requests are of words that nobody would say together: what
can be guessed from its neighbours need not be copied, and copying is what is to be learned. A search repeats
what is wanted, a recommendation the ids told last, as the offline teacher's do; whether to ask and for what,
and what a real request asks for, it does not teach.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from pwagents.data.synthetic.shop import BASIC_SLOTS, SYLLABLES, Domain, domains, language
from pwagents.data.synthetic.words import with_article
from pwagents.llm.chat import Message
from pwagents.llm.fence import CLOSE, OPEN
from pwagents.lm.base import ALL_STEPS, Lesson
from pwagents.lm.exercises import Maker, shop_words
from pwagents.lm.small import make_tokenizer
from pwagents.lm.tokens import Example, tokenize_conversation
from pwagents.profiles.types import ContextualProfile, ProfileLine, Provenance
from pwagents.profiles.update import Updater
from pwagents.schema import FUNCTION_OF, TASK_TYPES, Action, Behavior, Observation, Review, Step, TaskType
from pwagents.seeds import rng
from pwagents.users.rules import Fact, phrases, sentences
from pwagents.web.environment import BeliefState, Context
from pwagents.web.functions import compact_text, full_text
from pwagents.words import content_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SHOWN = 2
ODD = 0.5  # the probability of words that nobody would say together
ODD_REQUEST = (4, 12)  # how many they are in a request, the last number excluded
MOST_BOUGHT = 9  # of the interest at hand
SAME_IDS = 0.3  # the probability that an answer changes nothing about the ids told
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
QUERY, END_OF_CALL = '{"name": "search_product_by_query", "arguments": {"query": "', '"}}'
_CALLS = (
    QUERY,
    END_OF_CALL,
    '{"name": "get_recommendations_by_history", "arguments": {"product_sequence": ["',
    '{"name": "add_product_review", "arguments": {"review": "',
    '{"name": "respond", "arguments": {"content": "',
    '{"name": "stop", "arguments": {}}',
    '"]}}',
    '", "',
)
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", OPEN, CLOSE)
_HEADS = (
    f"\n\nProfile:\n{OPEN}\nWants:\n",
    f"Profile:\n{OPEN}\nAvoids:\n",
    "\nAvoids:\n",
    "\nWanted:",
    "Bought before:",
)


class DialogueText:
    """An endless supply of dialogues, the n-th one always the same.

    Args:
        update: how profiles follow answers, as in real episodes.
        taken: what no made-up product gets: ids and titles of the real ones.
        seed: of everything.
        tell: the agent's way to tell a belief state as messages; its second argument is how many products.
        rules: of the agent, one token.
        most_ids: told of purchases, at most.
    """

    # From short to long. First comes copying, in exercises that hold little else: fine-tuning on trajectories
    # alone does not teach it to so small a model.
    lessons = (
        Lesson(limit=2, batch_size=32, learning_rate=3e-3, accuracy=0.95, most_steps=150),
        Lesson(limit=None, batch_size=16, learning_rate=3e-3, accuracy=ALL_STEPS, most_steps=500),
    )

    def __init__(
        self,
        update: Updater,
        taken: Collection[str],
        seed: int,
        tell: Callable[[BeliefState, int], list[Message]],
        rules: str,
        most_ids: int,
    ):
        self.update, self.taken, self.seed = update, frozenset(taken), seed
        self.tell, self.rules, self.most_ids = tell, rules, most_ids

    def tokenizer(self) -> "PreTrainedTokenizerFast":
        """Return the tokenizer, which needs no training."""
        return dialogue_tokenizer(self.rules)

    def example(self, tokenizer: "PreTrainedTokenizerFast", n: int, lesson: Lesson) -> Example:
        """Return the n-th text of a lesson, as tokens."""
        messages = self.dialogue(n) if lesson.limit is None else self.exercise(n, lesson.limit)
        return tokenize_conversation(tokenizer, messages)

    def copied(self, tokenizer: "PreTrainedTokenizerFast", example: Example) -> list[bool]:
        """Return which tokens progress is measured on: the first query, with the end of its call."""
        begin, end = tokenizer.convert_tokens_to_ids([QUERY, END_OF_CALL])
        ids = example.input_ids
        if begin not in ids:
            return [False] * len(ids)
        first = ids.index(begin) + 1
        last = ids.index(end, first)
        return [first <= i <= last for i in range(len(ids))]

    def dialogue(self, n: int) -> list[Message]:
        """Return the n-th dialogue, as messages."""
        task = TASK_TYPES[n // SAME_KIND % len(TASK_TYPES)]
        made = _Dialogue(self, task, rng(self.seed, "base text", str(n)))
        kinds = {"search": made.search, "recommend": made.recommend, "review": made.review}
        return self.tell(kinds[task](), SHOWN)

    def exercise(self, n: int, most_asked: int) -> list[Message]:
        """Return the n-th exercise in copying: a request, a profile, answers, and the call that repeats them.

        Args:
            most_asked: questions, at most.
        """
        made = _Dialogue(self, "search", rng(self.seed, "base exercise", str(n)))
        return self.tell(made.exercise(most_asked), SHOWN)[:-1]  # without what the call brings


def dialogue_tokenizer(rules: str) -> "PreTrainedTokenizerFast":
    """Return a tokenizer of the shop's words and of the boilerplate, a token each."""
    slots = {slot for domain in domains() for slot in domain.slots if slot not in BASIC_SLOTS}
    lines = [
        f"- [{provenance}] {mark}{about}: "
        for provenance in get_args(Provenance)
        for mark in ("", "not ")
        for about in ["brand", "price", "topic", *sorted(slots)]
    ]
    words = [*sorted(shop_words()), *(f"{mark}{part}" for mark in ("B0", "##") for part in SYLLABLES)]
    return make_tokenizer(words, fixed=[*_CALLS, *_MARKS, *_HEADS, *lines, rules])


class _Dialogue(Maker):
    """One dialogue in the making; what makes it returns the belief state at its end."""

    def __init__(self, text: DialogueText, task: TaskType, generator: np.random.Generator):
        super().__init__(text.taken, generator)
        self.text, self.task = text, task
        self.domain: Domain = self.pick(domains())
        self.odd = generator.random() < ODD
        self.type = self.words(1, 4) if self.odd else self.pick(list(self.domain.types))
        self.values = {
            slot: self.words(1, 2) if self.odd else self.pick(values)
            for slot, values in self.domain.values.items()
        }

    def search(self) -> BeliefState:
        return self._stop(self._request(self._bought(), self._questions()))

    def recommend(self) -> BeliefState:
        """The ids told last are repeated."""
        scene = self.words(1, 4) if self.odd else self.domain.scenario
        request = self.pick(SCENES).format(want=scene)
        state = self._begin(request, self._profile({}), self._bought(), content_words(scene))
        state = self._ask(state, [], self._questions())
        action = self._act("nothing", FUNCTION_OF["recommend"], product_sequence=list(state.profile.bought))
        return self._stop(self._take(state, action, self._results()))

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
        request = f"{self.pick(REVIEWS).format(want=self.type)} {stars} stars. {mention}"
        past = Behavior(parent_asin="B0", timestamp=1, review=Review(rating=5, text=earlier))
        state = self._begin(request, self._profile({slot: value}), ())
        observation = f"{state.observation}\n\nThe product:\n{full_text(product)}"
        state = replace(state, observation=observation, product=product, history=(past,))
        text = " ".join([opener.format(type=self.type), likes[slot][0].format(v=value), closer])
        action = self._act("nothing", FUNCTION_OF["review"], review=text)
        return self._stop(self._take(state, action, Observation(text="The review is published.")))

    def exercise(self, most_asked: int) -> BeliefState:
        return self._request((), int(self.generator.integers(most_asked + 1)))

    def _request(self, bought: tuple[str, ...], questions: int) -> BeliefState:
        """A request, some questions and a search."""
        stated = {slot: self.values[slot] for slot in self.some(list(self.values), 0.3)}
        request, words = self._wish(stated)
        state = self._begin(request, self._profile(stated), bought, words)
        state = self._ask(state, list(stated), questions)
        action = self._act("nothing", FUNCTION_OF["search"], query=state.profile.query or state.instruction)
        return self._take(state, action, self._results())

    def _wish(self, stated: Mapping[str, str]) -> tuple[str, list[str]]:
        """A request for a thing with some values, and what it calls the thing; an odd one: any words."""
        named = ", ".join(language()["wishes"][slot].format(v=value) for slot, value in stated.items())
        if self.odd and self.generator.random() < 0.5:
            odd = self.words(*ODD_REQUEST)
            return f"{odd} {named}".strip() + ".", self.some(odd.split(), 0.5)
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
        self, request: str, profile: ContextualProfile, bought: tuple[str, ...], words: Sequence[str] = ()
    ) -> BeliefState:
        user = f"U{self.generator.integers(5000, 10000)}"
        profile = profile.model_copy(update={"words": tuple(words), "bought": bought[-self.text.most_ids :]})
        context = Context(profile, bought)
        return BeliefState(user, request, f"User {user}: {request}", None, (), (), profile, context)

    def _profile(self, stated: Mapping[str, str]) -> ContextualProfile:
        """What was stated, then what history says, then what is to be avoided."""
        wanted = [*self._wanted(stated)]
        values = {line.value.lower() for line in wanted}
        avoided = [line for line in self._avoided() if line.value.lower() not in values]
        return ContextualProfile(lines=(*wanted, *avoided))

    def _wanted(self, stated: Mapping[str, str]) -> Iterator[ProfileLine]:
        for slot, value in stated.items():
            yield ProfileLine.of(f"{_ABOUT_OF.get(slot, slot)}: {value}", True, "stated")
        left = [slot for slot in self.domain.values if slot not in stated]
        known = int(self.generator.integers(0 if stated else 1, len(left) + 1))
        for i in self.generator.permutation(len(left))[:known]:
            value = self.words(1, 2) if self.odd else self.pick(self.domain.values[left[i]])
            yield ProfileLine.of(f"{_ABOUT_OF.get(left[i], left[i])}: {value}", True, "history")

    def _avoided(self) -> Iterator[ProfileLine]:
        for _ in range(int(self.generator.integers(0, 3))):
            other: Domain = self.pick(domains())
            slot = self.pick([slot for slot in other.slots if slot != "tier"])
            yield ProfileLine.of(f"{slot}: {self.pick(other.values[slot])}", False, "history")

    def _questions(self) -> int:
        return int(self.generator.choice(6, p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.1]))

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
            fact = Fact(_FACT_OF.get(slot, slot), value)
            answer = self.pick(sentences(fact))
        else:
            answer = self.pick(phrases()["manners"]["indifferent"])
        named = [about, *self.some([_ABOUT_OF.get(s, s) for s in self.values if s != slot], 0.2)][:3]
        question = f"Which {about} would you like?"
        action = self._act(", ".join(named), "respond", content=question)
        return self._take(state, action, Observation(text=answer))

    def _stop(self, state: BeliefState) -> BeliefState:
        return self._take(state, self._act("nothing", "stop"), Observation(text="The task has ended."))

    def _recalled(self, state: BeliefState) -> tuple[str, ...]:
        """The ids told after an answer: the same, or some of all."""
        if self.generator.random() < SAME_IDS:
            return state.profile.bought
        return tuple(self.some(state.context.bought, 0.5)[-self.text.most_ids :]) or state.profile.bought

    def _act(self, open_now: str, name: str, **arguments: object) -> Action:
        return Action(name=name, arguments=arguments, thought=f"<think>{self.task}, open: {open_now}</think>")

    def _take(self, state: BeliefState, action: Action, observation: Observation) -> BeliefState:
        """The state after a step, its profile followed as in a real episode."""
        step = Step(action=action, observation=observation)
        profile = self.text.update(state.profile, state.instruction, (*state.session, step)).profile
        bought = self._recalled(state) if action.name == "respond" else state.profile.bought
        profile = profile.model_copy(update={"bought": bought})
        if profile != state.profile:
            step = step.model_copy(update={"profile": profile.describe()})
        return replace(state, session=(*state.session, step), profile=profile)

    def _results(self) -> Observation:
        products = [self.product(self.domain) for _ in range(SHOWN)]
        lines = [f"{i}. {compact_text(product)}" for i, product in enumerate(products, start=1)]
        return Observation(text="\n".join(lines), products=tuple(p.parent_asin for p in products))

    def _bought(self) -> tuple[str, ...]:
        """As many ids before a search as before a recommendation: their number must not tell which it is."""
        return self.ids(int(self.generator.integers(1, MOST_BOUGHT + 1)))
