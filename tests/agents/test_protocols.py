"""What agents may know: only the published protocol shows what lies between a user's test tasks."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pwagents.agents.chat import Setup
from pwagents.agents.memory import Memory
from pwagents.agents.methods import METHODS
from pwagents.agents.offline import RuleAgent
from pwagents.agents.play import make_player
from pwagents.schema import FUNCTION_OF, Behavior, Product, Review
from pwagents.settings import SasRecSettings
from pwagents.shop.environment import Environment, Shop, run_episode
from pwagents.shop.sasrec import Recommender, RecommendersByTime
from pwagents.shop.search import build_search_engine

from .conftest import ScriptedModel, call

FORGETFUL = ("No memory", "Chain of thought", "ChatShop")


@pytest.fixture(scope="module")
def poisoned(benchmark, embedder):
    """A shop, and the last task of a user who bought a product with a word of its own after their first."""
    counts = Counter(task.user_id for task in benchmark.tasks["test"])
    user = max(counts, key=counts.get)
    by_time = sorted(benchmark.tasks["test"], key=lambda task: task.timestamp)
    first, *_, task = (task for task in by_time if task.user_id == user)
    assert first.timestamp + 1 < task.timestamp
    lamp = Product(parent_asin="B0ZORB", title="Zorblax", category="Home")
    review = Review(rating=5.0, text="Zorblax!")
    bought = Behavior(parent_asin="B0ZORB", timestamp=task.timestamp - 1, review=review)
    past = sorted([*benchmark.behaviors[user], bought], key=lambda behavior: behavior.timestamp)
    products = {**benchmark.products, "B0ZORB": lamp}
    changed = replace(benchmark, products=products, behaviors={**benchmark.behaviors, user: (*past,)})
    return Shop(changed, build_search_engine(products), RecommendersByTime((), ()), embedder), task


@pytest.mark.parametrize("protocol", ["published", "leak_free"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_recalls_what_was_bought_between_test_tasks_as_published_alone(method, protocol, poisoned):
    shop, task = poisoned

    def act(request):
        if len(request.messages) == 1:  # PUMA's first step, and InteRecAgent's profile
            return FUNCTION_OF[task.type]
        return call("stop") if len(request.messages) > 2 else call("nothing")

    model = ScriptedModel(act)
    model.limits = {"leak_free": 128, "published": 256}
    for track in ("single_turn", "multi_turn"):
        if track not in METHODS[method].rules:
            continue
        setup = Setup(model, shop.benchmark.products, track, shop.embedder, length=400)
        play, memory = make_player(method, setup, shop, protocol)
        play(task) if memory is None else play(task, memory)
    assert {request.sampling["max_tokens"] for request in model.requests} == {model.limits[protocol]}
    text = str([request.messages for request in model.requests])
    assert ("Zorblax" in text) == (protocol == "published" and method not in FORGETFUL)


@pytest.mark.parametrize("protocol", ["published", "leak_free"])
def test_the_recommender_is_given_it_as_published_alone(protocol, poisoned):
    shop, task = poisoned
    memory = Memory("last", shop.benchmark.products, shop.embedder, 50)
    agent = RuleAgent(lambda instruction: FUNCTION_OF["recommend"], memory)
    (step,) = run_episode(shop, task, agent, protocol=protocol).steps
    assert ("B0ZORB" in step.action.arguments["product_sequence"]) == (protocol == "published")


def test_only_the_published_protocol_has_the_published_recommender(poisoned, tmp_path):
    shop, task = poisoned
    # Without the published files the recommender is ours under both protocols.
    ours, published = (Environment(shop, task, protocol=p).recommender for p in ("leak_free", "published"))
    assert type(ours) is type(published) and shop.facts("published") == shop.facts("leak_free")
    before = shop.facts("leak_free")
    shop = replace(shop, published=SimpleNamespace(name="checkpoint"))
    assert Environment(shop, task, protocol="published").recommender is shop.published
    assert type(Environment(shop, task).recommender) is type(ours)
    assert shop.facts("published") == {"recommenders": ["checkpoint"]} and shop.facts("leak_free") == before
    fitted = Recommender.fit({"u": ["a", "b"]}, SasRecSettings(epochs=1), 0, tmp_path)
    other = RecommendersByTime([0], [fitted])
    assert replace(shop, recommenders=other).facts("leak_free") != before  # other weights, other episodes
