"""What a language model is to this project: a conversation and tools in, a reply out."""

import hashlib
import json
from abc import ABC, abstractmethod
from typing import Any, Literal

from pydantic import Field

from pwagents.schema import Record, Usage

Message = dict[str, Any]  # in OpenAI's chat format: role, content, tool_calls, tool_call_id
Tool = dict[str, Any]  # in OpenAI's format, as pwagents.shop.environment.tool_schemas makes them


class ToolCall(Record):
    """A call as the model wrote it: ``arguments`` is its JSON text, which may be malformed."""

    id: str
    name: str
    arguments: str


class Reply(Record):
    """What a model answers, and what that cost.

    Args:
        text: what it says, without its thought and its calls; may be empty.
        finish_reason: "length" for a reply cut off at the token limit, "content_filter" for a withheld one.
    """

    text: str = ""
    thought: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter"] = "stop"
    usage: Usage = Usage()

    @property
    def is_cut(self) -> bool:
        """Whether it ends where the limit was reached, so that its text is half of something."""
        return self.finish_reason == "length"


class Request(Record):
    """All that a reply depends on, besides the model.

    Args:
        sampling: temperature, max_tokens, top_p, seed, stop: named as in OpenAI's API.
        sample: which of several replies to the same request; 0 is the first.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    sampling: dict[str, Any] = Field(default_factory=dict)
    sample: int = 0

    def key(self, model: str) -> str:
        """Return SHA-256 (hex) of model and request, the same in every process."""
        content = json.dumps([model, self.model_dump(mode="json")], sort_keys=True, allow_nan=False)
        return hashlib.sha256(content.encode()).hexdigest()


class ChatModel(ABC):
    """A language model by name. Safe to use from several threads."""

    name: str

    @abstractmethod
    def reply(self, request: Request) -> Reply:
        """Return the model's reply.

        Raises:
            InfrastructureError: the model cannot be reached, or refuses permanently.
            NotEvaluableError: the model refuses this request: too long, or filtered.
        """
