"""The judge of Orion's alignment reward (4.3): how well an action follows from the belief state, in [-1, 1].

In the paper GPT-4o-mini is the judge (5.1), and a neutral action scores 0 (4.3). Rubric and prompt are not
printed, so both are ours. Whoever judges is given S_t and a_t and nothing else: no target, no task type, no
result of the action. A judge that knew the target would pay for success a second time.

- :class:`OfflineJudge`: by rules.
- :class:`LlmJudge`: by a language model, in the words of ``prompts.yaml``.
"""

import json
import threading
from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import BaseModel, Field

from pwagents.agents.conversation import transcript
from pwagents.llm.chat import ChatModel, Reply, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import read_reply
from pwagents.orion.agent import orion_messages
from pwagents.orion.wishes import WishReader, earlier_review, has_result, holds, singular
from pwagents.profiles.catalogue import TOPIC
from pwagents.project import read_yaml
from pwagents.schema import Action, Usage
from pwagents.web.environment import BeliefState
from pwagents.words import content_words

WORST = -1.0
# What a good question costs; the paper's neutral action costs nothing. More than a little, summed over an
# episode's questions, and a policy never asks, whatever an answer is worth.
PATIENCE = 0.1
VAGUE = -0.5  # a question about nothing that one could tell
# In a query a word or value that the user said counts twice as much as one that the past speaks for: tastes
# drift, and what is said now is certain.
STATED_WEIGHT = 2
_ARGUMENT = {
    "search_product_by_query": "query",
    "add_product_review": "review",
    "respond": "content",
    "get_recommendations_by_history": "product_sequence",
}


class Judge(Protocol):
    """Scores actions against belief states; sees nothing else."""

    def __call__(self, state: BeliefState, action: Action) -> float:
        """In [-1, 1]."""

    def scores(self, states: Sequence[BeliefState], actions: Sequence[Action]) -> list[float]:
        """The score of each action in its state."""


class OfflineJudge:
    """Scores by rules, in [-1, 1].

    - -1: no call, or a malformed one; the same call again; a search, recommendation or review that touches
      what is to be avoided, unless the user asked for it; a ``stop`` before any result; a question about what
      was stated or asked before; a review where there is nothing to review, a search or recommendation where
      there is.
    - Search: from -1 to 1 by how much the query holds of the product's words and the stated values, which
      weigh twice, and, for each attribute of which the past speaks for a value that products in question
      have, of one such value. Off this goes twice the share of its words that S_t gives no reason for.
    - Recommendation: the share of its ids that the user bought, from -1 to 1; these touch nothing.
    - Review: the share it mentions of what is asked for, and how near its length is to the earlier review's.
    - A question about something open: ``-PATIENCE``; about nothing recognisable: ``VAGUE``. ``stop`` after a
      result: 0.
    """

    def __init__(self, read: WishReader):
        self.read, self.catalogue = read, read.catalogue

    def __call__(self, state: BeliefState, action: Action) -> float:
        # The same call brings the same answer: it can only be there to collect points.
        calls = [(step.action.name, step.action.arguments) for step in state.session]
        if (action.name, action.arguments) in calls or not is_call(action):
            return WORST
        if action.name == "stop":
            return 0.0 if has_result(state.session) else WORST
        if action.name == "respond":
            return self._question(state, action.arguments["content"])
        if (action.name == "add_product_review") != (state.product is not None):
            return WORST
        score = {
            "search_product_by_query": self._search,
            "get_recommendations_by_history": self._recommendation,
            "add_product_review": self._review,
        }[action.name]
        return score(state, action.arguments[_ARGUMENT[action.name]])

    def scores(self, states: Sequence[BeliefState], actions: Sequence[Action]) -> list[float]:
        return [self(state, action) for state, action in zip(states, actions, strict=True)]

    def _question(self, state: BeliefState, question: str) -> float:
        about = self.read.updater.find_attribute(question)
        if not about:
            return VAGUE
        stated = {name for line in self.read(state).stated for name, _ in self.read.traits(line)}
        known = about in stated - {TOPIC} or about in self.read.asked(state.session)
        return WORST if known else -PATIENCE

    def _search(self, state: BeliefState, query: str) -> float:
        wishes = self.read(state)
        # What the user themselves said may stand in a query that repeats it.
        if _touches(query, [v for v in self.read.values(wishes.avoided) if not holds(state.instruction, v)]):
            return WORST
        wanted = [*wishes.words, *self.read.values(wishes.stated)]
        past: dict[str, list[str]] = {}  # attribute -> its values
        for line in self.read.applying(wishes):
            for about, value in self.read.traits(line):
                past.setdefault(about, []).append(value)
        said = [holds(query, value) for value in wanted]
        known = [any(holds(query, value) for value in values) for values in past.values()]
        held, whole = STATED_WEIGHT * sum(said) + sum(known), STATED_WEIGHT * len(said) + len(known)
        covered = held / whole if whole else 1.0
        # Words without a reason weigh twice: a query that lists all values of the shop holds every wish.
        return max(WORST, 2 * covered - 1 - 2 * self._unfounded(state, query))

    def _unfounded(self, state: BeliefState, query: str) -> float:
        """The share of a query's words of the shop that S_t gives no reason for."""
        lines = state.profile.lines if state.profile else ()
        answers = [s.observation.text for s in state.session if s.action.name == "respond" and not s.error]
        given = [state.instruction, *answers, *(line.value for line in lines if line.positive)]
        founded = set(singular(" ".join(given)))
        words = content_words(query)
        unfounded = [w for w in words if w.rstrip("s") not in founded and self.read.is_shop_word(w)]
        return len(unfounded) / len(words) if words else 0.0

    def _recommendation(self, state: BeliefState, asins: list[str]) -> float:
        bought = {behavior.parent_asin for behavior in state.history}
        bought |= set(state.profile.bought) if state.profile else set()
        avoided = {trait for line in self.read(state).avoided for trait in self.read.traits(line)}
        foreign = [asin for asin in asins if asin not in bought]
        known = (asin for asin in foreign if asin in self.catalogue.products)
        if not asins or any(avoided.intersection(self.catalogue.traits(asin)) for asin in known):
            return WORST
        return 1 - 2 * len(foreign) / len(asins)

    def _review(self, state: BeliefState, review: str) -> float:
        if _touches(review, self.read.values(self.read(state).avoided)):
            return WORST
        points = self.read.points(state)
        mentioned = sum(holds(review, value) for _, value in points) / len(points) if points else 1.0
        earlier = earlier_review(state.history)
        lengths = sorted([len(review.split()), len(earlier.review.text.split())]) if earlier else (1, 1)
        return mentioned + lengths[0] / lengths[1] - 1


def _touches(text: str, avoided: Sequence[str]) -> bool:
    return any(holds(text, value) for value in avoided)


def is_call(action: Action) -> bool:
    """Whether an action is a well-formed call of one of the functions."""
    if action.problem:
        return False
    if action.name == "stop":
        return not action.arguments
    name = _ARGUMENT.get(action.name)
    if name is None or set(action.arguments) != {name}:
        return False
    value = action.arguments[name]
    if name == "product_sequence":
        return isinstance(value, list) and all(isinstance(asin, str) for asin in value)
    return isinstance(value, str) and bool(value.strip())


SAMPLING = {"temperature": 0.0, "max_tokens": 200}


class ScoreReply(BaseModel):
    """A score as a model writes it; keys beside it, such as a reason, are passed over."""

    score: Annotated[float, Field(ge=-1, le=1, strict=True)]


class LlmJudge:
    """Lets a language model score actions in [-1, 1]. Safe to use from several threads.

    A reply that is no JSON object with a score in that range counts as 0; so does a refusal of the model.

    Args:
        model: the judge.
        shown: products of a result that it is told about, at most.

    Attributes:
        malformed, refused: how many replies could not be read, and how many there were none of.
        usage: what all replies cost.
    """

    def __init__(self, model: ChatModel, shown: int = 10):
        self.model, self.shown = model, shown
        self.malformed, self.refused, self.usage = 0, 0, Usage()
        self._lock = threading.Lock()

    def __call__(self, state: BeliefState, action: Action) -> float:
        return self.scores([state], [action])[0]

    def scores(self, states: Sequence[BeliefState], actions: Sequence[Action]) -> list[float]:
        """The score of each action in its state; all are asked for at once.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        requests = [self.request(state, action) for state, action in zip(states, actions, strict=True)]
        return [self._score(reply) for reply in ask_all(self.model, requests, "judge")]

    def request(self, state: BeliefState, action: Action) -> Request:
        """What the model is asked about one action."""
        belief = transcript(orion_messages(state, self.shown)[1:])  # without the agent's own rules
        call = f"(no call: {action.problem})"
        if not action.problem:
            call = f"{action.name}({json.dumps(action.arguments, ensure_ascii=False)})"
        said = [action.thought or "(no thought)", call]
        messages = (
            {"role": "system", "content": prompts()["judge"].format(fence_note=FENCE_NOTE)},
            {
                "role": "user",
                "content": f"What the assistant knew:\n{fence(belief)}\n\n"
                f"What it did next:\n{fence(chr(10).join(said))}",
            },
        )
        return Request(messages=messages, sampling=SAMPLING)

    def _score(self, reply: Reply | None) -> float:
        with self._lock:
            # What cannot be read is no verdict: 0 neither rewards nor punishes, and the episode goes on.
            if reply is None or reply.finish_reason == "content_filter":
                self.refused += 1
                return 0.0
            self.usage += reply.usage
            try:
                return read_reply(reply, ScoreReply).score
            except ValueError:
                self.malformed += 1
                return 0.0


def prompts() -> dict:
    """The texts of ``prompts.yaml``."""
    return read_yaml(__package__, "prompts.yaml")
