"""A language model as the judge of Orion's alignment reward (4.3), in our own words.

The model sees S_t and a_t, foreign text fenced, and nothing else: no target, no task type, no result of the
action. The paper prints no prompt.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field

from pwagents.agents.conversation import transcript
from pwagents.agents.orion import orion_messages
from pwagents.llm.asking import ask_all
from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.profiles.replies import read_reply
from pwagents.schema import Action, Usage
from pwagents.web.episode import BeliefState

SAMPLING = {"temperature": 0.0, "max_tokens": 200}


class ScoreReply(BaseModel):
    """A score as a model writes it; keys beside it, such as a reason, are passed over."""

    score: Annotated[float, Field(ge=-1, le=1, strict=True)]


class LlmJudge:
    """Lets a language model score actions in [-1, 1]. Safe to use from several threads.

    A reply that is no JSON object with a score in that range counts as 0, which neither rewards nor punishes;
    so does a refusal of the model.

    Args:
        model: the judge.
        shown: products of a result that it is told about, at most.
        sampling: of its calls; reasoning models want max_completion_tokens, and more of them.

    Attributes:
        malformed, refused: how many replies could not be read, and how many there were none of.
        usage: what all replies cost.
    """

    def __init__(self, model: ChatModel, shown: int = 10, sampling: Mapping[str, Any] = SAMPLING):
        self.model, self.shown, self.sampling = model, shown, dict(sampling)
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
        said = [action.thought or "(no thought)", _call(action)]
        messages = (
            {"role": "system", "content": prompts()["judge"].format(fence_note=FENCE_NOTE)},
            {
                "role": "user",
                "content": f"What the assistant knew:\n{fence(belief)}\n\n"
                f"What it did next:\n{fence(chr(10).join(said))}",
            },
        )
        return Request(messages=messages, sampling=self.sampling)

    def _score(self, reply: Reply | None) -> float:
        with self._lock:
            if reply is None or reply.finish_reason == "content_filter":
                self.refused += 1
                return 0.0
            self.usage += reply.usage
            try:
                return read_reply(reply, ScoreReply).score
            except ValueError:
                self.malformed += 1
                return 0.0


@cache
def prompts() -> dict:
    """The texts of ``prompts.yaml``."""
    return yaml.safe_load(files(__package__).joinpath("prompts.yaml").read_text("utf-8"))


def _call(action: Action) -> str:
    if action.problem:
        return f"(no call: {action.problem})"
    return f"{action.name}({json.dumps(action.arguments, ensure_ascii=False)})"
