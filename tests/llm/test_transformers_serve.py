"""Our client against a real server, ``transformers serve``, with a tiny model that thinks and calls."""

import json

import pytest

from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import OpenAIModel

from .conftest import CALL, HI, TOOL, save_model
from .server import transformers_serve


@pytest.mark.slow
def test_a_conversation_with_tools_is_the_same_as_with_the_model_in_this_process(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    folder = save_model(tmp_path, ["<think>", "Navy again.", "</think>", *CALL])
    with transformers_serve() as url:
        served = OpenAIModel(str(folder), url)
        talk, local, before = [*HI], LocalModel(folder), 0
        for _ in range(2):
            reply, own = (m.complete(talk, [TOOL], temperature=0, max_tokens=30) for m in (served, local))
            (call,) = reply.tool_calls
            assert json.loads(call.arguments) == json.loads(own.tool_calls[0].arguments) == {"query": "coat"}
            assert call.name == own.tool_calls[0].name == "search"
            assert (reply.text, reply.finish_reason) == (own.text, own.finish_reason) == ("", "tool_calls")
            # Ours ends with the call, before the end token.
            assert reply.usage.completion_tokens == own.usage.completion_tokens + 1 == 3 + len(CALL) + 1
            assert reply.usage.prompt_tokens == own.usage.prompt_tokens > before
            before = reply.usage.prompt_tokens
            called = {"id": call.id, "type": "function", "function": call.model_dump(exclude={"id"})}
            talk.append({"role": "assistant", "content": reply.text, "tool_calls": [called]})
            talk.append({"role": "tool", "tool_call_id": call.id, "content": "1. A coat"})
