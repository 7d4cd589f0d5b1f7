"""What a language model is to this project: a conversation and tools in, a reply out."""

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from pwagents.schema import Record, Usage

Message = dict[str, Any]  # in OpenAI's chat format: role, content, tool_calls, tool_call_id
Tool = dict[str, Any]  # in OpenAI's format, as pwagents.web.functions.tool_schemas makes them
FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


class ToolCall(Record):
    """A call as the model wrote it: ``arguments`` is its JSON text, which may be malformed."""

    id: str
    name: str
    arguments: str


class Reply(Record):
    """What a model answers, and what that cost."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()


class Request(Record):
    """All that a reply depends on, besides the model.

    Args:
        messages, tools: in OpenAI's chat format.
        sampling: temperature, max_tokens, top_p, seed, stop: named as in OpenAI's API, and sent as they are.
        sample: which of several replies to the same request; 0 is the first.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    sampling: dict[str, Any] = Field(default_factory=dict)
    sample: int = 0

    def key(self, model: str) -> str:
        """SHA-256 (hex) of model and request: what a stored reply is found by."""
        text = json.dumps([model, self.model_dump(mode="json")], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


class ChatModel(ABC):
    """A language model by name. Safe to use from several threads."""

    name: str

    @abstractmethod
    def reply(self, request: Request) -> Reply:
        """The model's reply.

        Raises:
            InfrastructureError: the model cannot be reached, or refuses for good.
        """

    def replies(self, requests: Sequence[Request]) -> list[Reply]:
        """:meth:`reply` for each request, in order. Providers that gain by it do many at once."""
        return [self.reply(request) for request in requests]

    async def reply_async(self, request: Request) -> Reply:
        """:meth:`reply` without blocking the event loop."""
        return await asyncio.to_thread(self.reply, request)

    def complete(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, sample: int = 0, **sampling
    ) -> Reply:
        """:meth:`reply`, its request given as arguments: ``complete(messages, temperature=0.6)``."""
        request = Request(messages=tuple(messages), tools=tuple(tools), sampling=sampling, sample=sample)
        return self.reply(request)
