"""The endpoint client against a real server: ``transformers serve`` with a tiny model."""

import json

import pytest

from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import OpenAIModel
from pwagents.web.functions import tool_schemas

from .serving import transformers_serve
from .tiny import SEARCH


@pytest.fixture(scope="module")
def served(telling_model, tmp_path_factory):
    """The base URL of the served model."""
    with transformers_serve(telling_model, tmp_path_factory.mktemp("serve") / "log") as url:
        yield url


def test_a_conversation_with_tools(served, telling_model, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = OpenAIModel(str(telling_model), served)
    tools = tool_schemas(("search_product_by_query", "respond"))
    asked = {"role": "user", "content": "I need a coat."}
    reply = model.complete([asked], tools, temperature=0, max_tokens=30)

    (call,) = reply.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("search", {"query": "coat"})
    assert (reply.text, reply.finish_reason) == ("Let me look.", "tool_calls")
    assert reply.usage.prompt_tokens > 100
    assert reply.usage.completion_tokens == len(SEARCH) + 1  # the end token counts

    function = {"name": call.name, "arguments": call.arguments}
    said = {"role": "assistant", "content": reply.text}
    said["tool_calls"] = [{"id": call.id, "type": "function", "function": function}]
    result = {"role": "tool", "tool_call_id": call.id, "content": "1. A coat"}
    again = model.complete([asked, said, result], tools, temperature=0, max_tokens=30)
    assert again.tool_calls[0].name == "search"
    assert again.usage.prompt_tokens > reply.usage.prompt_tokens

    # The same model in this process says the same.
    local = LocalModel(telling_model).complete([asked], tools, temperature=0, max_tokens=30)
    assert local.text == reply.text
    assert [(c.name, json.loads(c.arguments)) for c in local.tool_calls] == [("search", {"query": "coat"})]
    assert local.usage == reply.usage
