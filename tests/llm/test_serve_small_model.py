"""The small base model behind a real endpoint says what it says in this process."""

import json
from dataclasses import replace

import pytest

from pwagents.agents.chat_agent import ChatAgent, Setup
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.llm.local_model import LocalModel
from pwagents.llm.openai_model import OpenAIModel
from pwagents.lm.pretrain import Lesson
from pwagents.orion.agent import OrionAgent
from pwagents.orion.base import base_model
from pwagents.orion.base_text import BaseText
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.offline_update import OfflineUpdater
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.schema import Observation, Step
from pwagents.web.episode import BeliefState, Context

from .serving import transformers_serve

LESSON = Lesson(asked=0, batch_size=8, learning_rate=8e-3, accuracy=1.1, most_steps=60)
SIZE = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 96}
SAMPLING = {"temperature": 0, "max_tokens": 60}


@pytest.fixture(scope="module")
def products():
    return make_world(WorldConfig(n_users=12, n_products=400), seed=3).benchmark.products


@pytest.fixture(scope="module")
def folder(products, tmp_path_factory):
    """A base model that knows the form of a call, and little else."""
    text = BaseText(OfflineUpdater(Catalogue(products)), (), 0)
    return base_model(tmp_path_factory.mktemp("models"), text, 5, [LESSON], SIZE)


@pytest.fixture(scope="module")
def endpoint(folder, tmp_path_factory):
    """The same model behind the endpoint client."""
    with transformers_serve(folder, tmp_path_factory.mktemp("serve") / "log") as url:
        yield OpenAIModel(str(folder), url, attempts=1)


@pytest.fixture
def state():
    profile = ContextualProfile(lines=(ProfileLine.of("color: navy", True, "history"),))
    asked = "Find me a new yoga mat."
    return BeliefState("U0001", asked, f"User U0001: {asked}", None, (), (), profile, Context(profile))


def test_orions_first_turn(endpoint, folder, state):
    served = OrionAgent(endpoint, sampling=SAMPLING)(state)
    assert (served.name, served.problem) == ("search_product_by_query", "")
    assert list(served.arguments) == ["query"] and served.thought.startswith("<think>")
    assert served == OrionAgent(LocalModel(folder), sampling=SAMPLING)(state)


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
