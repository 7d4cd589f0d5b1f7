"""Our clients against a real server, ``transformers serve``: tiny models, and the small base model.

One server for all: it takes long to begin.
"""

import json
from dataclasses import replace

import pytest

from pwagents.agents.chat_agent import ChatAgent, Setup
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import OpenAIModel
from pwagents.lm.base import small_base
from pwagents.lm.dialogues import DialogueText
from pwagents.lm.pretrain import ALL_STEPS, Lesson
from pwagents.orion.agent import RULES, OrionAgent, orion_messages
from pwagents.orion.recall import BOUGHT
from pwagents.persona2web.agent import Brief, ChatWebAgent
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import OfflineUpdater
from pwagents.schema import Observation, Step
from pwagents.web.environment import BeliefState, Context
from pwagents.web.functions import tool_schemas

from ..persona2web.small_web import SmallWeb, recall
from .serving import transformers_serve
from .tiny import SEARCH, save_telling_model

pytestmark = pytest.mark.slow

LESSON = Lesson(limit=0, batch_size=16, learning_rate=4e-3, accuracy=ALL_STEPS, most_steps=120)
SIZE = {"hidden_size": 96, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 96}
SAMPLING = {"temperature": 0, "max_tokens": 60}
PAGE_TURN = ["Reason: onwards", "\nAction: click [1]", "\nAction: stop [done]"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The base URL."""
    with transformers_serve(tmp_path_factory.mktemp("serve") / "log") as url:
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


# The small base model.


@pytest.fixture(scope="module")
def products():
    return make_world(WorldConfig(n_users=12, n_products=400), seed=3).benchmark.products


@pytest.fixture(scope="module")
def folder(products, tmp_path_factory):
    """A base model that knows the form of a call, and little else."""

    def text(products, _):
        update = OfflineUpdater(Catalogue(products))
        return DialogueText(update, (), 0, orion_messages, RULES, BOUGHT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DialogueText, "lessons", (LESSON,))
        return small_base(tmp_path_factory.mktemp("models"), products, 5, 0, text, size=SIZE)


@pytest.fixture(scope="module")
def endpoint(folder, served):
    """The same model behind the endpoint client."""
    return OpenAIModel(str(folder), served, attempts=1)


@pytest.fixture
def state():
    profile = ContextualProfile(lines=(ProfileLine.of("color: navy", True, "history"),))
    asked = "Find me a new yoga mat."
    return BeliefState("U0001", asked, f"User U0001: {asked}", None, (), (), profile, Context(profile))


def test_orions_first_turn(endpoint, folder, state):
    served = OrionAgent(endpoint, sampling=SAMPLING)(state)
    assert (served.name, served.problem) == ("search_product_by_query", "")
    assert list(served.arguments) == ["query"] and served.thought.startswith("<think>")
    here = OrionAgent(LocalModel(folder), sampling=SAMPLING)(state)
    assert served.usage.parted == 1  # the server sends the thought within the text
    assert served.model_copy(update={"usage": here.usage}) == here


def test_later_turns_are_understood(endpoint, state):
    """A departure of the server's: of an earlier turn it tells the model the call and not the thought."""
    agent = OrionAgent(endpoint, sampling=SAMPLING)
    step = Step(action=agent(state), observation=Observation(text="No product was found."))
    assert agent(replace(state, session=(step,))).usage.prompt_tokens > agent(state).usage.prompt_tokens


def test_any_other_agent_gets_a_call_or_text(endpoint, folder, products, state):
    """Its rules are words that the model never saw, in pieces; whatever it writes is a reply."""
    setup = Setup(endpoint, products, "multi_turn", sampling=SAMPLING)
    served = ChatAgent(setup)(state)
    assert served.usage.prompt_tokens > 300 and served.usage.completion_tokens > 0
    local = ChatAgent(Setup(LocalModel(folder), products, "multi_turn", sampling=SAMPLING))(state)
    assert (served.name, served.problem_kind) == (local.name, local.problem_kind)
    assert json.dumps(served.arguments) == json.dumps(local.arguments)
