"""What a language model is to this project: a conversation and tools in, a reply out.

Also here: many requests at once, of which a model may refuse some (:func:`ask_all`), and tool calls read from
the text of models that write them by themselves (:func:`parse_tool_calls`).
"""

import asyncio
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cached_property, partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pwagents.engine import StaysHere
from pwagents.errors import NotEvaluableError
from pwagents.progress import progress
from pwagents.schema import Record, Usage

Message = dict[str, Any]  # in OpenAI's chat format: role, content, tool_calls, tool_call_id
Tool = dict[str, Any]  # in OpenAI's format, as pwagents.web.functions.tool_schemas makes them
FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]

# A call that is not closed reaches to the end of the text: the model was cut off, or forgot.
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*(.*)', re.DOTALL)


def _utf8(text: Any) -> Any:
    """``text`` with "?" for half a surrogate pair, which a cut-off reply may end in and no file can hold."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


Written = Annotated[str, BeforeValidator(_utf8)]  # a text by a model


class ToolCall(Record):
    """A call as the model wrote it: ``arguments`` is its JSON text, which may be malformed."""

    id: Written
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
        """Model and request as canonical JSON.

        The same request must give the same bytes in every process and on every machine, for their hash is
        what a reply is found by: keys are sorted, all is ASCII, and NaN, which equals nothing, is refused.
        """
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

    def __reduce__(self) -> Any:
        raise StaysHere("the store of replies and the budget of a language model are those of one process")

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


def ask_all(model: ChatModel, requests: Sequence[Request], what: str) -> list[Reply | None]:
    """A reply to each request, in order; None where the model refuses (too long, or filtered).

    Args:
        what: for the progress bar.

    Raises:
        InfrastructureError: the model cannot be reached.
    """
    replies: list[Reply | None] = []
    at_once = 4 * max(model.workers, model.batch_size)
    with progress(total=len(requests), desc=what, unit="reply") as bar:
        for i in range(0, len(requests), at_once):
            part = requests[i : i + at_once]
            replies += _replies(model, part)
            bar.update(len(part))
    return replies


def parse_tool_calls(text: str, id_prefix: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Split what a model wrote into the text beside its calls and the calls.

    Malformed JSON stays as it was written: ``arguments`` is then what follows ``"arguments":``, or all of it,
    and the name what could be made out, or "".
    """
    bodies = _CALL.findall(text)
    calls = tuple(_parse_call(body.strip(), f"{id_prefix}_{i}") for i, body in enumerate(bodies))
    return _CALL.sub("", text).strip(), calls


def _replies(model: ChatModel, part: Sequence[Request]) -> list[Reply | None]:
    if model.batch_size == 1:  # each by itself: a refused one must not cost the replies beside it
        with ThreadPoolExecutor(model.workers) as threads:
            return list(threads.map(partial(_reply, model), part))
    try:
        return model.replies(part)
    except NotEvaluableError:  # one of them: find out which
        return [_reply(model, request) for request in part]


def _reply(model: ChatModel, request: Request) -> Reply | None:
    try:
        return model.reply(request)
    except NotEvaluableError:
        return None


def _parse_call(body: str, call_id: str) -> ToolCall:
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        name, arguments = _NAME.search(body), _ARGUMENTS.search(body)
        return ToolCall(
            id=call_id,
            name=name.group(1) if name else "",
            arguments=arguments.group(1) if arguments else body,
        )
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return ToolCall(id=call_id, name="", arguments=body)
    arguments = call.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=call_id, name=call["name"], arguments=arguments)
