"""The judge of Orion's alignment reward (4.3): how well an action follows from the belief state, in [-1, 1].

In the paper GPT-4o-mini is the judge (5.1), and a neutral action scores 0 (4.3). Rubric and prompt are not
printed, so both are ours. Whoever judges is given S_t and a_t and nothing else: no target, no task type, no
result of the action. A judge that knew the target would pay for success a second time.

- :class:`OfflineJudge`: by rules.
- :class:`LlmJudge`: by a language model, in the words of ``judge.yaml``.
"""

import json
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import BaseModel, Field

from pwagents.agents.messages import transcript, user
from pwagents.llm.chat import ChatModel, Reply, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import read_reply
from pwagents.orion.agent import orion_messages
from pwagents.profiles.catalogue import TOPIC, Catalogue, affirmed, denied, find_bands, spaced_words
from pwagents.schema import FUNCTION_OF, Action, Usage
from pwagents.shop.environment import BeliefState
from pwagents.words import read_yaml

if TYPE_CHECKING:
    from pwagents.orion.study import Study

WORST = -1.0
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
        """Return a score in [-1, 1]."""

    def scores(self, states: Sequence[BeliefState], actions: Sequence[Action]) -> list[float]:
        """Return the score of each action in its state."""


@lru_cache(maxsize=4)  # a language model counts what it could not read
def judge_of(study: "Study") -> Judge:
    """Return who judges in a study: rules, or the language model of its settings."""
    players = study.settings.players
    if players.judge == "offline":
        return OfflineJudge(study.catalogue)
    return LlmJudge(study.model(players.judge), players.shown)


class OfflineJudge:
    """Scores by rules, in [-1, 1], from what the policy was told.

    - -1: no call, or a malformed one; the same call again; a search or review that touches what is to be
      avoided, unless the user spoke of it, or a recommendation of such a product, which a listed
      purchase never is; a ``stop`` before any result; a question about what
      was stated or asked before; a review where there is nothing to review, a search or recommendation where
      there is.
    - Search: from -1 to 1 by how much the query holds of the user's own values and words for the thing, which
      weigh twice, and, for each other attribute that the profile tells of, of one such value. Amounts of
      money, which no search reads, count neither way. Off this goes twice the share of its words that nobody
      said.
    - Recommendation: the share of its ids that are purchases told of, from -1 to 1; where the user's words
      are in some of these, only such purchases count.
    - Review: the share it mentions of what is asked for, and how near its length is to the earlier review's.
    - A question about something open, a ``stop`` after a result: 0. A question about nothing recognisable:
      :data:`VAGUE`.

    Args:
        catalogue: knows which words are values, and of which attribute.
    """

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue

    def __call__(self, state: BeliefState, action: Action) -> float:
        # The same call brings the same answer: it can only be there to collect points.
        calls = [(step.action.name, step.action.arguments) for step in state.session]
        if (action.name, action.arguments) in calls or not is_call(action):
            return WORST
        if action.name == "stop":
            is_done = any(s.action.name in FUNCTION_OF.values() and not s.error for s in state.session)
            return 0.0 if is_done else WORST
        if action.name == "respond":
            # What was stated or asked before is known.
            about = self.catalogue.find_attribute(action.arguments["content"])
            if not about:
                return VAGUE
            asked = [s.action.arguments["content"] for s in state.session if s.is_talk]
            spoken_of = {trait.about for trait in self.catalogue.find(" ".join(state.user_texts))}
            is_known = about in spoken_of or about in map(self.catalogue.find_attribute, asked)
            return WORST if is_known else 0.0
        if (action.name == "add_product_review") != (state.product is not None):
            return WORST
        value = action.arguments[_ARGUMENT[action.name]]
        # What the user themselves said may stand in a call that repeats it.
        own_words = singular(" ".join(map(affirmed, state.user_texts)))
        lines = state.profile.lines if state.profile else ()
        avoided = [line.value for line in lines if not line.positive]
        avoided += [t.value for text in state.user_texts for t in self.catalogue.find(denied(text))]
        avoided = [value for value in avoided if not holds(own_words, value)]
        if action.name == "get_recommendations_by_history":
            return self._recommendation(state, value, avoided)
        text = singular(value)
        if any(holds(text, other) for other in avoided):
            return WORST
        return (self._search if action.name == "search_product_by_query" else self._review)(state, text)

    def scores(self, states: Sequence[BeliefState], actions: Sequence[Action]) -> list[float]:
        return [self(state, action) for state, action in zip(states, actions, strict=True)]

    def _search(self, state: BeliefState, query: str) -> float:
        said = " ".join(map(affirmed, state.user_texts))
        values = {trait.about: trait.value for trait in self.catalogue.find(said)}  # the last word counts
        if bands := find_bands(said):
            values["price"] = bands[-1]
        wanted = [*self.catalogue.find_topics(affirmed(state.instruction)), *values.values()]
        past: dict[str, list[str]] = {}  # attribute -> the values that the profile tells, where nobody spoke
        for line in state.profile.lines if state.profile else ():
            if line.positive and line.about not in (*values, TOPIC, "") and not line.is_amount:
                past.setdefault(line.about, []).append(line.value)
        covered = STATED_WEIGHT * sum(holds(query, value) for value in wanted)
        covered += sum(any(holds(query, value) for value in some) for some in past.values())
        whole = STATED_WEIGHT * len(wanted) + len(past)
        # Words without a reason weigh twice: a query that lists all values of the shop holds every wish.
        given = singular(" ".join([said, *(value for some in past.values() for value in some)])).split()
        words = query.split()
        unfounded = sum(word not in given for word in words) / len(words) if words else 0.0
        return max(WORST, 2 * (covered / whole if whole else 1.0) - 1 - 2 * unfounded)

    def _recommendation(self, state: BeliefState, asins: Sequence[str], avoided: Sequence[str]) -> float:
        purchases = state.context.purchases if state.context else ()
        listed = {x.asin: singular(f"{x.title} {x.category}") for x in purchases}
        values = {value.lower() for value in avoided}
        foreign = [asin for asin in asins if asin not in listed and asin in self.catalogue.products]
        touched = {trait.value.lower() for asin in foreign for trait in self.catalogue.traits(asin)}
        if not asins or touched & values:
            return WORST
        named = [word for text in state.user_texts for word in self.catalogue.find_topics(affirmed(text))]
        fitting = {asin for asin, text in listed.items() if any(holds(text, word) for word in named)}
        right = [asin for asin in asins if asin in (fitting or listed)]
        return 2 * len(right) / len(asins) - 1

    def _review(self, state: BeliefState, review: str) -> float:
        lines = state.profile.lines if state.profile else ()
        points = [trait.value for trait in self.catalogue.find(state.instruction)]
        points += [line.value for line in lines if line.about == "mention"]
        mentioned = sum(holds(review, value) for value in points) / len(points) if points else 1.0
        earlier = next((b.review.text for b in reversed(state.history) if b.review.text.strip()), "")
        lengths = sorted([len(review.split()), len(earlier.split())]) if earlier else (1, 1)
        return mentioned + lengths[0] / lengths[1] - 1


def singular(text: str) -> str:
    """Return the words of a text in lower case, without the s of a plural."""
    return " ".join(word.rstrip("s") for word in spaced_words(text).split())


def holds(text: str, value: str) -> bool:
    """Return whether a text of :func:`singular` holds a value, as whole words."""
    return f" {singular(value)} " in f" {text} "


def is_call(action: Action) -> bool:
    """Return whether an action is a well-formed call of one of the functions."""
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
        """Return the score of each action in its state; all are asked for at once.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        requests = [self.request(state, action) for state, action in zip(states, actions, strict=True)]
        return [self._score(reply) for reply in ask_all(self.model, requests, "judge")]

    def request(self, state: BeliefState, action: Action) -> Request:
        """Return what the model is asked about one action."""
        belief = transcript(orion_messages(state, self.shown)[1:])  # without the agent's own rules
        call = f"(no call: {action.problem})"
        if not action.problem:
            call = f"{action.name}({json.dumps(action.arguments, ensure_ascii=False)})"
        said = [action.thought or "(no thought)", call]
        rules = {"role": "system", "content": prompts()["judge"].format(fence_note=FENCE_NOTE)}
        asked = f"What the assistant knew:\n{fence(belief)}\n\nWhat it did next:\n{fence(chr(10).join(said))}"
        return Request(messages=(rules, user(asked)), sampling=SAMPLING)

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
    """Return the texts of ``judge.yaml``."""
    return read_yaml(__package__, "judge.yaml")
