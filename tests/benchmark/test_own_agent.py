"""Agents of one's own play: what each kind returns, remembers and is known by, and what is refused."""

from dataclasses import dataclass
from functools import partial

import pytest

from pwagents.agents.http_agent import serve_agent
from pwagents.benchmark.own_agent import Stage, own_agent, play
from pwagents.data.synthetic import WorldConfig, make_world
from pwagents.errors import SettingsError
from pwagents.schema import Action
from pwagents.web.environment import WebEnvironment
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine


def search(state):
    return Action(name="search_product_by_query", arguments={"query": state.instruction})


class Remembers:
    """Knows of which users it has played tasks, and says so."""

    def __init__(self):
        self.memory = {"users": []}

    def __call__(self, state):
        if state.session:
            return Action(name="stop")
        self.memory["users"].append(state.user_id)
        return search(state).model_copy(update={"thought": ",".join(self.memory["users"])})


class Titles:
    """Searches for the title bought last."""

    def __init__(self, products):
        self.products = products

    def __call__(self, state):
        title = self.products[state.history[-1].parent_asin].title
        return Action(name="search_product_by_query", arguments={"query": title})


class Model:
    """Stands for a trained model: its ``name`` says which."""

    def __init__(self, name):
        self.name = name


@dataclass
class Inherits(Remembers):
    """Its own code is what a dataclass makes; what it does, its base class says."""

    model: object = None


@pytest.fixture(scope="module")
def benchmark():
    return make_world(WorldConfig(n_users=12, n_products=300), seed=0).benchmark


@pytest.fixture(scope="module")
def tasks(benchmark):
    return [task for task in benchmark.tasks["test"] if task.type != "review"]


@pytest.fixture
def stage(benchmark, tmp_path):
    shop = Shop(benchmark, build_search_engine(benchmark.products), None, None)
    return Stage(
        benchmark.products,
        lambda task: WebEnvironment(shop, "multi_turn"),
        lambda task: benchmark.history(task, "test"),
        tmp_path / "episodes.jsonl",
        {},
    )


def test_stored_episodes_are_not_played_again_and_those_of_a_changed_agent_are(stage, tasks):
    asked = []

    def counting(state, words=""):
        asked.append(state)
        return Action(name="stop")

    first = play(own_agent(counting), tasks[:3], stage)
    assert len(asked) == 3
    assert play(own_agent(counting), tasks[:3], stage) == first and len(asked) == 3
    play(own_agent(counting, "another name"), tasks[:3], stage)
    assert len(asked) == 6
    play(own_agent(partial(counting, words="red")), tasks[:3], stage)
    assert len(asked) == 9, "what is bound to an agent is part of it"


def test_an_agent_is_known_by_the_model_it_holds_and_by_its_base_classes():
    versions = [own_agent(Inherits(Model(name))).version for name in ("a", "a", "b")]
    assert versions[0] == versions[1] != versions[2]
    assert own_agent(Inherits).version, "found the source of its base class"


def test_another_query_is_another_endpoint():
    addresses = [f"https://me:password@host/act?{query}" for query in ("model=1", "model=1", "model=2")]
    agents = [own_agent(address) for address in addresses]
    assert {agent.name for agent in agents} == {"host/act"}
    assert agents[0].version == agents[1].version != agents[2].version
    assert "model" not in agents[0].version


@pytest.mark.parametrize("given", [Remembers, Remembers()], ids=["class", "object"])
def test_memory_goes_from_task_to_task_of_one_user(stage, tasks, given):
    records = play(own_agent(given), tasks, stage)
    seen = {}
    for task, record in sorted(zip(tasks, records, strict=True), key=lambda pair: pair[0].timestamp):
        seen[task.user_id] = seen.get(task.user_id, 0) + 1
        assert record.trajectory.steps[0].action.thought.split(",") == [task.user_id] * seen[task.user_id]
    assert max(seen.values()) > 1
    assert play(own_agent(given), tasks, stage) == records
    assert len(stage.store.read_text().splitlines()) == len(tasks)


def test_a_class_may_take_the_catalogue(stage, tasks, benchmark):
    (record,) = play(own_agent(Titles), tasks[:1], stage)
    last = benchmark.history(tasks[0], "test")[-1].parent_asin
    assert record.trajectory.steps[0].action.arguments["query"] == benchmark.products[last].title


def test_an_endpoint_plays_as_its_agent_does_in_python(stage, tasks):
    with serve_agent(search) as url:
        agent = own_agent(f"{url.replace('http://', 'http://me:password@')}/?key=secret")
        remote = play(agent, tasks[:2], stage)
    assert agent.name == f"{url.removeprefix('http://')}/"
    local = play(own_agent(search), tasks[:2], stage)
    assert [record.trajectory for record in remote] == [record.trajectory for record in local]
    assert "secret" not in stage.store.read_text() and "password" not in stage.store.read_text()


def fails(state):
    raise KeyError("brand")


class Forgets(Remembers):
    def __call__(self, state):
        self.memory = [state.user_id]
        return Action(name="stop")


NO_ACTION = r"task \S+: TypeError: the agent returned "
WRONG = {
    "a text": (
        lambda state: "search",
        NO_ACTION + r"the text 'search'; expected an action, such as Action\(",
    ),
    "a dict": (
        lambda state: {"name": "stop"},
        NO_ACTION + r"the dict \{'name': 'stop'\}; expected an action",
    ),
    "nothing": (lambda state: None, NO_ACTION + "None; expected an action"),
    "a class": (lambda state: Action, NO_ACTION + "a value of type ModelMetaclass; expected an action"),
    "a long text": (lambda state: "x" * 500, NO_ACTION + r"the text 'x{70,80}\.\.\.; expected an action"),
    "arguments that are a text": (
        lambda state: Action(name="stop", arguments="now"),
        r"task \S+: TypeError: Action, field arguments: found the text 'now'; expected a valid dictionary",
    ),
    "a name that is none": (
        lambda state: Action(name=None),
        r"task \S+: TypeError: Action, field name: found None; expected a valid string",
    ),
    "an error": (fails, r"task \S+: KeyError: 'brand'"),
    "a memory that is a list": (
        Forgets,
        r"the agent's memory is the list \['.*'\]; expected a dict of plain",
    ),
}


@pytest.mark.parametrize(("agent", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_action_is_one_clear_error_that_names_the_task(stage, tasks, agent, message):
    with pytest.raises(RuntimeError, match=message) as raised:
        play(own_agent(agent), tasks[:1], stage)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (5, "agent: found the int 5; expected a function from BeliefState"),
        (int, "agent: found a value of type type; expected a function from BeliefState"),
        (len, "agent len: found no source"),
    ],
)
def test_what_is_no_agent_is_refused(agent, message):
    with pytest.raises(SettingsError, match=message):
        own_agent(agent)
