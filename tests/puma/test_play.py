"""The test of notebook 04: actions computed at once, under the protocol that the records name."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pwagents.benchmark.settings import read_functions
from pwagents.embedding import Embedder
from pwagents.errors import DataError
from pwagents.lm.small import make_small_model
from pwagents.puma import agent as agent_module
from pwagents.puma.play import PLAIN, make_agent, play_at_once, play_worlds, time_agents, write_functions
from pwagents.puma.prompts import load_prompts
from pwagents.puma.settings import NO_DPO, PUMA, Method
from pwagents.puma.study import PumaStudy
from pwagents.puma.train import Trained
from pwagents.puma.worlds import Worlds
from pwagents.schema import Action, Product
from pwagents.web.environment import WebEnvironment, run_episode
from pwagents.web.functions import Shop
from pwagents.web.search import build_search_engine

from .conftest import SIZE
from .purchases import behavior, make_benchmark
from .standins import memory_of


class FakeStudy(PumaStudy):
    """One shop for everybody, whatever the protocol, and nothing to learn from."""

    def __init__(self, benchmark, tasks, settings):
        self.shop = Shop(benchmark, build_search_engine(benchmark.products), None, Embedder())
        self.shops = SimpleNamespace(of=lambda *_: self.shop, params=lambda protocol: {})
        self.worlds = Worlds(benchmark, benchmark, list(tasks), [])
        self.memory, self.prompts = memory_of(benchmark.products), load_prompts()
        self.settings, self.seed = settings, 0


@pytest.fixture
def study_of(smoke, tmp_path):
    return lambda benchmark, tasks: FakeStudy(benchmark, tasks, replace(smoke, output_dir=tmp_path))


def searches(benchmark):
    return [task for task in benchmark.tasks["test"] if task.type == "search"][:6]


def search(state):
    return Action(name="search_product_by_query", arguments={"query": state.instruction})


def played(study, act, name="search"):
    return play_at_once(study, name, act, "leak_free", "none", {})


def test_episodes_are_those_played_one_by_one_and_are_played_once(benchmark, study_of):
    study, asked = study_of(benchmark, searches(benchmark)), []

    def act(begun):
        asked.append(len(begun))
        return [search(each.state) for each in begun]

    records = played(study, act)
    environment = WebEnvironment(study.shop)
    alone = [run_episode(environment, t, benchmark.history(t, "test"), search) for t in study.worlds.tasks]
    assert [record.trajectory for record in records] == alone
    study.settings = replace(study.settings, stored_runs_only=True)
    assert played(study, act) == records and asked == [len(records)]


def test_a_task_that_cannot_be_evaluated_is_counted_and_costs_the_others_nothing(benchmark, study_of):
    review = next(task for task in benchmark.tasks["test"] if task.type == "review")
    empty = review.model_copy(update={"review": review.review.model_copy(update={"text": ""})})
    study = study_of(benchmark, [empty, searches(benchmark)[0]])
    records = played(study, lambda begun: [search(each.state) for each in begun])
    assert [record.outcome for record in records] == ["not_evaluable", "scored"]


def test_each_episode_is_timed_by_itself(benchmark, study_of):
    seconds = time_agents(study_of(benchmark, searches(benchmark)), {"search": search})
    assert len(seconds) == 5 and seconds["seconds"].min() > 0


@pytest.mark.parametrize("protocol", ["published", "leak_free"])
def test_a_purchase_between_test_tasks_is_known_as_published_and_never_leak_free(
    study_of, monkeypatch, protocol
):
    """It is dated after the user's first test task and before this one."""
    made_up = behavior("Q1", 50.2)
    benchmark = make_benchmark()
    quux = Product(parent_asin="Q1", title="Quuxly pan", category="Kitchen")
    bought = sorted([*benchmark.behaviors["U"], made_up], key=lambda each: each.timestamp)
    benchmark = replace(
        benchmark, products={**benchmark.products, "Q1": quux}, behaviors={"U": tuple(bought)}
    )
    tasks = [task for task in benchmark.tasks["test"] if task.task_id == "later"]
    study, prompts = study_of(benchmark, tasks), []

    def complete(folder, texts, **_):
        prompts.extend(texts)
        return [["get_recommendations_by_history" if folder == "first" else "Q1, K01"] for _ in texts]

    monkeypatch.setattr(agent_module, "complete", complete)
    trained = Trained("first", "second", "second")
    agent = make_agent(study, Method(memory_tokens=10**6), trained, protocol)
    known = []
    shelf = SimpleNamespace(recommend=lambda ids, k: known.extend(ids) or [])
    study.shop = replace(study.shop, recommender=shelf)
    (record,) = play_at_once(
        study,
        "PUMA",
        lambda begun: agent.act([b.state for b in begun], [b.function for b in begun]),
        protocol,
        "none",
        {},
    )
    assert ("Quuxly" in "".join(prompts)) == (protocol == "published")
    assert record.params["protocol"] == protocol and set(known) == {"Q1", "K01"}


def test_other_worlds_are_made_trained_and_tested_anew(tiny, tokenizer, tmp_path):
    """A seed makes other people and trainings; the dial, people who buy nothing twice."""
    base = tmp_path / "base"
    make_small_model(tokenizer, 0, SIZE).save_pretrained(base)
    tokenizer.save_pretrained(base)
    here = replace(tiny, base=replace(tiny.base, model=str(base)), output_dir=tmp_path)
    control = replace(here, data=replace(here.data, n_products=1500, repurchase=0.0)).seeded(1)
    frames = play_worlds({"as it is": here, "control": control}, [NO_DPO], "as set")
    tasks = [set(frame["task_id"]) for frame in frames.values()]
    assert not tasks[0] & tasks[1] and all(len(each) == 6 for each in tasks)
    assert all(set(frame["method"]) == {PLAIN, NO_DPO} for frame in frames.values())
    assert set(frames["control"]["target"]) == {"new"}


def test_notebook_03_reads_the_functions_that_step_1_named(tmp_path):
    tasks = make_benchmark().tasks["test"]
    named = ["add_product_review", "", *["search_product_by_query"] * len(tasks)][: len(tasks)]
    records = [
        SimpleNamespace(
            method=PUMA,
            task_id=task.task_id,
            trajectory=SimpleNamespace(steps=[SimpleNamespace(action=Action(name=name))]),
        )
        for task, name in zip(tasks, named, strict=True)
    ]
    write_functions(records, tasks, tmp_path / "functions.json")
    functions = read_functions(str(tmp_path / "functions.json"), tasks)
    assert list(functions.values()) == named
    other = tasks[0].model_copy(update={"instruction": "Something else."})
    with pytest.raises(DataError, match="no function for its instruction"):
        read_functions(str(tmp_path / "functions.json"), [other])
    assert read_functions("", tasks) == read_functions(str(tmp_path / "none.json"), tasks) == {}
