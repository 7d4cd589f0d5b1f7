"""The teachers: the agent's side of the role-play that makes conversations to learn from (Orion, 4.3).

The paper does not say who plays the agent's side; "a strong LLM" writes its instructions. Here a language
model plays it (:func:`llm_teachers`), or rules (:class:`OfflineTeacher`). Both see what a policy sees, S_t,
and never the target or the task; the one by rules also knows the public shop. It is decent and not perfect on
purpose: how often and for what it asks is drawn by lot, so that reinforcement learning has something to find
out.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

from pwagents.agents.replies import read_turn
from pwagents.llm.chat import ChatModel, Request
from pwagents.orion.agent import orion_messages, orion_tools
from pwagents.orion.wishes import Wishes, WishReader, earlier_review, has_result, holds, whole_query
from pwagents.profiles.catalogue import TOPIC, Trait
from pwagents.schema import FUNCTION_OF, Action, TaskType
from pwagents.seeds import derive_seed, rng
from pwagents.web.environment import Agent, BeliefState
from pwagents.web.search import SearchEngine

QUESTIONS = 3  # at most, in an episode
NAMED = 3  # open attributes, at most, in a thought
LEADING = 20  # products of a first search that are looked over
REVIEW_TEMPERATURE, TEMPERATURE = 1.0, 0.6  # of a language model: the paper's for RL's episodes (5.1)
MAX_TOKENS = 500  # of its turn
_LONGEST = 30  # words of a sentence that is taken over from an earlier review
_STARS = re.compile(r"\b(one|two|three|four|five|[1-5])\b(?: and a half)?[ -]stars?\b", re.IGNORECASE)
_LOW = ("one", "two", "three", "1", "2", "3")


class OfflineTeacher:
    """BeliefState -> Action, by rules; the function by ``identify``.

    - Search and recommendation: it asks for attributes in which the products in question differ and which
      nobody stated, one at a time, those first of which the profile, too, says nothing. In question are the
      leading products of a first search; before a recommendation those told as bought, whose type, too, may
      be asked for. Then it searches for the product's words, what was stated, and what the profile says of
      other attributes, never for what is to be avoided; or recommends by the ids told.
    - Review: between the sentences with which the user's earlier review begins and ends, what the instruction
      asks for.

    After its result it stops. Its thought names the task, so that it is not lost sight of over questions, and
    the open attributes: ``<think>search, open: color, style</think>``.

    Args:
        engine: the shop's search.
        read: reads what a belief state says that the user wants.
        seed: with user and instruction, it decides how often and for what it asks; another seed makes another
            episode of the same task.
        identify: instruction -> the function it asks for, such as a
            :class:`pwagents.agents.plain.FunctionClassifier` of the train split.
        questions: how many it asks; None draws 0 to :data:`QUESTIONS`.
    """

    def __init__(
        self,
        engine: SearchEngine,
        read: WishReader,
        seed: int,
        identify: Callable[[str], str],
        questions: int | None = None,
    ):
        self.engine, self.read, self.catalogue, self.seed = engine, read, read.catalogue, seed
        self.identify, self.questions = identify, questions

    def __call__(self, state: BeliefState) -> Action:
        task = self._task(state)
        if has_result(state.session):
            return _act(task, [], "stop")
        if task == "review":
            return _act(task, [], FUNCTION_OF[task], review=self._review(state))
        wishes, asked = self.read(state), self.read.asked(state.session)
        if task == "recommend":
            products = state.profile.bought if state.profile else ()
            call = {"product_sequence": list(products)}
        else:
            query = " ".join([*wishes.words, *self.read.values(wishes.stated)])
            products = [asin for asin, _ in self.engine.search(query, LEADING)]
            call = {"query": whole_query(state)}
        named = self._named(state, wishes, self._open_attributes(wishes, asked, products))
        if named and len(asked) < self._number(state):
            return _act(task, named, "respond", content=f"Which {named[0]} would you like?")
        return _act(task, named, FUNCTION_OF[task], **call)

    def _task(self, state: BeliefState) -> TaskType:
        if state.product is not None:
            return "review"
        return "recommend" if self.identify(state.instruction) == FUNCTION_OF["recommend"] else "search"

    def _named(self, state: BeliefState, wishes: Wishes, open_now: list[str]) -> list[str]:
        """The open attributes that a thought names; the first is the one to ask for.

        What the profile, too, is silent about comes first: there an answer is worth the most. They are named
        even where nothing is asked, so that every episode shows what could be.
        """
        held = {about for line in wishes.past for about, _ in self.read.traits(line)}

        def order(about: str) -> tuple[bool, int]:
            return about in held, derive_seed(self.seed, "question", state.user_id, state.instruction, about)

        named = sorted(open_now, key=order)[:NAMED]
        return ["type" if about == TOPIC else about for about in named]

    def _number(self, state: BeliefState) -> int:
        """How many questions it asks in this episode."""
        if self.questions is not None:
            return self.questions
        return int(rng(self.seed, "questions", state.user_id, state.instruction).integers(QUESTIONS + 1))

    def _open_attributes(self, wishes: Wishes, asked: list[str], products: Sequence[str]) -> list[str]:
        """Attributes in which products differ and which were neither stated nor asked for. Their type is
        stated where the instruction has a word of their titles, as nearly all for a search do."""
        known = {about for line in wishes.stated for about, _ in self.read.traits(line)} | set(asked)
        if any(self.catalogue.is_used(Trait(TOPIC, word)) for word in wishes.words):
            known.add(TOPIC)
        found: dict[str, set[tuple[str, ...]]] = defaultdict(set)  # attribute -> what each product has of it
        for asin in products:
            own: dict[str, list[str]] = defaultdict(list)
            for trait in self.catalogue.traits(asin):
                own[trait.about].append(trait.value)
            for about, values in own.items():
                found[about].add(tuple(values))
        return [about for about in found if len(found[about]) > 1 and about not in known]

    def _review(self, state: BeliefState) -> str:
        """The beginning and the end of the user's earlier review around what the instruction asks for."""
        happy = _is_happy(state.instruction)
        kind = self._kind(state.product.parent_asin, state.instruction) or "purchase"
        first, *last = self._frame(state, kind, happy)
        points = [_point(about, value, happy) for about, value in self.read.points(state)]
        return " ".join([first, *points, *last])

    def _frame(self, state: BeliefState, kind: str, happy: bool) -> list[str]:
        """First and last sentence of an earlier review in the same mood, its product exchanged."""
        earlier = earlier_review(state.history)
        if earlier is None or (earlier.review.rating > 3) != happy:
            return [f"I am happy with my {kind}." if happy else f"I am not happy with my {kind}."]
        old = self._kind(earlier.parent_asin, earlier.review.text)
        sentences = re.split(r"(?<=[.!?])\s+", earlier.review.text.strip())
        ends = [" ".join(s.split()[:_LONGEST]) for s in dict.fromkeys([sentences[0], sentences[-1]])]
        return [re.sub(rf"\b{old}\b", kind, s, flags=re.IGNORECASE) if old else s for s in ends]

    def _kind(self, asin: str, text: str) -> str:
        """What a text calls a product: the longest run of its title's words, not of values alone, in it."""
        words = re.findall(r"[a-z]+", self.catalogue.products[asin].title.lower())
        topics = {trait.value for trait in self.catalogue.traits(asin) if trait.about == TOPIC}
        runs = [words[i:j] for i in range(len(words)) for j in range(i + 1, len(words) + 1)]
        runs = [" ".join(run) for run in runs if topics.intersection(run) and holds(text, " ".join(run))]
        return max(runs, key=len, default="")


def llm_teachers(model: ChatModel, shown: int = 10) -> Callable[[int], Agent]:
    """A language model as the teacher of each round, for :func:`pwagents.orion.role_play.play_roles`.

    It is Orion's own agent: it gets the messages that the policy will be trained on, made of S_t alone.

    Another round draws another reply to the same messages.

    Args:
        shown: products of a result that the model is told about, at most.
    """

    def of_round(number: int) -> Agent:
        def act(state: BeliefState) -> Action:
            temperature = TEMPERATURE if state.product is None else REVIEW_TEMPERATURE
            request = Request(
                messages=tuple(orion_messages(state, shown)),
                tools=orion_tools(),
                sampling={"temperature": temperature, "max_tokens": MAX_TOKENS},
                sample=number,
            )
            return read_turn(model.reply(request))

        return act

    return of_round


def _is_happy(instruction: str) -> bool:
    stars = _STARS.search(instruction)
    return stars is None or stars[1].lower() not in _LOW


def _point(about: str, value: str, happy: bool) -> str:
    thing = f"{value} {about}".strip()
    return f"I am glad about the {thing}." if happy else f"I do not like the {thing}."


def _act(task: TaskType, named: list[str], name: str, **arguments) -> Action:
    thought = f"<think>{task}, open: {', '.join(named) or 'nothing'}</think>"
    return Action(name=name, arguments=arguments, thought=thought)
