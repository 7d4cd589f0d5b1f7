"""Nothing of the future reaches an agent: markers are planted in it, and looked for in all that agents see.

The benchmark is one in which users shop at different times, so that the past of one lies in the future of
another. Everything that happens from a user's first test task on carries a marker of its time: in the review,
and in a product that is bought at no other time.
"""

import json
import re
from dataclasses import replace

import pytest

from pwagents.agents.chat import Setup
from pwagents.agents.interec import InteRecAgent, play_interec
from pwagents.agents.memory import Memory
from pwagents.agents.methods import METHODS
from pwagents.agents.offline import FunctionClassifier, RuleAgent
from pwagents.data.synthetic import make_world
from pwagents.embedding import Embedder
from pwagents.profiles.catalogue import Catalogue
from pwagents.profiles.global_micro import contextual_profile, profile_users
from pwagents.profiles.offline import OfflineProfiler
from pwagents.results import references
from pwagents.schema import Benchmark
from pwagents.settings import SasRecSettings, WorldSettings
from pwagents.shop.environment import Environment, Shop
from pwagents.shop.sasrec import RecommendersByTime, training_sequences
from pwagents.shop.search import build_search_engine

from .agents.conftest import ScriptedModel, call

STRATEGIES = ("none", "random", "last", "relevant", "task_specific")
MONTH = 30 * 86_400_000
CONFIG = SasRecSettings(epochs=2, dropout=0.0, loss="cross_entropy")


def marker(timestamp):
    return f"MARKER{timestamp}"


def times_of_markers(text):
    return {int(time) for time in re.findall(r"MARKER(\d+)", text)}


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    """The embedded world, each user moved in time, every behaviour marked with its own."""
    world = make_world(WorldSettings(n_users=12, n_products=150, history=(15, 30)), seed=0).benchmark
    shift = {user: i * 5 * MONTH for i, user in enumerate(sorted(world.behaviors))}
    products = dict(world.products)

    def marked(record, user, field):
        """A behaviour or task at its new time, with a product of its own."""
        time, asin = record.timestamp + shift[user], getattr(record, field)
        own = f"{asin}-{marker(time)}"
        title = f"{world.products[asin].title} {marker(time)}"
        products[own] = world.products[asin].model_copy(update={"parent_asin": own, "title": title})
        review = record.review.model_copy(update={"text": f"{record.review.text} {marker(time)}"})
        return record.model_copy(update={field: own, "timestamp": time, "review": review})

    past = {u: tuple(marked(b, u, "parent_asin") for b in own) for u, own in world.behaviors.items()}
    tasks = {split: tuple(marked(t, t.user_id, "target") for t in own) for split, own in world.tasks.items()}
    return Benchmark("marked", products, past, tasks)


@pytest.fixture(scope="module")
def recommenders(benchmark, tmp_path_factory):
    return RecommendersByTime.fit(benchmark, CONFIG, 0, 4, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def embedder():
    return Embedder(max_tokens=16, batch_size=64)


def test_what_recommenders_learn_from_lies_before_their_date(benchmark, recommenders):
    assert len(recommenders.dates) == 4
    for date in recommenders.dates:
        assert all(t < date for t in times_of_markers(json.dumps(training_sequences(benchmark, date))))
    for user in benchmark.behaviors:
        start = benchmark.first_task(user)
        index = getattr(recommenders.at(start), "index", {})
        assert all(time < start for time in times_of_markers(" ".join(index)))


def test_a_user_gets_the_latest_recommender_that_knows_no_future(recommenders, tmp_path):
    first, *_, last = recommenders.dates
    assert recommenders.at(last + 1) is recommenders.at(last) is recommenders.recommenders[-1]
    assert recommenders.at(last - 1) is recommenders.recommenders[-2]
    assert recommenders.at(first - 1).recommend(["anything"]) == []
    world = make_world(WorldSettings(n_users=12, n_products=150), seed=0).benchmark
    (date,) = RecommendersByTime.fit(world, CONFIG, 0, 4, tmp_path).dates  # one serves all
    expected = {user: [b.parent_asin for b in world.train_period(user)] for user in world.behaviors}
    assert training_sequences(world, date) == expected


def test_what_strangers_buy_later_is_not_known_either(benchmark, tmp_path):
    times = [task.timestamp for task in benchmark.all_tasks()]
    # Products of the world before it was marked: no user has bought them.
    unused = [asin for asin in sorted(benchmark.products) if not times_of_markers(asin)][:40]
    bought = tuple((min(times) + i * (max(times) - min(times)) // 40, asin) for i, asin in enumerate(unused))
    among_strangers = replace(benchmark, population={"P1": bought[::2], "P2": bought[1::2]})
    time_of, known = {asin: time for time, asin in bought}, set()
    fitted = RecommendersByTime.fit(among_strangers, CONFIG, 0, 4, tmp_path)
    for user in benchmark.behaviors:
        start = benchmark.first_task(user)
        index = getattr(fitted.at(start), "index", {})
        known |= index.keys() & time_of.keys()
        assert all(time_of.get(asin, 0) < start for asin in index)
        assert all(time < start for time in times_of_markers(" ".join(index)))
    assert known


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_an_agent_sees_comes_from_its_future(benchmark, recommenders, embedder, strategy):
    """Belief state, memory and the answers of the recommender; what an agent sends is made of these."""
    engine = build_search_engine(benchmark.products)
    shop = Shop(benchmark, engine, recommenders, embedder, "compact")
    memory = Memory(strategy, benchmark.products, embedder, length=50)
    agent = RuleAgent(FunctionClassifier(benchmark.tasks["train"]), memory)
    seen = 0
    for task in (task for task in benchmark.tasks["test"] if task.type != "review"):
        start = benchmark.first_task(task.user_id)
        environment = Environment(shop, task)
        state = environment.state
        action = agent(state)
        recalled = [memory.recall(state, function) for function in ("search_product_by_query",
                    "get_recommendations_by_history", "add_product_review")]  # fmt: skip
        inputs = [state, action.arguments, recalled]
        if action.name == "get_recommendations_by_history":
            inputs.append(environment.step(action))
        times = set().union(*(times_of_markers(repr(part)) for part in inputs))
        assert all(time < start for time in times), (task.task_id, strategy)
        seen += len(times)
    assert seen > 0


def curious():
    """A model that asks for recommendations on what it read of, looks at them, and stops."""

    def reply(request):
        read = re.findall(r"B0\w+-MARKER\d+", json.dumps(model.requests[0].messages))[:3]
        recommend = ("get_recommendations_by_history", json.dumps({"product_sequence": read}))
        name, arguments = ("stop", "{}") if len(model.requests) > 2 else recommend
        told = f"get_recommendations_by_history\nAction:\n{name}\nArguments:\n{arguments}"
        return call(name, arguments) if request.tools else told

    model = ScriptedModel(reply)
    return model


@pytest.mark.parametrize("name", METHODS)
def test_no_prompt_of_any_method_holds_anything_of_its_future(benchmark, recommenders, embedder, name):
    """Memory, profile, results of the recommender; a review task shows the product to review, and no more."""
    engine = build_search_engine(benchmark.products)
    shop = Shop(benchmark, engine, recommenders, embedder, "compact")
    seen = 0
    for task in benchmark.tasks["test"][:24]:
        start, model = benchmark.first_task(task.user_id), curious()
        setup = Setup(model, benchmark.products, "multi_turn", embedder)
        environment = Environment(shop, task, "multi_turn", details=name == "RecMind")
        if METHODS[name] is InteRecAgent:
            play_interec(setup, environment, {})
        else:
            environment.play(METHODS[name](setup))
        assert len(model.requests) > 2
        times = times_of_markers(repr([request.messages for request in model.requests]))
        if task.type == "review":
            times.discard(task.timestamp)
        assert all(time < start for time in times), (task.task_id, name)
        seen += len(times)
    assert (seen > 0) == (name not in ("No memory", "Chain of thought", "ChatShop"))


def test_the_published_protocol_does_show_earlier_answers(benchmark):
    """The test above could fail: under the published reading there is something to find."""
    tests = benchmark.tasks["test"]
    seen = [times_of_markers(repr(benchmark.history(task, "test", "published"))) for task in tests]
    firsts = [benchmark.first_task(task.user_id) for task in tests]
    assert any(time >= first for times, first in zip(seen, firsts, strict=True) for time in times)


def test_floors_know_no_future(benchmark, embedder):
    tasks = benchmark.tasks["test"]
    shown = []

    class Spy(Embedder):
        def cosine(self, text, other):
            shown.append(text)
            return 0.0

        def encode(self, texts, show_progress=False):
            return None

    rows = references.review_references(benchmark, Spy(), tasks, seed=0)
    for (method, user), text in zip(rows[["method", "user_id"]].itertuples(index=False), shown, strict=True):
        if method != "oracle":
            assert all(time < benchmark.first_task(user) for time in times_of_markers(text)), method
    starts = {benchmark.first_task(user) for user in benchmark.behaviors}
    for start, ranking in references.popular_products(benchmark, starts).items():
        assert all(time < start for time in times_of_markers(" ".join(ranking)))
    assert set(rows["method"]) == {"random", "same user", "oracle"}


def test_profiles_hold_nothing_of_the_future(benchmark, embedder):
    """Global and micro profiles, clusters, and what they put into a prompt."""
    histories = {task.user_id: benchmark.history(task, "test") for task in benchmark.tasks["test"]}
    profiler = OfflineProfiler(Catalogue(benchmark.products))
    made = profile_users(histories, benchmark.products, embedder, profiler, seed=0, alpha=5)
    assert any(profiles.clusters for profiles in made.values())
    for task in benchmark.tasks["test"]:
        start, profiles = benchmark.first_task(task.user_id), made[task.user_id]
        told = contextual_profile(task.instruction, profiles, embedder).describe()
        members = [histories[task.user_id][i] for cluster in profiles.clusters for i in cluster.members]
        times = times_of_markers(repr([profiles.whole, profiles.micro, members, told]))
        assert all(time < start for time in times), task.task_id
