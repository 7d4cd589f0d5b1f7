"""What a language model is to this project: a conversation and tools in, a reply out."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from pydantic import Field, model_validator

from pwagents.errors import NotEvaluableError, StaysHere
from pwagents.llm.parts import ToolCall, Written, part, utf8
from pwagents.progress import progress
from pwagents.schema import Protocol, Record, Usage

Message = dict[str, Any]  # in OpenAI's chat format, and with the `extras` of :class:`Reply`
Tool = dict[str, Any]  # in OpenAI's format, as pwagents.shop.environment.tool_schemas makes them
FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


class Reply(Record):
    """What a model answers, and what that cost. Whether it is usable is for the caller to judge.

    Args:
        text: what it says, without its thought and its calls; may be empty. A text that holds them is split
            here (:mod:`pwagents.llm.parts`), whoever served it.
        written: the text as the model wrote it, if it was split; else empty.
        finish_reason: "length" for a reply cut off at the token limit, "content_filter" for one that the
            provider withheld.
        extras: what its server put beside thought and call, as JSON (:func:`pwagents.llm.answers.give_back`).
        usage: what the reply cost when it was made, even if it now comes from a store.
    """

    text: Written = ""
    thought: Written = ""
    written: Written = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = "stop"
    extras: str = ""
    usage: Usage = Usage()

    @model_validator(mode="before")
    @classmethod
    def _split(cls, data: Any) -> Any:
        """Split a text that still holds a thought or a call."""
        if not isinstance(data, dict) or not isinstance(data.get("text"), str) or data.get("written"):
            return data
        thought, text, calls = part(written := utf8(data["text"]))
        if text == written:
            return data
        # A server that reads calls leaves none in the text; what looks like one is then talk about it.
        calls = data.get("tool_calls") or calls
        thought = "\n".join(filter(None, [data.get("thought", ""), thought]))
        split = {"text": text, "thought": thought, "written": written, "tool_calls": calls}
        if calls and data.get("finish_reason", "stop") == "stop":
            split["finish_reason"] = "tool_calls"
        return data | split

    @property
    def whole(self) -> str:
        """The text as the model wrote it, thought and calls included."""
        return self.written or self.text

    @property
    def is_cut(self) -> bool:
        """Whether it ends where the limit was reached, so that its text is half of something."""
        return self.finish_reason == "length"


class Request(Record):
    """All that a reply depends on, besides the model.

    Args:
        messages, tools: in OpenAI's chat format.
        sampling: temperature, max_tokens, top_p, seed: named as in OpenAI's API.
        sample: which of several replies to the same request; 0 is the first.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    sampling: dict[str, Any] = Field(default_factory=dict)
    sample: int = 0

    def content(self, model: str) -> str:
        """Return model and request as JSON, the same bytes everywhere: its hash finds a stored reply."""
        return json.dumps([model, self.model_dump(mode="json")], sort_keys=True, allow_nan=False)


def alternating(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation for models that know only user and assistant, and want them in turns.

    The system message becomes part of the user's first one, and neighbors of one role become one message.
    """
    if messages and messages[0]["role"] == "system":
        messages = [{"role": "user", "content": messages[0]["content"]}, *messages[1:]]
    turns: list[Message] = []
    for message in messages:
        last = turns[-1] if turns else {}
        names = last.keys() | message.keys()
        if last.get("role") == message["role"] and not names & {"tool_calls", "tool_call_id"}:
            text = "\n\n".join(filter(None, [last["content"], message["content"]]))
            turns[-1] = {**last, **message, "content": text}
        else:
            turns.append(message)
    return turns


def assistant(content: str, extras: str = "") -> Message:
    """Return a message of the model's own, with what its server put beside it."""
    return {"role": "assistant", "content": content} | ({"extras": extras} if extras else {})


def key_of(content: str) -> str:
    """Return SHA-256 (hex) of a model and a request, given as :meth:`Request.content`."""
    return hashlib.sha256(content.encode()).hexdigest()


class ChatModel(ABC):
    """A language model by name. Safe to use from several threads.

    Attributes:
        workers: how many calls may usefully run at once.
        endpoint: what distinguishes stored replies besides the model's name.
        limits: tokens of an agent's call by protocol; empty: the provider's.
    """

    name: str
    workers: int = 1
    limits: Mapping[Protocol, int] = {}
    endpoint: str = "local"
    served: Mapping[str, Any] = {}  # what the endpoint says of the model

    def __reduce__(self) -> Any:
        raise StaysHere("the store of replies and the budget of a language model are those of one process")

    @abstractmethod
    def reply(self, request: Request) -> Reply:
        """Return the model's reply.

        Raises:
            InfrastructureError: the model cannot be reached, or refuses permanently.
            NotEvaluableError: the model refuses this request: too long, filtered, or what the server says.
        """

    def note(self) -> str:
        """Return what tables note of the model; an empty text for most."""
        return ""

    def complete(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, sample: int = 0, **sampling
    ) -> Reply:
        """Return the reply to a request given as arguments: ``complete(messages, temperature=0.6)``."""
        request = Request(messages=tuple(messages), tools=tuple(tools), sampling=sampling, sample=sample)
        return self.reply(request)


def ask_all(model: ChatModel, requests: Sequence[Request], what: str) -> list[Reply | None]:
    """Return a reply to each request, in order; None if the model refuses one (too long, filtered).

    Args:
        what: for the progress bar.

    Raises:
        InfrastructureError: the model cannot be reached. Running calls end first, and no others start.
    """

    def ask(request: Request) -> Reply | None:
        try:
            return model.reply(request)
        except NotEvaluableError:
            return None

    replies: list[Reply | None] = []
    bar = progress(total=len(requests), desc=what, unit="reply")
    with bar, ThreadPoolExecutor(model.workers) as threads:
        for i in range(0, len(requests), 4 * model.workers):
            replies += threads.map(ask, requests[i : i + 4 * model.workers])
            bar.update(len(replies) - bar.n)
    return replies
