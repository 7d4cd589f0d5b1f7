"""Our clients and agents against a real server, ``transformers serve``: tiny models.

One server for all: it takes long to begin.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from pwagents.agents.chat_agent import ChatAgent, Setup
from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import OpenAIModel
from pwagents.orion.agent import OrionAgent
from pwagents.persona2web.agent import Brief, ChatWebAgent
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.schema import Observation, Step
from pwagents.web.environment import BeliefState, Context
from pwagents.web.functions import tool_schemas

from ..persona2web.small_web import SmallWeb, recall
from .tiny import SEARCH, save_telling_model

pytestmark = pytest.mark.slow

SAMPLING = {"temperature": 0, "max_tokens": 60}
PAGE_TURN = ["Reason: onwards", "\nAction: click [1]", "\nAction: stop [done]"]
SHOP_TURN = ["<think>", "Navy again.", "</think>", "<tool_call>", '{"name": "search_product_by_query", ',
             '"arguments": {"query": ', '"navy mat"}}', "</tool_call>"]  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The base URL, once the server answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("transformers"), "serve", "--device", "cpu"]
    log, deadline = tmp_path_factory.mktemp("serve") / "log", time.monotonic() + 120
    with log.open("wb") as output:
        place = ["--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen([*command, *place], stdout=output, stderr=output)
        try:
            while True:
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait()


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


def test_a_reply_that_is_no_json_is_an_observation_and_one_with_actions_moves_the_page(served, tmp_path):
    """Any chat model can play on the local web."""
    folder, web = save_telling_model(tmp_path / "model", PAGE_TURN), SmallWeb()
    policy = OpenAIModel(str(folder), served, attempts=1)
    agent = ChatWebAgent(policy, "indexed", "pre_execution", {"temperature": 0.0, "max_tokens": 8})
    played = agent(Brief("Book a flight in the seat I usually take", recall), web)
    before, step = played.steps
    assert "no JSON" in before.error and before.action == "".join(PAGE_TURN)
    assert (step.action, step.reason, step.error) == ("click [1]\nstop [done]", "onwards", "")
    assert web.page == "skylark" and played.answer == "done"
    assert all(each.usage.prompt_tokens > 100 for each in played.steps)


AGENTS = {
    "Orion": lambda model, products: OrionAgent(model, sampling=SAMPLING),
    "any other": lambda model, products: ChatAgent(Setup(model, products, "multi_turn", sampling=SAMPLING)),
}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_acts_alike_with_a_model_that_is_served_and_one_in_this_process(
    served, benchmark, tmp_path, name
):
    folder = save_telling_model(tmp_path / "model", SHOP_TURN)
    endpoint = AGENTS[name](OpenAIModel(str(folder), served, attempts=1), benchmark.products)
    here = AGENTS[name](LocalModel(folder), benchmark.products)
    profile = ContextualProfile(lines=(ProfileLine.of("color: navy", True, "history"),))
    asked = "Find me a new yoga mat."
    state = BeliefState("U0001", asked, f"User U0001: {asked}", None, (), (), profile, Context(profile))
    action = endpoint(state)
    for each in (action, here(state)):  # the server tells the thought apart, so it is not compared
        assert (each.name, each.arguments) == ("search_product_by_query", {"query": "navy mat"})
        assert each.problem == ""
    later = replace(state, session=(Step(action=action, observation=Observation(text="Nothing was found.")),))
    assert endpoint(later).usage.prompt_tokens > action.usage.prompt_tokens
