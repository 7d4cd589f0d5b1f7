"""What a language model is to this project: a conversation and tools in, a reply out."""

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pwagents.schema import Record, Usage

Message = dict[str, Any]  # in OpenAI's chat format: role, content, tool_calls, tool_call_id
Tool = dict[str, Any]  # in OpenAI's format, as pwagents.web.functions.tool_schemas makes them
FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


def _utf8(text: Any) -> Any:
    """``text`` with "?" for half a surrogate pair, which a cut-off reply may end in and no file can hold."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


Written = Annotated[str, BeforeValidator(_utf8)]  # a text by a model


class ToolCall(Record):
    """A call as the model wrote it: ``arguments`` is its JSON text, which may be malformed."""

    id: str
    name: Written
    arguments: Written


class Reply(Record):
    """What a model answers, and what that cost. Usable or not: that is for who asked to judge.

    Args:
        text: what was written beside the calls; may be empty.
        finish_reason: "length" for a reply cut off at the token limit, "content_filter" for one that the
            provider withheld.
        usage: what the reply cost when it was made, also where it now comes from a store.
    """

    text: Written = ""
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

    def content(self, model: str) -> str:
        """Model and request as canonical JSON, in ASCII."""
        return json.dumps([model, self.model_dump(mode="json")], sort_keys=True, allow_nan=False)

    def key(self, model: str) -> str:
        """SHA-256 (hex) of model and request: what a stored reply is found by."""
        return key_of(self.content(model))


def key_of(content: str) -> str:
    """The key of a request whose :meth:`Request.content` is at hand."""
    return hashlib.sha256(content.encode()).hexdigest()


class ChatModel(ABC):
    """A language model by name. Safe to use from several threads.

    Attributes:
        workers: how many calls are worth having under way at once; 1 for a model in this process.
        batch_size: how many requests :meth:`replies` computes in one go; 1 where each is a call of its own.
    """

    name: str
    workers: int = 1
    batch_size: int = 1

    @abstractmethod
    def reply(self, request: Request) -> Reply:
        """The model's reply.

        Raises:
            InfrastructureError: the model cannot be reached, or refuses for good.
            NotEvaluableError: the request is too long for the model, or its content is filtered.
        """

    def replies(self, requests: Sequence[Request]) -> list[Reply]:
        """:meth:`reply` for each request, in order. Providers that gain by it do many at once.

        The first failure is raised once the calls under way have ended; no further ones begin.
        """
        if self.workers == 1:
            return [self.reply(request) for request in requests]
        with ThreadPoolExecutor(self.workers) as threads:
            calls = [threads.submit(self.reply, request) for request in requests]
            try:
                wait(calls, return_when=FIRST_EXCEPTION)
            finally:
                for call in calls:
                    call.cancel()
            return [call.result() for call in calls]

    async def reply_async(self, request: Request) -> Reply:
        """:meth:`reply` without blocking the event loop; up to ``workers`` run at once."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.reply, request)

    def complete(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, sample: int = 0, **sampling
    ) -> Reply:
        """:meth:`reply`, its request given as arguments: ``complete(messages, temperature=0.6)``."""
        request = Request(messages=tuple(messages), tools=tuple(tools), sampling=sampling, sample=sample)
        return self.reply(request)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.workers)
