"""Notebook 04's study: who learns, who is tested, the shop to learn in, labels of all variants, the test."""

from copy import copy
from dataclasses import replace

import pytest

from pwagents.errors import DataError
from pwagents.lm.small import make_small_model
from pwagents.puma.agent import SEARCH
from pwagents.puma.labels import leak_free_labels, remember
from pwagents.puma.play import Variant, make_plain_agent, play, play_plain, time_agents
from pwagents.puma.study import PumaStudy, load_worlds
from pwagents.puma.train import PumaModels

from .conftest import SIZE


@pytest.fixture(scope="module")
def settings(tiny_world, tmp_path_factory):
    study = replace(tiny_world.study, test_tasks=6, timed_tasks=2)
    dpo = replace(tiny_world.dpo, train_tasks=5)
    return replace(tiny_world, study=study, dpo=dpo, output_dir=tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def worlds(settings):
    return load_worlds(settings)


@pytest.fixture(scope="module")
def study(settings, worlds, tokenizer):
    base = settings.output_dir / "base"
    make_small_model(tokenizer, 0, SIZE).save_pretrained(base)
    tokenizer.save_pretrained(base)
    return PumaStudy(worlds, PumaModels(settings, base, "a small world"))


@pytest.fixture(scope="module")
def items(study, worlds):
    return remember(worlds.train_tasks, study.start, study.memory(32))


def test_nobody_who_is_tested_is_trained_on(worlds):
    trained = {task.user_id for task in worlds.train_tasks}
    assert trained and not trained & worlds.tested.behaviors.keys()
    assert (
        len(worlds.tasks) == 6 and {task.user_id for task in worlds.tasks} <= worlds.tested.behaviors.keys()
    )


def test_the_papers_way_trains_on_the_tested_users(settings):
    own = load_worlds(replace(settings, study=replace(settings.study, training_users=0)))
    assert own.learned is own.tested and own.train_tasks == list(own.tested.tasks["train"])


def test_the_shop_to_learn_in_knows_nothing_of_train_tasks(study, worlds):
    strangers = {asin for bought in worlds.learned.population.values() for _, asin in bought}
    known = set(study.learning_shop.recommender.index) - strangers
    assert strangers and max(t for own in worlds.learned.population.values() for t, _ in own) < worlds.date
    before = {
        behavior.parent_asin
        for user in {task.user_id for task in worlds.learned.tasks["train"]}
        for behavior in worlds.learned.before(user, worlds.learned.first_task(user, "train"))
    }
    assert known <= before
    task = worlds.train_tasks[0]
    first = worlds.learned.first_task(task.user_id, "train")
    assert all(behavior.timestamp < first for behavior in study.start(task).state.history)


def test_each_variant_has_labels_of_its_own_memory(study, worlds, items):
    labels, _ = leak_free_labels(items, worlds.products, study.write_queries)
    examples = study.labels_of_variants(labels)
    assert list(examples) == ["PUMA", "PUMA, 48 tokens", "w/o Task-specific Memory"]
    assert examples["PUMA"] == labels
    bare = examples["w/o Task-specific Memory"]
    assert bare and not any(example.item.entries for example in bare)
    # A query knows nothing of the past, and there is nothing to recommend from.
    queries = {example.arguments["query"] for example in bare if example.item.function == SEARCH}
    assert queries == set(
        study.write_queries([(e.item.state, ()) for e in bare if e.item.function == SEARCH])
    )
    assert {example.item.task.type for example in bare} == {"search", "review"}


def test_labels_are_worth_what_they_achieve_beside_the_instruction(study, worlds, items):
    labels, _ = leak_free_labels(items, worlds.products, study.write_queries)
    worth = study.worth_of_labels(labels).set_index(["task", "target"])
    assert worth.loc[("review", "all"), "label"] == pytest.approx(1.0, abs=1e-3)
    assert worth.xs("all", level="target")["tasks"].sum() == len(labels)
    parts = worth.loc["search"].drop("all")
    assert parts["tasks"].sum() == worth.loc[("search", "all"), "tasks"]
    assert worth["instruction alone"].dropna().index.unique("task").tolist() == ["search"]
    reviews = [label for label in labels if label.item.task.type == "review"]
    (row,) = study.worth_of_labels(reviews).itertuples()
    assert (row.task, row.tasks) == ("review", len(reviews))


def test_other_preferences_sample_and_train_in_ways_of_their_own(study):
    variants = ({"name": "hot", "temperature": 2.0}, {"name": "strict", "beta": 0.5})
    settings = replace(study.settings, dpo=replace(study.settings.dpo, variants=variants))
    varied = PumaStudy(study.worlds, replace(study.models, settings=settings)).other_preferences
    told = {name: models.settings.dpo for name, models in varied.items()}
    assert list(told) == ["PUMA, hot", "PUMA, strict"]
    assert [(dpo.temperature, dpo.trainer["beta"]) for dpo in told.values()] == [(2.0, 0.1), (1.0, 0.5)]


def test_few_variants_are_the_full_agent_alone(study, worlds, items):
    labels, _ = leak_free_labels(items, worlds.products, study.write_queries)
    settings = replace(study.settings, study=replace(study.settings.study, variants="few"))
    few = PumaStudy(worlds, replace(study.models, settings=settings))
    assert few.labels_of_variants(labels) == {"PUMA": labels} and few.other_preferences == {}


def test_pairs_are_sampled_for_some_of_the_tasks(study, items):
    labels, _ = leak_free_labels(items, study.worlds.products, study.write_queries)
    _, counts = study.sample_pairs(study.models, study.models.base, labels)
    assert sum(counts.values()) == 5
    other = copy(study)  # whose recommender, which scores, is trained with another seed
    other.settings = replace(study.settings, seed=1, stored_runs_only=True)
    with pytest.raises(DataError, match="puma-samples"):
        other.sample_pairs(replace(study.models, settings=other.settings), study.models.base, labels)


def test_agents_play_the_test_tasks_once(study, worlds, items, settings):
    base = study.models.base
    plain = make_plain_agent(study, items)
    for records in (play(study, "Base", Variant(base, base, 32)), play_plain(study, plain)):
        assert [record.task_id for record in records] == [task.task_id for task in worlds.tasks]
    stored = replace(settings, stored_runs_only=True)
    again = PumaStudy(worlds, replace(study.models, settings=stored))
    assert play_plain(again, plain) == records
    seconds = time_agents(study, {"Plain agent": plain})
    assert list(seconds["method"]) == ["Plain agent"] * 2 and (seconds["seconds"] > 0).all()
