"""The teachers: the agent's side of the role-play that makes conversations to learn from (Orion, 4.3).

The paper does not say who plays the agent's side; "a strong LLM" writes its instructions. Here a language
model plays it, or rules (:class:`OfflineTeacher`). Both see what a policy sees, S_t,
and never the target or the task. The one by rules knows, beside it, what anybody knows of a shop: which words
are colors or brands, and in what the products of a kind differ.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from pwagents.orion.agent import OrionAgent
from pwagents.profiles.catalogue import (
    TOPIC,
    WORD_LISTS,
    Catalogue,
    affirmed,
    denied,
    expresses,
    find_bands,
    spaced_words,
)
from pwagents.schema import FUNCTION_OF, Action, Step, Task, TaskType
from pwagents.seeds import derive_seed
from pwagents.shop.environment import Agent, BeliefState
from pwagents.words import content_words, kind_of

if TYPE_CHECKING:
    from pwagents.orion.study import Study

NAMED = 3  # open attributes, at most, in a thought
REVIEW_TEMPERATURE, TEMPERATURE = 1.0, 0.6  # of a language model: the paper's for RL's episodes (5.1)
MAX_TOKENS = 500  # of its turn
_COMMON = 0.5  # the share of a kind's products that have an attribute, from which one may ask for it
_LONGEST_SENTENCE = 30  # words that are taken over from an earlier review
_LONGEST_VALUE = 3  # words of a line's value that a query takes; a longer one is a sentence
_STARS = re.compile(r"\b(one|two|three|four|five|[1-5])\b(?: and a half)?[ -]stars?\b", re.IGNORECASE)
_LOW = ("one", "two", "three", "1", "2", "3")
_QUESTIONS = {"rating": "How many stars would you give it?", "mention": "What should the review mention?"}


class OfflineTeacher:
    """BeliefState -> Action, by rules; the function by ``identify``.

    - Before a search or a recommendation it asks for what nobody stated, one thing at a time: the type where
      no word says it, then the attributes that products of the type have, those first of which the profile,
      too, says nothing. Before a review it asks for the stars and for what to mention.
    - A query is composed: the instruction's words for the thing, what the profile holds of other attributes
      than those spoken of, and what the user said; never what is to be avoided.
    - A recommendation takes of the purchases told those that hold most of what the user said.
    - A review stands between the sentences with which the user's earlier review begins and ends.

    After its result it stops. Its thought names the task, so that it is not lost sight of over questions, and
    what is open: ``<think>search, open: color, style</think>``.

    Args:
        catalogue: knows words and kinds of products.
        seed: with user and instruction, it decides in which order it asks; another seed makes another episode
            of the same task.
        identify: instruction -> the function it asks for, such as a
            :class:`pwagents.agents.offline.FunctionClassifier` of the train split.
        questions: how many it asks, at most.
    """

    def __init__(self, catalogue: Catalogue, seed: int, identify: Callable[[str], str], questions: int):
        self.catalogue, self.seed, self.identify, self.questions = catalogue, seed, identify, questions
        self._common = lru_cache(maxsize=10_000)(self._common_attributes)

    def __call__(self, state: BeliefState) -> Action:
        task, is_done = self._task(state), any(map(is_result, state.session))
        open_now = [] if is_done else self._open(state)
        named = ["type" if about == TOPIC else about for about in open_now[:NAMED]]
        thought = f"<think>{task}, open: {', '.join(named) or 'nothing'}</think>"
        if is_done:
            return Action(name="stop", thought=thought)
        if named and sum(step.is_talk for step in state.session) < self.questions:
            question = _QUESTIONS.get(named[0], f"Which {named[0]} would you like?")
            return Action(name="respond", arguments={"content": question}, thought=thought)
        compose = {"search": self._query, "recommend": self._choose, "review": self._review}[task]
        name = {"search": "query", "recommend": "product_sequence", "review": "review"}[task]
        return Action(name=FUNCTION_OF[task], arguments={name: compose(state)}, thought=thought)

    def _task(self, state: BeliefState) -> TaskType:
        if state.product is not None:
            return "review"
        return "recommend" if self.identify(state.instruction) == FUNCTION_OF["recommend"] else "search"

    def _answers(self, state: BeliefState) -> Iterator[tuple[str, list[str]]]:
        """What each answer was about, and the values or words in it that tell something."""
        for step in state.session:
            text = step.observation.text
            if step.is_talk and not expresses("indifferent", text) and not expresses("unknown", text):
                text = affirmed(text)
                values = [trait.value for trait in self.catalogue.find(text)] + find_bands(text)
                about = self.catalogue.find_attribute(step.action.arguments["content"])
                if about == "mention":  # anything may be
                    values = [w for w in content_words(text) if w not in WORD_LISTS["answer_words"].split()]
                yield about, values or self.catalogue.find_topics(text)

    def _open(self, state: BeliefState) -> list[str]:
        """What to ask for, the first thing first; seeded where nothing else tells the order."""
        talk = [step.action.arguments["content"] for step in state.session if step.is_talk]
        asked = {self.catalogue.find_attribute(question) for question in talk}
        if state.product is not None:
            return [about for about in _QUESTIONS if about not in asked]
        words = self.catalogue.find_topics(state.instruction)
        words += [word for about, values in self._answers(state) if about == TOPIC for word in values]
        if not words:
            return [TOPIC] if TOPIC not in asked else []
        stated = {trait.about for trait in self.catalogue.find(state.instruction)} | asked
        lines = state.profile.lines if state.profile else ()
        held = {line.about for line in lines if line.positive}

        def order(about: str) -> tuple[bool, int]:
            return about in held, derive_seed(self.seed, "question", state.user_id, state.instruction, about)

        return sorted((about for about in self._common(tuple(words)) if about not in stated), key=order)

    def _common_attributes(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The attributes that most products with the most of some words have."""
        counts = Counter(asin for word in words for asin in self._titled.get(word, ()))
        asins = [asin for asin, n in counts.items() if n == max(counts.values())]
        having = Counter(about for asin in asins for about in {t.about for t in self.catalogue.traits(asin)})
        common = (about for about, n in having.items() if n >= _COMMON * len(asins) and about != TOPIC)
        return tuple(sorted(common))

    @cached_property
    def _titled(self) -> dict[str, list[str]]:
        """A word -> the products whose titles have it."""
        titled: dict[str, list[str]] = defaultdict(list)
        for asin, product in self.catalogue.products.items():
            for word in set(spaced_words(product.title).split()):
                titled[word].append(asin)
        return dict(titled)

    def _query(self, state: BeliefState) -> str:
        lines = state.profile.lines if state.profile else ()
        answers = {about: values for about, values in self._answers(state) if values}
        spoken_of = {trait.about for trait in self.catalogue.find(state.instruction)} | answers.keys()
        # What the past speaks for counts where the user did not speak; titles' other words are no taste.
        spoken_of |= {line.about for line in lines if line.provenance == "stated"} | {TOPIC, ""}
        told = [x for x in lines if x.positive and (x.provenance == "stated" or x.about not in spoken_of)]
        # A search understands no amount of money, and no sentence.
        told = [x for x in told if not x.is_amount and len(x.value.split()) <= _LONGEST_VALUE]
        values = [line.value for line in told if line.value]
        request = affirmed(state.instruction)
        said = [trait.value for trait in self.catalogue.find(request)] + find_bands(request)
        answered = [value for some in answers.values() for value in some]
        words = [*self.catalogue.find_topics(request), *said, *values, *answered]
        wanted: dict[str, str] = {}  # in small letters -> as it is written first
        for word in words:
            wanted.setdefault(word.lower(), word)
        # What is to be avoided goes, whether the profile says so or, where nobody updates it, the user alone.
        avoided = [line.value for line in lines if not line.positive]
        avoided += [t.value for text in state.user_texts for t in self.catalogue.find(denied(text))]
        for value in {value.lower() for value in avoided} - {value.lower() for value in [*said, *answered]}:
            wanted.pop(value, None)
        return " ".join(wanted.values()) or state.instruction

    def _choose(self, state: BeliefState) -> list[str]:
        listed = state.context.purchases if state.context else ()
        told = (value for _, values in self._answers(state) for value in values)
        words = {*self.catalogue.find_topics(state.instruction), *" ".join(told).lower().split()}
        fits = [len(words.intersection(spaced_words(f"{x.title} {x.category}").split())) for x in listed]
        return [x.asin for x, n in zip(listed, fits, strict=True) if n == max(fits)]

    def _review(self, state: BeliefState) -> str:
        """The beginning and the end of the user's earlier review around what is to be mentioned."""
        stars = next((match for text in state.user_texts if (match := _STARS.search(text))), None)
        is_happy = stars is None or stars[1].lower() not in _LOW
        topics = {t.value for t in self.catalogue.traits(state.product.parent_asin) if t.about == TOPIC}
        kind = _longest_run(state.product.title, topics, state.instruction) or kind_of(state.product)
        points = [*self.catalogue.find(state.instruction)]
        points += [("", value) for about, own in self._answers(state) if about == "mention" for value in own]
        phrase = "I am glad about the {}." if is_happy else "I do not like the {}."
        # First and last sentence of an earlier review in the same mood, its product exchanged.
        frame = [f"I am happy with my {kind}." if is_happy else f"I am not happy with my {kind}."]
        earlier = next((b for b in reversed(state.history) if b.review.text.strip()), None)
        if earlier is not None and (earlier.review.rating > 3) == is_happy:
            title = self.catalogue.products[earlier.parent_asin].title
            topics = {t.value for t in self.catalogue.traits(earlier.parent_asin) if t.about == TOPIC}
            old = _longest_run(title, topics, earlier.review.text)
            sentences = re.split(r"(?<=[.!?])\s+", earlier.review.text.strip())
            ends = dict.fromkeys([sentences[0], sentences[-1]])
            frame = [" ".join(sentence.split()[:_LONGEST_SENTENCE]) for sentence in ends]
            frame = [re.sub(rf"\b{old}\b", kind, s, flags=re.IGNORECASE) if old else s for s in frame]
        first, *last = frame
        mentions = (phrase.format(f"{value} {about}".strip()) for about, value in points)
        return " ".join([first, *mentions, *last])


def is_result(step: Step) -> bool:
    """Whether a step made a search, a recommendation or a review."""
    return not step.error and step.action.name in FUNCTION_OF.values()


def _longest_run(title: str, topics: set[str], text: str) -> str:
    """What a text calls a product: the longest run of its title's words, not of values alone, in it."""
    words = spaced_words(title).split()
    runs = [words[i:j] for i in range(len(words)) for j in range(i + 1, len(words) + 1)]
    runs = [" ".join(run) for run in runs if topics.intersection(run)]
    return max((run for run in runs if f" {run} " in spaced_words(text)), key=len, default="")


def make_teacher(study: "Study", number: int, questions: int) -> Agent:
    """Return who plays the agent in a round of the role-play: rules, or a language model.

    The model is Orion's own agent: it gets the messages that the policy will be trained on, made of S_t
    alone. Another round draws another reply to the same messages.

    Args:
        number: of the round.
        questions: that rules ask, at most.
    """
    players = study.settings.players
    if players.teacher == "offline":
        return rule_teacher(study, number, questions)
    model = study.model(players.teacher)

    def act(state: BeliefState) -> Action:
        temperature = TEMPERATURE if state.product is None else REVIEW_TEMPERATURE
        sampling = {"temperature": temperature, "max_tokens": MAX_TOKENS}
        return OrionAgent(model, players.shown, sampling, number)(state)

    return act


def rule_teacher(study: "Study", number: int, questions: int) -> OfflineTeacher:
    """Return the teacher by rules, whoever plays the role."""
    own_seed = derive_seed(study.seed, "teacher", str(number))
    return OfflineTeacher(study.catalogue, own_seed, study.identify, questions)


def for_every_task(agent: Agent) -> Callable[[Task], Agent]:
    """Return what gives each task the same agent."""
    return lambda task: agent
