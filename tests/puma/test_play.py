"""Notebook 04: its settings by the real loading path; its test, under the protocol that the records name."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from pwagents.agents.play import read_functions
from pwagents.errors import DataError, SettingsError
from pwagents.llm.folder import read_model
from pwagents.lm import complete as complete_module
from pwagents.puma import agent as agent_module
from pwagents.puma.agent import PumaAgent
from pwagents.puma.memory import Method, load_prompts
from pwagents.puma.play import PLAIN, play, play_anew, play_at_once
from pwagents.puma.study import NO_DPO, PUMA, Study, Worlds, load_worlds
from pwagents.puma.study import make_variants as methods_of
from pwagents.puma.train import Trained, train
from pwagents.results.episodes import mark_targets, records_frame
from pwagents.schema import Action, Review
from pwagents.settings import load_settings, project_path, settings_values
from pwagents.shop.environment import Environment
from pwagents.shop.sasrec import RecommendersByTime

from .conftest import CIRCUMSTANCES, changed, make_benchmark, memory_of


def load(**parameters):
    return load_settings("04_puma", {"preset": "laptop"} | parameters)


def test_the_paper_preset_has_the_scripts_values():
    values = settings_values("04_puma", {"preset": "paper"})
    for group, fields in CIRCUMSTANCES["paper"].items():
        assert values[group].items() >= fields.items()
    for group, fields in CIRCUMSTANCES["trainers"].items():
        assert values[group]["trainer"].items() >= fields.items()
    assert {"embed_tokens", "lm_head", "norm"} < set(values["sft"]["modules_to_save"])
    assert values["identify"] == values["sft"]


@pytest.mark.parametrize("variants", ["few", "all"])
def test_each_variant_differs_from_puma_as_the_table_says(variants):
    methods = methods_of(load(study={"variants": variants}).study)
    puma = vars(methods[PUMA])
    assert (puma["memory"], puma["ids"], puma["hint"]) == ("paper", "asin", "none")
    differences = {
        name: {switch: value for switch, value in vars(method).items() if value != puma[switch]}
        for name, method in methods.items()
    }
    assert differences == CIRCUMSTANCES["variants"][variants]


def test_variants_of_preferences_change_what_they_name_and_all_trainings_take_the_runs_seed():
    varied = load(dpo={"variants": [{"name": "strict", "trainer": {"beta": 0.5}}]}).dpo.varied
    assert list(varied) == ["as set", "strict"]
    assert varied["strict"].trainer == {**varied["as set"].trainer, "beta": 0.5}
    for loaded in (load(seed=7), load().seeded(7)):
        assert {loaded.seed, loaded.identify.seed, loaded.sft.seed, loaded.dpo.seed} == {7}


@pytest.mark.parametrize(("changed", "told"), CIRCUMSTANCES["refused"])
def test_settings_that_cannot_be_are_refused(changed, told):
    with pytest.raises(SettingsError, match=told):
        load(**changed)


@pytest.fixture
def elsewhere(study, tmp_path):
    """The study with its results in a folder of this test."""
    return changed(study, output_dir=tmp_path)


def search(state):
    return Action(name="search_product_by_query", arguments={"query": state.instruction})


def test_episodes_are_those_played_one_by_one_and_are_played_once(elsewhere):
    acted, tasks = [], elsewhere.worlds.tasks
    empty = tasks[0].model_copy(update={"task_id": "none", "type": "review", "review": Review(rating=1)})
    elsewhere.worlds = replace(elsewhere.worlds, tasks=[empty, *tasks])

    def act(begun):
        acted.append(len(begun))
        return [search(each.state) for each in begun]

    first, *records = play_at_once(elsewhere, "search", act, "leak_free", "none", {})
    assert first.outcome == "not_evaluable"  # which is counted and costs the others nothing
    for record, task in zip(records, tasks, strict=True):
        assert record.trajectory == Environment(elsewhere.shop, task, protocol="leak_free").play(search)
    elsewhere.settings = elsewhere.settings.changed(stored_runs_only=True)
    assert play_at_once(elsewhere, "search", act, "leak_free", "none", {}) == [first, *records]
    assert acted == [len(tasks)]


def test_an_agent_loads_its_models_once(elsewhere, monkeypatch):
    loads, base = [], elsewhere.base
    monkeypatch.setattr(complete_module, "read_model", lambda *each: loads.append(each) or read_model(*each))
    agent = PumaAgent(elsewhere, Method(), Trained(base, base, base), "leak_free")
    first, second = (each.state for each in elsewhere.begun[:2])
    calls = [agent(first), agent(second)]
    assert len(loads) == 1  # the base is the model of both steps
    assert calls == [*agent.act([first]), *agent.act([second])] and len(loads) > 1


@pytest.mark.parametrize("protocol", ["published", "leak_free"])
def test_a_purchase_between_test_tasks_is_known_as_published_and_never_leak_free(
    elsewhere, monkeypatch, protocol
):
    """It is dated after the user's first test task and before this one."""
    world = make_benchmark(Q1=50.2)
    tasks = [task for task in world.tasks["test"] if task.task_id == "later"]
    elsewhere.worlds, elsewhere.memory = Worlds(world, world, tasks, []), memory_of(world)
    prompts, known = [], []
    shelf = SimpleNamespace(name="shelf", recommend=lambda ids, k: known.extend(ids) or [])
    always = RecommendersByTime([0], [shelf])
    elsewhere.shop = replace(elsewhere.learning_shop, benchmark=world, recommenders=always)

    def complete(folder, texts, **_):
        prompts.extend(texts)
        return [["get_recommendations_by_history" if folder == elsewhere.base else "Q1, K01"] for _ in texts]

    monkeypatch.setattr(agent_module, "complete", complete)
    trained = Trained(elsewhere.base, elsewhere.base / "second", elsewhere.base)
    (record,) = play(elsewhere, PUMA, Method(memory_tokens=10**6), trained, protocol)
    assert ("Quux" in "".join(prompts)) == (protocol == "published")
    assert record.params["protocol"] == protocol and set(known) == {"Q1", "K01"}


def other_world(settings):
    worlds = load_worlds(settings)
    return Study(worlds, settings, project_path(settings.base.model), load_prompts())


def test_other_worlds_are_made_trained_and_tested_anew(tiny, tmp_path):
    """A seed makes other people and trainings; the dial, people who buy nothing twice."""
    here = tiny.changed(output_dir=tmp_path)
    control = here.changed(data=here.data.changed(n_products=1500, repurchase=0.0)).seeded(1)
    runs = {"as it is": here, "control": control}
    methods = {NO_DPO: methods_of(here.study)[NO_DPO]}
    played = play_anew(other_world, runs, methods, partial(train, preferences="as set"), plain=True)
    tasks = [{record.task_id for record in records} for _, records in played.values()]
    assert not tasks[0] & tasks[1] and all(len(each) == 6 for each in tasks)
    assert all({record.method for record in records} == {PLAIN, NO_DPO} for _, records in played.values())
    tested, records = played["control"]
    assert set(mark_targets(records_frame(records), tested)["target"]) == {"new"}


def test_notebook_03_reads_the_functions_that_step_1_named(world, tmp_path):
    tasks, named = world.tasks["test"], ["add_product_review", ""]
    file = tmp_path / "functions.json"
    file.write_text(json.dumps({task.instruction: name for task, name in zip(tasks, named, strict=True)}))
    assert list(read_functions(str(file), tasks).values()) == named
    other = tasks[0].model_copy(update={"instruction": "Something else."})
    with pytest.raises(DataError, match="no function for its instruction"):
        read_functions(str(file), [other])
    assert read_functions("", tasks) == read_functions(str(tmp_path / "none.json"), tasks) == {}
