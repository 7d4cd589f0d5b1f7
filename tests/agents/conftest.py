"""A small shop, and a language model that says what a test wants."""

import threading

import pytest

from pwagents.agents.chat import Setup
from pwagents.agents.offline import FunctionClassifier, OfflinePolicy
from pwagents.data.synthetic import make_world
from pwagents.llm.chat import ChatModel, Reply, ToolCall
from pwagents.schema import Usage
from pwagents.settings import SasRecSettings, WorldSettings
from pwagents.shop.environment import Environment, Shop, UserReply
from pwagents.shop.sasrec import Recommender, RecommendersByTime
from pwagents.shop.search import build_search_engine

COST = Usage(calls=1, prompt_tokens=100, completion_tokens=10, usd=0.5)


class ScriptedModel(ChatModel):
    """Answers with ``script``: replies in order, or a function of the request. Notes every request."""

    name = "scripted"

    def __init__(self, script=()):
        self.script, self.requests, self._lock = script, [], threading.Lock()

    def reply(self, request):
        with self._lock:
            self.requests.append(request)
            reply = self.script(request) if callable(self.script) else self.script[len(self.requests) - 1]
        reply = Reply(text=reply) if isinstance(reply, str) else reply
        return reply.model_copy(update={"usage": COST})


def call(name, arguments="{}", text=""):
    """A reply with a native tool call."""
    tool_calls = (ToolCall(id="x", name=name, arguments=arguments),)
    return Reply(text=text, tool_calls=tool_calls, finish_reason="tool_calls")


@pytest.fixture(scope="session")
def world():
    return make_world(WorldSettings(n_users=30, n_products=240), seed=0)


@pytest.fixture(scope="session")
def classifier(benchmark):
    return FunctionClassifier(benchmark.tasks["train"])


@pytest.fixture(scope="session")
def policy(classifier):
    return OfflinePolicy(classifier)


@pytest.fixture(scope="session")
def shop(benchmark, embedder, tmp_path_factory):
    sequences = {u: [b.parent_asin for b in benchmark.train_period(u)] for u in benchmark.behaviors}
    cache = tmp_path_factory.mktemp("cache")
    recommender = Recommender.fit(sequences, SasRecSettings(epochs=1), seed=0, cache_dir=cache)
    always = RecommendersByTime([0], [recommender])
    return Shop(benchmark, build_search_engine(benchmark.products), always, embedder)


@pytest.fixture(scope="session")
def setup_of(benchmark, embedder):
    """``setup_of(model, track, ...)``: a setup over the small shop."""
    return lambda model=None, track="multi_turn", **fields: Setup(
        model or ScriptedModel(), benchmark.products, track, embedder, **fields
    )


@pytest.fixture(scope="session")
def environment_of(shop, benchmark):
    """``environment_of(task, track)``: with a user who tells the brand in mind, whatever is asked."""

    def tell_brand(task, session, says):
        return UserReply(f"I prefer {benchmark.products[task.target].store}.")

    return lambda task, track="multi_turn": Environment(shop, task, track, user=tell_brand, details=True)


@pytest.fixture(scope="session")
def play(environment_of):
    """``play(agent, task, track)``: the trajectory of a whole episode."""

    def run(agent, task, track="multi_turn"):
        return environment_of(task, track).play(agent)

    return run


@pytest.fixture(scope="session")
def state_of(environment_of):
    """``state_of(task)``: the belief state at the beginning of a task."""
    return lambda task: environment_of(task).state
